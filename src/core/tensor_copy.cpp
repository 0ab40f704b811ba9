// Reading and copying numbers of any element type and strides.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "core/check.h"
#include "core/conversions.h"
#include "core/element_types.h"
#include "saccade/tensor.h"

namespace saccade {
namespace {

// ---- Conversion of one number --------------------------------------------------------------------------------

/// Rounds `value` to odd: if bits are cut off, the last bit is set. Rounding the float to 16 bits then gives the
/// nearest number, which two roundings to nearest could miss.
float rounded_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  const bool is_exact = static_cast<double>(nearest) == value || std::isnan(value);
  if (is_exact || (std::bit_cast<std::uint32_t>(nearest) & 1) != 0) return nearest;
  return std::nextafter(nearest, static_cast<float>(value > static_cast<double>(nearest) ? HUGE_VAL : -HUGE_VAL));
}

/// A 64-bit integer as a double, rounded in the same way.
double integer_rounded_to_odd(bool is_negative, std::uint64_t magnitude) {
  constexpr int kCut = 64 - 53;
  if (magnitude >> 53 != 0) {
    const bool is_inexact = (magnitude & ((1U << kCut) - 1)) != 0;
    magnitude = ((magnitude >> kCut) | (is_inexact ? 1 : 0)) << kCut;
  }
  return is_negative ? -static_cast<double>(magnitude) : static_cast<double>(magnitude);
}

template <class From>
float to_float_for_narrowing(From value) {
  if constexpr (std::is_same_v<From, double>) {
    return rounded_to_odd(value);
  } else if constexpr (std::is_integral_v<From> && sizeof(From) >= 4) {
    const bool is_negative = std::cmp_less(value, 0);
    const auto bits = static_cast<std::uint64_t>(value);
    return rounded_to_odd(integer_rounded_to_odd(is_negative, is_negative ? 0 - bits : bits));
  } else {
    return static_cast<float>(value);
  }
}

template <class To, class From>
To to_integer(From value) {
  using Limits = std::numeric_limits<To>;
  if constexpr (std::is_integral_v<From>) {
    if (std::cmp_less(value, Limits::min())) return Limits::min();
    if (std::cmp_greater(value, Limits::max())) return Limits::max();
    return static_cast<To>(value);
  } else {
    const auto wide = static_cast<double>(value);
    if (std::isnan(wide)) return 0;
    // 2^bits, the first value above the range, is exact in a double; max() may not be.
    const double beyond = 2.0 * static_cast<double>(Limits::max() / 2 + 1);
    if (wide >= beyond) return Limits::max();
    if (wide <= static_cast<double>(Limits::min())) return Limits::min();
    return static_cast<To>(wide);
  }
}

template <class To, class From>
To converted(From value) {
  if constexpr (std::is_same_v<From, bool>) {
    return converted<To>(static_cast<std::uint8_t>(value ? 1 : 0));
  } else if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (std::is_same_v<To, bool>) {
    return value != From(0);
  } else if constexpr (std::is_class_v<To>) {  // a type narrower than a float
    return To(to_float_for_narrowing(value));
  } else if constexpr (std::is_integral_v<To>) {
    return to_integer<To>(value);
  } else {
    return static_cast<To>(value);
  }
}

// ---- Element types chosen at run time ------------------------------------------------------------------------

/// Calls `function` with a std::type_identity of the C++ type of `dtype`.
template <class Function>
decltype(auto) with_type(DType dtype, const Function& function) {
  return with_type_of(Elements{}, dtype, function, [dtype] {
    if (dtype == DType::i4)
      throw std::invalid_argument(
          "[copy] numbers of i4 stand for others by their multipliers and scales: dequantize() them");
    throw std::invalid_argument("[DType] " + std::to_string(static_cast<int>(dtype)) + " is not an element type");
  });
}

/// The number at `element`. Reads a bool as a byte, because a file may contain values other than 0 and 1.
template <class T>
T load(const T* element) {
  if constexpr (std::is_same_v<T, bool>) {
    return *reinterpret_cast<const std::uint8_t*>(element) != 0;
  } else {
    return *element;
  }
}

// ---- Rows ----------------------------------------------------------------------------------------------------

// Contiguous numbers.
void convert_all(const float* from, bfloat16* to, std::int64_t count) {
  conversions().narrow_to_bf16(from, to, count);
}
void convert_all(const float* from, float16* to, std::int64_t count) {
  conversions().narrow_to_f16(from, to, count);
}
void convert_all(const bfloat16* from, float* to, std::int64_t count) {
  conversions().widen_bf16(from, to, count);
}
void convert_all(const float16* from, float* to, std::int64_t count) { conversions().widen_f16(from, to, count); }
template <class T>
void convert_all(const T* from, T* to, std::int64_t count) {
  std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(T));
}

