// NumPy's arrays, read and made without calling Python.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <span>

#include "saccade/tensor.h"

namespace saccade::python {

namespace nb = nanobind;

/// The parts of NumPy that are used, looked up once.
class Numpy {
 public:
  // Not initialised by its declaration: an import may pass the GIL to another thread, which would then wait for
  // this initialisation while it holds the GIL. Threads that come at once may each look it up.
  static const Numpy& get() {
    static std::atomic<const Numpy*> numpy = nullptr;
    if (!numpy.load()) numpy.store(new Numpy());  // lives as long as the interpreter
    return *numpy.load();
  }

  /// Exactly a NumPy array: the usual case, for which the checks of other types are skipped.
  bool is_array(nb::handle object) const {
    return reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())) == ndarray_.ptr();
  }

  /// The numbers of an array (is_array), with memory for the strides in elements.
  struct Described {
    nb::dlpack::dltensor tensor;
    std::array<std::int64_t, kMaxRank> strides;
    bool is_writable;
  };

  /// False for arrays that are better read through nanobind: of other element types or byte orders, of too many
  /// dimensions, with strides between elements. Takes 0.01 us where nanobind takes 0.3 (Zen 5).
  bool describe(nb::handle array, Described& result) const;

  /// A new array of f32 numbers, not initialised.
  nb::object new_f32(std::span<const std::int64_t> shape) const;

  /// The memory of an array that new_f32 has made.
  void* memory_of(nb::handle array) const;

 private:
  struct Fields;
  struct ElementType;
  using New = PyObject* (*)(PyTypeObject*, int, const std::int64_t*, int, const std::int64_t*, void*, int, int,
                            PyObject*);

  Numpy();
  bool layout_is_known(const nb::module_& numpy) const;
  static New find_new();

  nb::object ndarray_, empty_, f32_;
  bool can_read_fields_ = false;
  New new_ = nullptr;
};

}  // namespace saccade::python
