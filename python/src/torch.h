// PyTorch's tensors, as far as they are read without calling PyTorch's Python functions.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <array>
#include <cstdint>
#include <string_view>

namespace saccade::python {

namespace nb = nanobind;

inline nb::handle type_of(nb::handle object) { return reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())); }

inline bool has(nb::handle object, const char* attribute) {
  return PyObject_HasAttrString(object.ptr(), attribute) == 1;
}

/// The part of DLPackExchangeAPI (DLPack 1.3, dlpack.h) that is used here; tensor types have it as
/// __dlpack_c_exchange_api__. Reading a tensor takes 0.1 us with it, and 2.3 us with __dlpack__ (PyTorch 2.15,
/// Zen 4).
struct ExchangeApi {
  struct {
    std::uint32_t major, minor;
  } version;
  ExchangeApi* previous;
  void* managed_tensor_allocator;
  void* managed_tensor_from_object;
  void* managed_tensor_to_object;
  int (*dltensor_from_object)(void* object, nb::dlpack::dltensor* result);  // may be null
};

/// The interface of a type; null if it has none, or one of an unknown version.
const ExchangeApi* exchange_api_of(nb::handle type);

/// The parts of PyTorch that are used, looked up once PyTorch is imported.
class Torch {
 public:
  /// Null for anything but a PyTorch tensor.
  static const Torch* of(nb::handle object);

  /// Whether the class of a tensor is PyTorch's own.
  bool is_exact(nb::handle object) const {
    const nb::handle type = type_of(object);
    return type.is(tensor_) || type.is(parameter_);
  }

  /// Refuses tensors whose gradient PyTorch would record, because this function would silently ignore it, and
  /// tensors without numbers: those with metadata only, and the biases of torch.nn.attention.bias.
  void require_numbers(nb::handle tensor, std::string_view name) const;

  /// Null: tensors are read through __dlpack__.
  const ExchangeApi* exchange_api() const { return exchange_api_; }

  /// What keeps the memory of a tensor alive: its storage. The tensor can be given another one while it is in use
  /// (tensor.data = ...).
  nb::object storage_of(nb::handle tensor) const;

  /// Whether operators are called as they are: not in a function or dispatch mode, torch.func, torch.jit.trace,
  /// torch.autocast or forward-mode differentiation. Also false if this PyTorch does not tell.
  bool is_plain() const;

  bool records_gradients() const { return is_true(is_grad_enabled_()); }
  bool requires_grad(nb::handle tensor) const { return is_true(tensor.attr(requires_grad_)); }

  /// Whether a tensor's memory holds its numbers, and not their negatives.
  bool holds_numbers(nb::handle tensor) const { return nb::object(tensor.attr(is_neg_)()).ptr() == Py_False; }

  /// torch.get_num_threads()
  int num_threads() const { return nb::cast<int>(num_threads_()); }

  /// torch.empty_like(tensor)
  nb::object empty_like(nb::handle tensor) const { return empty_like_(tensor); }

  /// tensor.new_empty(shape)
  nb::object new_empty(nb::handle tensor, nb::handle shape) const { return tensor.attr(new_empty_)(shape); }

  /// tensor.contiguous()
  nb::object contiguous(nb::handle tensor) const { return tensor.attr(contiguous_)(); }

 private:
  explicit Torch(nb::object module);

  static bool is_true(const nb::object& object) { return object.ptr() == Py_True; }

  nb::object module_, tensor_, parameter_;
  const ExchangeApi* exchange_api_;
  nb::object requires_grad_, untyped_storage_, is_neg_, contiguous_, new_empty_, is_grad_enabled_, num_threads_,
      empty_like_;
  std::array<nb::object, 4> modes_;  ///< functions without arguments that return True in a mode
  nb::object dispatch_modes_, tracing_state_, forward_ad_, level_;
  bool knows_modes_ = false;
};

}  // namespace saccade::python