/// Converts `count` numbers that are `from_stride` and `to_stride` elements apart.
using ConvertRow = void (*)(const void* from, std::int64_t from_stride, void* to, std::int64_t to_stride,
                            std::int64_t count);

template <class From, class To>
void convert_row(const void* from, std::int64_t from_stride, void* to, std::int64_t to_stride,
                 std::int64_t count) {
  const From* source = static_cast<const From*>(from);
  To* target = static_cast<To*>(to);
  if constexpr (requires { convert_all(source, target, count); }) {
    if (from_stride == 1 && to_stride == 1) return convert_all(source, target, count);
  }
  for (std::int64_t i = 0; i < count; ++i) target[i * to_stride] = converted<To>(load(source + i * from_stride));
}

ConvertRow row_converter(DType from, DType to) {
  return with_type(from, [to](auto source) {
    return with_type(to, [](auto target) -> ConvertRow {
      return &convert_row<typename decltype(source)::type, typename decltype(target)::type>;
    });
  });
}

/// A copy between views of equal shape with at least one dimension.
class StridedCopy {
 public:
  StridedCopy(const TensorView& from, const MutableTensorView& to, ConvertRow convert)
      : from_(from), to_(to), convert_(convert), row_(from.rank - std::size_t{1}), count_(from.shape[row_]) {
    // Merge dimensions that are contiguous in both views into one row.
    while (row_ > 0 && from.strides[row_ - 1] == count_ * from.strides[from.rank - 1] &&
           to.strides[row_ - 1] == count_ * to.strides[to.rank - 1])
      count_ *= from.shape[--row_];
  }

  void run() const {
    copy_dims(0, static_cast<const std::byte*>(from_.data), static_cast<std::byte*>(to_.mutable_data()));
  }

 private:
  void copy_dims(std::size_t dim, const std::byte* from, std::byte* to) const {
    if (dim == row_) return convert_(from, from_.strides[from_.rank - 1], to, to_.strides[to_.rank - 1], count_);
    const std::int64_t from_step = from_.strides[dim] * static_cast<std::int64_t>(size_of(from_.dtype));
    const std::int64_t to_step = to_.strides[dim] * static_cast<std::int64_t>(size_of(to_.dtype));
    for (std::int64_t i = 0; i < from_.shape[dim]; ++i) copy_dims(dim + 1, from + i * from_step, to + i * to_step);
  }

  const TensorView& from_;
  const MutableTensorView& to_;
  ConvertRow convert_;
  std::size_t row_;     // the first dimension of a row; a row contains all later ones
  std::int64_t count_;  // numbers in a row
};

}  // namespace

// ---- Reading and copying -------------------------------------------------------------------------------------

void copy(const TensorView& from, const MutableTensorView& to) {
  if (!std::ranges::equal(from.dims(), to.dims())) {
    throw std::invalid_argument("[copy] from has shape " + to_string(from.dims()) + " but to has shape " +
                                to_string(to.dims()));
  }
  if (from.size() == 0) return;
  check_data("copy", "from", from);
  check_data("copy", "to", to);
  const ConvertRow convert = row_converter(from.dtype, to.dtype);
  if (from.is_contiguous() && to.is_contiguous()) {
    convert(from.data, 1, to.mutable_data(), 1, from.size());
  } else {
    StridedCopy(from, to, convert).run();
  }
}

double value_at(const TensorView& view, std::span<const std::int64_t> index) {
  if (index.size() != view.rank || view.data == nullptr) {
    throw std::out_of_range("[value_at] " + to_string(index) + " is no index of shape " + to_string(view.dims()));
  }
  check_has_numbers("value_at", "view", view);
  TensorView element = view;
  for (const std::int64_t i : index) element = element.select(0, i);
  double value = 0.0;
  row_converter(view.dtype, DType::f64)(element.data, 1, &value, 1, 1);
  return value;
}

}  // namespace saccade
