#include "array.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <stdexcept>

#include "numpy.h"
#include "torch.h"
#ifdef __linux__
#include <sys/mman.h>
#endif

namespace saccade::python {
namespace {

/// DLPack's names of the element types.
struct TypeCode {
  DType dtype;
  nb::dlpack::dtype_code code;
  std::uint8_t bits;
};
constexpr std::array kTypeCodes{
    TypeCode{DType::f32, nb::dlpack::dtype_code::Float, 32},
    TypeCode{DType::f64, nb::dlpack::dtype_code::Float, 64},
    TypeCode{DType::f16, nb::dlpack::dtype_code::Float, 16},
    TypeCode{DType::bf16, nb::dlpack::dtype_code::Bfloat, 16},
    TypeCode{DType::boolean, nb::dlpack::dtype_code::Bool, 8},
    TypeCode{DType::i8, nb::dlpack::dtype_code::Int, 8},
    TypeCode{DType::i16, nb::dlpack::dtype_code::Int, 16},
    TypeCode{DType::i32, nb::dlpack::dtype_code::Int, 32},
    TypeCode{DType::i64, nb::dlpack::dtype_code::Int, 64},
    TypeCode{DType::u8, nb::dlpack::dtype_code::UInt, 8},
    TypeCode{DType::u16, nb::dlpack::dtype_code::UInt, 16},
    TypeCode{DType::u32, nb::dlpack::dtype_code::UInt, 32},
    TypeCode{DType::u64, nb::dlpack::dtype_code::UInt, 64},
};

std::optional<DType> dtype_from(nb::dlpack::dtype type) {
  for (const TypeCode& known : kTypeCodes)
    if (type.code == static_cast<std::uint8_t>(known.code) && type.bits == known.bits && type.lanes == 1)
      return known.dtype;
  return std::nullopt;
}

nb::dlpack::dtype dlpack_dtype(DType dtype) {
  const TypeCode& known = *std::ranges::find(kTypeCodes, dtype, &TypeCode::dtype);
  return {static_cast<std::uint8_t>(known.code), known.bits, 1};
}

bool is_numpy(nb::handle object) { return Numpy::get().is_array(object); }

/// The dtype of an array as its library prints it.
std::string dtype_text(nb::handle object) {
  return has(object, "dtype") ? text_of(object.attr("dtype")) : kind_of(object);
}

/// Throws the error of the object's own __dlpack__, or one with its element type.
[[noreturn]] void refuse_unreadable(nb::handle object, std::string_view name) {
  if (has(object, "__dlpack__")) {
    try {
      object.attr("__dlpack__")();
    } catch (const nb::python_error& error) {
      refuse(name, "could not be read: " + text_of(error.value()));
    }
  }
  refuse(name, "could not be read: its element type is " + dtype_text(object));
}

nb::dlpack::dltensor described(const nb::ndarray<nb::ro>& array) {
  return {.data = const_cast<void*>(array.data()),
          .device = {array.device_type(), array.device_id()},
          .ndim = static_cast<std::int32_t>(array.ndim()),
          .dtype = array.dtype(),
          .shape = const_cast<std::int64_t*>(array.shape_ptr()),
          .strides = const_cast<std::int64_t*>(array.stride_ptr()),
          .byte_offset = 0};
}

/// A str in UTF-8; characters that UTF-8 cannot encode, such as half of a surrogate pair, become escapes.
std::string utf8(nb::handle string) {
  Py_ssize_t size = 0;
  if (const char* text = PyUnicode_AsUTF8AndSize(string.ptr(), &size))
    return {text, static_cast<std::size_t>(size)};
  PyErr_Clear();
  const nb::object bytes = nb::steal(PyUnicode_AsEncodedString(string.ptr(), "utf-8", "backslashreplace"));
  if (!bytes.is_valid()) throw nb::python_error();
  return {PyBytes_AsString(bytes.ptr()), static_cast<std::size_t>(PyBytes_Size(bytes.ptr()))};
}

/// The str that `describe` makes of an object, or kind_of the object if that fails.
std::string description(PyObject* (*describe)(PyObject*), nb::handle object) {
  const nb::object string = nb::steal(describe(object.ptr()));
  if (string.is_valid()) return utf8(string);
  PyErr_Clear();
  return kind_of(object);
}

/// The bytes from the first to the last element; none for an empty view.
std::pair<const std::byte*, const std::byte*> range(const TensorView& view) {
  const auto* data = static_cast<const std::byte*>(view.data);
  if (view.size() == 0) return {data, data};
  std::int64_t low = 0, high = 0;
  for (std::size_t dim = 0; dim < view.rank; ++dim) {
    const std::int64_t reach = (view.shape[dim] - 1) * view.strides[dim];
    (reach < 0 ? low : high) += reach;
  }
  const auto bytes = static_cast<std::int64_t>(size_of(view.dtype));
  return {data + low * bytes, data + (high + 1) * bytes};
}

bool can_write(nb::handle object) {
  Numpy::Described numpy;
  if (is_numpy(object) && Numpy::get().describe(object, numpy)) return numpy.is_writable;
  if (Torch::of(object)) return true;  // PyTorch has no read-only tensors
  if (!is_numpy(object) && has(object, "__dlpack__") &&
      !has(object, "flags")) {  // such as JAX's, which are immutable
    try {
      const nb::object array = nb::module_::import_("numpy").attr("from_dlpack")(object);
      return array.attr("flags").attr("writeable").ptr() == Py_True;
    } catch (const nb::python_error&) {
      return false;
    }
  }
  nb::ndarray<> writable;
  if (nb::try_cast(object, writable, false)) return true;
  return dtype_text(object) == "bfloat16" && nb::try_cast(object.attr("view")("uint16"), writable, false);
}

/// Requests huge pages for results of 4 MiB or more, as NumPy does for its arrays and PyTorch does not. malloc
/// maps those above 32 MiB afresh for each call, and two threads take 1 us for each page: 8 x 16 x 12 heads of 128
/// rows took 33 ms instead of 23 (Zen 5).
void request_huge_pages([[maybe_unused]] const TensorView& result) {
#ifdef __linux__
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  const auto [begin, end] = range(result);
  const auto bytes = static_cast<std::size_t>(end - begin);
  if (bytes < 2 * kHugePage) return;
  const std::size_t before = -reinterpret_cast<std::uintptr_t>(begin) % kHugePage;
  madvise(const_cast<std::byte*>(begin) + before, (bytes - before) / kHugePage * kHugePage, MADV_HUGEPAGE);
#endif
}

bool repeats_memory(const TensorView& view) {
  if (view.size() == 0) return false;
  for (std::size_t dim = 0; dim < view.rank; ++dim)
    if (view.shape[dim] > 1 && view.strides[dim] == 0) return true;
  return false;
}

}  // namespace

void refuse(std::string_view name, std::string_view text) {
  throw std::invalid_argument(std::string(name) + ": " + std::string(text));
}

std::string text_of(nb::handle object) {
  return PyUnicode_CheckExact(object.ptr()) ? utf8(object) : description(&PyObject_Str, object);
}

std::string shown(nb::handle object) { return description(&PyObject_Repr, object); }

std::string kind_of(nb::handle object) {
  if (object.is_none()) return "None";
  return "a " + text_of(type_of(object).attr("__name__"));
}

double number(nb::handle object, std::string_view name) {
  const double value = PyFloat_AsDouble(object.ptr());
  if (value == -1.0 && PyErr_Occurred()) {
    PyErr_Clear();
    refuse(name, "expected a number, got " + kind_of(object));
  }
  return value;
}

std::int64_t integer(nb::handle object, std::string_view name) {
  nb::object index = nb::steal(PyNumber_Index(object.ptr()));
  const long long value = index.is_valid() ? PyLong_AsLongLong(index.ptr()) : -1;
  if (value == -1 && PyErr_Occurred()) {
    const bool too_large = PyErr_ExceptionMatches(PyExc_OverflowError);
    PyErr_Clear();
    if (too_large) refuse(name, "expected an integer of 64 bits, got " + text_of(object));
    refuse(name, "expected an integer, got " + kind_of(object));
  }
  return value;
}

std::uint64_t seed(nb::handle object) {
  const nb::object index = nb::steal(PyNumber_Index(object.ptr()));
  const unsigned long long value = index.is_valid() ? PyLong_AsUnsignedLongLong(index.ptr()) : 0;
  if (!PyErr_Occurred()) return value;
  PyErr_Clear();
  return static_cast<std::uint64_t>(integer(object, "seed"));  // negative seeds wrap around
}

bool boolean(nb::handle object, std::string_view name) {
  const int value = PyUnicode_Check(object.ptr()) ? -1 : PyObject_IsTrue(object.ptr());
  if (value >= 0) return value == 1;
  PyErr_Clear();
  refuse(name, "expected True or False, got " + kind_of(object));
}

std::string text(nb::handle object, std::string_view name) {
  if (!PyUnicode_Check(object.ptr())) refuse(name, "expected a str, got " + kind_of(object));
  return utf8(object);
}

std::string shown_text(nb::handle object, std::string_view name) {
  Py_ssize_t size = 0;
  const char* const characters =
      PyUnicode_Check(object.ptr()) ? PyUnicode_AsUTF8AndSize(object.ptr(), &size) : nullptr;
  if (characters) return {characters, static_cast<std::size_t>(size)};
  PyErr_Clear();
  refuse(name, "cannot be " + shown(object));
}

std::vector<std::string> shown_texts(nb::handle sequence, std::string_view name) {
  if (PyUnicode_Check(sequence.ptr()) || !PySequence_Check(sequence.ptr()))
    refuse(name, "cannot be " + shown(sequence));
  std::vector<std::string> result;
  for (const nb::handle object : nb::borrow(sequence)) result.push_back(shown_text(object, name));
  return result;
}

Array::Array(nb::handle object, std::string_view name) {
  if (object.is_none()) refuse(name, "expected an array, got None");
  if (!is_numpy(object)) {
    const Torch* const torch = Torch::of(object);
    if (torch)
      torch->require_numbers(object, name);
    else if (has(object, "fill_value"))
      refuse(name, "is a masked array, whose mask would be lost; use .filled()");
    nb::dlpack::dltensor borrowed;
    const ExchangeApi* api = torch ? torch->exchange_api() : exchange_api_of(type_of(object));
    if (api && api->dltensor_from_object(object.ptr(), &borrowed) == 0) {
      object_ = torch ? torch->storage_of(object) : nb::borrow(object);
      take(borrowed, name);
      return;
    }
    PyErr_Clear();
  } else if (Numpy::Described numpy; Numpy::get().describe(object, numpy)) {
    object_ = nb::borrow(object);
    take(numpy.tensor, name);
    return;
  }
  if (import(object)) {
    take(described(owner_), name);
    return;
  }
  if (has(object, "dtype") || has(object, "__dlpack__")) {
    if (const std::optional<DType> dtype = import_bits(object)) {
      take(described(owner_), name);
      view_.dtype = *dtype;
      return;
    }
    refuse_unreadable(object, name);
  }
  nb::object array;
  try {
    array = nb::module_::import_("numpy").attr("asarray")(object);
  } catch (const nb::python_error& error) {
    refuse(name, "expected an array, got " + kind_of(object) + " (" + text_of(error.value()) + ")");
  }
  if (!import(array)) refuse(name, "expected an array of numbers, got " + kind_of(object));
  take(described(owner_), name);
}

bool Array::import(nb::handle object) { return nb::try_cast(object, owner_, false); }

// NumPy cannot export arrays of ml_dtypes' types, but it can view the same bits as integers.
std::optional<DType> Array::import_bits(nb::handle object) {
  struct Type {
    std::string_view name;
    const char* bits;
    DType dtype;
  };
  static constexpr Type kTypes[] = {{"bfloat16", "uint16", DType::bf16},
                                    {"float8_e4m3fn", "uint8", DType::f8e4m3}};
  if (!has(object, "view")) return std::nullopt;
  const std::string text = dtype_text(object);
  for (const Type& type : kTypes) {
    if (text != type.name) continue;
    try {
      if (import(object.attr("view")(type.bits))) return type.dtype;
    } catch (const nb::python_error&) {
      return std::nullopt;
    }
  }
  return std::nullopt;
}

void Array::take(const nb::dlpack::dltensor& array, std::string_view name) {
  if (array.device.device_type != nb::device::cpu::value)
    refuse(name, "must be in the memory of the CPU; move it there first");
  const std::optional<DType> dtype = dtype_from(array.dtype);
  if (!dtype) refuse(name, "has elements of a type that saccade does not know");
  if (array.ndim > kMaxRank)
    refuse(name, "has " + std::to_string(array.ndim) + " dimensions; at most " + std::to_string(kMaxRank) +
                     " are taken");
  const void* data = static_cast<const std::byte*>(array.data) + array.byte_offset;
  const std::span shape(array.shape, static_cast<std::size_t>(array.ndim));
  view_ = array.strides ? TensorView(data, *dtype, shape, std::span(array.strides, shape.size()))
                        : TensorView(data, *dtype, shape);
  // NumPy gives empty arrays strides of 0; they get those of a contiguous array.
  if (view_.size() == 0 && view_.rank > 0) view_ = TensorView(view_.data, *dtype, view_.dims());
  if (view_.rank == 0) {  // one number: a view of rank 0 would mean that there is no array
    view_.rank = 1;
    view_.shape[0] = view_.strides[0] = 1;
  }
  if (reinterpret_cast<std::uintptr_t>(view_.data) % size_of(*dtype) != 0)
    refuse(name, "is not aligned to its elements; copy it first");
}

Array Array::optional(nb::handle object, std::string_view name) {
  return object.is_none() ? Array() : Array(object, name);
}

Array Array::writable(nb::handle object, std::string_view name) {
  Array result(object, name);
  if (!can_write(object)) refuse(name, "is read-only, or no array that can be written to");
  if (repeats_memory(result.view_)) refuse(name, "has elements that share memory (a stride of 0)");
  return result;
}

MutableTensorView Array::mutable_view() const {
  return {const_cast<void*>(view_.data), view_.dtype, view_.dims(), std::span(view_.strides.data(), view_.rank)};
}

void Array::make_rows_contiguous() {
  const std::size_t last = view_.rank - 1u;
  if (view_.shape[last] <= 1 || view_.strides[last] == 1) return;
  look_at(Tensor::copy_of(view_));
}

void Array::copy_numbers() { look_at(Tensor::copy_of(view_)); }

void Array::look_at(Tensor copy) {
  if (!given_) given_ = view_;
  copy_ = std::move(copy);
  view_ = *copy_;
}

void Array::convert_to(DType dtype) {
  if (!view_ || view_.dtype == dtype) return;
  TensorView distinct = view_;
  for (std::size_t dim = 0; dim < distinct.rank; ++dim)
    if (distinct.strides[dim] == 0 && distinct.shape[dim] > 1) distinct.shape[dim] = 1;
  look_at(Tensor::copy_of(distinct, dtype));
  for (std::size_t dim = 0; dim < view_.rank; ++dim) {
    if (view_.shape[dim] == given_->shape[dim]) continue;
    view_.shape[dim] = given_->shape[dim];
    view_.strides[dim] = 0;
  }
}

bool overlap(const TensorView& a, const TensorView& b) {
  const auto [a_begin, a_end] = range(a);
  const auto [b_begin, b_end] = range(b);
  return a_begin < b_end && b_begin < a_end;
}

Result::Result(nb::handle object, std::string_view name) : name_(name) {
  if (object.is_none()) return;
  array_ = Array::writable(object, name);
  const TensorView& view = array_.view();
  const std::size_t last = view.rank - 1u;
  if (view.shape[last] > 1 && view.strides[last] != 1)
    dense_ = Tensor::uninitialized(view.dtype, Shape(view.dims().begin(), view.dims().end()));
  else
    request_huge_pages(view);
}

MutableTensorView Result::view() {
  if (!array_.view()) return {};
  return dense_ ? dense_->mutable_view() : array_.mutable_view();
}

void Result::finish() {
  if (dense_) copy(*dense_, array_.mutable_view());
}

void Result::require_apart_from(const TensorView& input, std::string_view input_name) const {
  if (overlap(array_.view(), input))
    refuse(name_, "shares memory with " + std::string(input_name) + ", which is read at the same time");
}

nb::object numpy_view(const MutableTensorView& view, nb::handle owner) {
  std::array<std::size_t, kMaxRank> shape{};
  std::copy_n(view.shape.begin(), view.rank, shape.begin());
  return nb::cast(nb::ndarray<nb::numpy>(view.mutable_data(), view.rank, shape.data(), owner, view.strides.data(),
                                         dlpack_dtype(view.dtype)),
                  nb::rv_policy::reference);
}

nb::object numpy_array(Tensor tensor) {
  constexpr std::size_t kSmall = 4096;  // bytes; copying this many takes less time than creating a view
  if (tensor.dtype() == DType::f32 && tensor.bytes() <= kSmall) {
    nb::object array = Numpy::get().new_f32(tensor.shape());
    if (tensor.bytes() > 0) std::memcpy(Numpy::get().memory_of(array), tensor.data(), tensor.bytes());
    return array;
  }
  auto* held = new Tensor(std::move(tensor));
  nb::capsule owner(held, [](void* pointer) noexcept { delete static_cast<Tensor*>(pointer); });
  return numpy_view(held->mutable_view(), owner);
}

}  // namespace saccade::python
