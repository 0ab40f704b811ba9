#include "numpy.h"

#include <algorithm>

namespace saccade::python {

/// The beginning of PyArrayObject_fields of NumPy's ndarraytypes.h. Extension modules have these offsets compiled
/// in, so all versions of NumPy have them; layout_is_known() checks them all the same.
struct Numpy::Fields {
  PyObject head;
  void* data;
  int rank;
  std::int64_t* shape;
  std::int64_t* strides;  // in bytes
  PyObject* base;
  ElementType* dtype;
  int flags;

  static constexpr int kWritable = 0x0400;  // NPY_ARRAY_WRITEABLE

  static const Fields& of(nb::handle array) { return *reinterpret_cast<const Fields*>(array.ptr()); }
};

/// The beginning of PyArray_Descr, which NumPy 1 and 2 share.
struct Numpy::ElementType {
  PyObject head;
  PyTypeObject* scalar_type;
  char kind, character, byte_order, former_flags;
  int number;
};

namespace {

/// DLPack's names of NumPy's element types, by their numbers from NPY_BOOL to NPY_HALF; bits of 0: not read here.
using Code = nb::dlpack::dtype_code;
constexpr int kTypes = 24, kF32 = 11;
constexpr std::array<nb::dlpack::dtype, kTypes> kDlpackTypes = [] {
  std::array<nb::dlpack::dtype, kTypes> types{};
  const auto set = [&](std::size_t number, Code code, std::size_t bytes) {
    types[number] = {static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(8 * bytes), 1};
  };
  set(0, Code::Bool, 1);
  set(1, Code::Int, sizeof(signed char));
  set(2, Code::UInt, sizeof(unsigned char));
  set(3, Code::Int, sizeof(short));
  set(4, Code::UInt, sizeof(unsigned short));
  set(5, Code::Int, sizeof(int));
  set(6, Code::UInt, sizeof(unsigned));
  set(7, Code::Int, sizeof(long));
  set(8, Code::UInt, sizeof(unsigned long));
  set(9, Code::Int, sizeof(long long));
  set(10, Code::UInt, sizeof(unsigned long long));
  set(11, Code::Float, 4);
  set(12, Code::Float, 8);
  set(23, Code::Float, 2);
  return types;
}();

}  // namespace

Numpy::Numpy() {
  const nb::module_ numpy = nb::module_::import_("numpy");
  ndarray_ = numpy.attr("ndarray");
  empty_ = numpy.attr("empty");
  f32_ = numpy.attr("dtype")("float32");
  try {
    can_read_fields_ = layout_is_known(numpy);
    if (can_read_fields_) new_ = find_new();
  } catch (const nb::python_error&) {
    can_read_fields_ = false;
  }
}

bool Numpy::layout_is_known(const nb::module_& numpy) const {
  const nb::object whole = numpy.attr("zeros")(nb::make_tuple(2, 6), f32_);
  const nb::object array =
      whole[nb::make_tuple(nb::slice(nb::none(), nb::none(), nb::none()), nb::slice(0, 6, 2))];
  const nb::object interface = array.attr("__array_interface__");
  const Fields& fields = Fields::of(array);
  const auto address = nb::cast<std::uintptr_t>(nb::object(interface["data"][0]));
  return fields.data == reinterpret_cast<void*>(address) && fields.rank == 2 && fields.shape[0] == 2 &&
         fields.shape[1] == 3 && fields.strides[0] == 24 && fields.strides[1] == 8 && fields.base == whole.ptr() &&
         reinterpret_cast<PyObject*>(fields.dtype) == f32_.ptr() && (fields.flags & Fields::kWritable) &&
         fields.dtype->byte_order == '=' && fields.dtype->kind == 'f' && fields.dtype->number == kF32;
}

/// PyArray_New in NumPy's table of functions for C; null for a version that is unknown.
Numpy::New Numpy::find_new() {
  nb::object module = nb::steal(PyImport_ImportModule("numpy._core._multiarray_umath"));  // NumPy 2
  if (!module.is_valid()) {
    PyErr_Clear();
    module = nb::module_::import_("numpy.core._multiarray_umath");
  }
  const nb::object capsule = module.attr("_ARRAY_API");
  auto* const functions = static_cast<void**>(PyCapsule_GetPointer(capsule.ptr(), nullptr));
  if (!functions) throw nb::python_error();
  const unsigned version = reinterpret_cast<unsigned (*)()>(functions[0])();  // PyArray_GetNDArrayCVersion
  return version == 0x1000009 || version == 0x2000000 ? reinterpret_cast<New>(functions[93]) : nullptr;
}

bool Numpy::describe(nb::handle array, Described& result) const {
  if (!can_read_fields_) return false;
  const Fields& fields = Fields::of(array);
  const int number = fields.dtype->number;
  if (number < 0 || number >= kTypes || fields.rank > kMaxRank) return false;
  const nb::dlpack::dtype type = kDlpackTypes[static_cast<std::size_t>(number)];
  const char order = fields.dtype->byte_order;
  if (type.bits == 0 || (order != '=' && order != '|')) return false;
  const std::int64_t bytes = type.bits / 8;
  for (int dim = 0; dim < fields.rank; ++dim) {
    const auto at = static_cast<std::size_t>(dim);
    result.strides[at] = fields.strides[dim] / bytes;
    if (result.strides[at] * bytes != fields.strides[dim]) return false;
  }
  result.is_writable = (fields.flags & Fields::kWritable) != 0;
  result.tensor = {.data = fields.data,
                   .device = {nb::device::cpu::value, 0},
                   .ndim = fields.rank,
                   .dtype = type,
                   .shape = fields.shape,
                   .strides = result.strides.data(),
                   .byte_offset = 0};
  return true;
}

nb::object Numpy::new_f32(std::span<const std::int64_t> shape) const {
  if (new_) {
    nb::object array =
        nb::steal(new_(reinterpret_cast<PyTypeObject*>(ndarray_.ptr()), static_cast<int>(shape.size()),
                       shape.data(), kF32, nullptr, nullptr, 0, 0, nullptr));
    if (!array.is_valid()) throw nb::python_error();
    return array;
  }
  nb::object lengths = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(shape.size())));
  for (std::size_t dim = 0; dim < shape.size(); ++dim)
    PyTuple_SetItem(lengths.ptr(), static_cast<Py_ssize_t>(dim), PyLong_FromLongLong(shape[dim]));
  return empty_(lengths, f32_);
}

void* Numpy::memory_of(nb::handle array) const {
  if (can_read_fields_) return Fields::of(array).data;
  Py_buffer buffer;
  if (PyObject_GetBuffer(array.ptr(), &buffer, PyBUF_WRITABLE) != 0) throw nb::python_error();
  void* const memory = buffer.buf;
  PyBuffer_Release(&buffer);
  return memory;
}

}  // namespace saccade::python
