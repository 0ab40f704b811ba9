#include "core/quantized/rows.h"

#include <algorithm>
#include <array>
#include <vector>

#include "core/check.h"
#include "saccade/quantize.h"

namespace saccade {
namespace {

/// The rows of a view as indices of its outer dimensions, one after the other.
class RowIndex {
 public:
  explicit RowIndex(const TensorView& view) : view_(view), dims_(view.rank - 1) {}

  std::int64_t count() const {
    std::int64_t rows = 1;
    for (int i = 0; i < dims_; ++i) rows *= view_.shape[static_cast<std::size_t>(i)];
    return rows;
  }
  /// The offset of a row in a view with these outer dimensions, whose lengths of 1 broadcast; in elements.
  std::int64_t offset(const TensorView& other, std::int64_t row) const {
    std::int64_t offset = 0;
    for (int i = dims_ - 1; i >= 0; --i) {
      const std::int64_t length = view_.shape[static_cast<std::size_t>(i)], index = row % length;
      row /= length;
      const int at = i - (view_.rank - other.rank);
      if (at < 0 || other.shape[static_cast<std::size_t>(at)] == 1) continue;
      offset += index * other.strides[static_cast<std::size_t>(at)];
    }
    return offset;
  }

 private:
  const TensorView& view_;
  int dims_;
};

void check_rows(std::string_view function, const TensorView& x) {
  if (x.rank < 1) refuse(function, "x must have rank 1 or more");
  if (x.data == nullptr && x.size() > 0)
    refuse(function, "x has shape ", to_string(x.dims()), " but no data (null pointer)");
}

void quantize_row(DType dtype, const float* row, std::int64_t dim, const QuantizedRow& to) {
  const QuantizeKernels& kernels = quantize_kernels();
  (dtype == DType::i8 ? kernels.i8 : dtype == DType::i4 ? kernels.i4 : kernels.f8e4m3)(row, dim, to);
}

}  // namespace

void quantize_row(DType dtype, const float* row, std::int64_t dim, bool rotate, float* scratch,
                  const QuantizedRow& to) {
  if (rotate) {
    std::copy_n(row, dim, scratch);
    quantize_kernels().hadamard(scratch, dim);
    row = scratch;
  }
  quantize_row(dtype, row, dim, to);
}

TensorView QuantizedTensor::view() const {
  if (dtype != DType::i4) return numbers;
  const std::int64_t dim = shape.empty() ? 0 : shape.back();
  std::vector<std::int64_t> strides(shape.size());
  auto stride =
      static_cast<std::uint64_t>(stored_dim(DType::i4, dim));  // which may overflow: shape is not checked
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = i + 1 == shape.size() ? 1 : static_cast<std::int64_t>(stride);
    if (i + 1 < shape.size()) stride *= static_cast<std::uint64_t>(shape[i]);
  }
  return TensorView(numbers.data(), DType::i4, shape, strides);
}

QuantizedTensor quantize(const TensorView& x, DType dtype) {
  constexpr std::string_view kName = "quantize";
  check_rows(kName, x);
  if (!is_floating(x.dtype)) refuse(kName, "x must be f32, bf16, f16 or f64, but it is ", name_of(x.dtype));
  if (!is_quantized(dtype)) refuse(kName, "dtype must be i8, i4 or f8e4m3, but it is ", name_of(dtype));
  const Tensor all = Tensor::copy_of(x, DType::f32);
  const std::int64_t dim = all.shape(-1), rows = dim == 0 ? 0 : all.size() / dim;
  QuantizedTensor result{.dtype = dtype, .shape = all.shape(), .numbers = {}, .scale = {}, .multipliers = {}};
  Shape of_rows = all.shape();
  const auto with_last = [&](std::int64_t length) {
    of_rows.back() = length;
    return of_rows;
  };
  const bool is_i4 = dtype == DType::i4;
  const std::int64_t bytes = bytes_of(dtype, stored_dim(dtype, dim)), groups = is_i4 ? quantized_groups(dim) : 0;
  result.numbers = Tensor(is_i4 ? DType::u8 : dtype, with_last(bytes));
  result.scale = Tensor(DType::f32, with_last(1));
  if (is_i4) result.multipliers = Tensor(DType::i8, with_last(groups));
  for (std::int64_t row = 0; row < rows; ++row)
    quantize_row(
        dtype, static_cast<const float*>(all.data()) + row * dim, dim,
        {.numbers = static_cast<std::byte*>(result.numbers.data()) + row * bytes,
         .scale = static_cast<float*>(result.scale.data()) + row,
         .multipliers = is_i4 ? static_cast<std::int8_t*>(result.multipliers.data()) + row * groups : nullptr});
  return result;
}

Tensor dequantize(const TensorView& x, const TensorView& scale, const TensorView& multipliers) {
  constexpr std::string_view kName = "dequantize";
  check_rows(kName, x);
  if (!is_quantized(x.dtype)) refuse(kName, "x must be i8, i4 or f8e4m3, but it is ", name_of(x.dtype));
  const auto last = static_cast<std::size_t>(x.rank - 1);
  const std::int64_t dim = x.shape[last];
  if (x.dtype != DType::f8e4m3 && !scale) refuse(kName, "x is ", name_of(x.dtype), ", which needs scale");
  if ((x.dtype == DType::i4) != bool(multipliers))
    refuse(kName, "x is ", name_of(x.dtype), ", which ", multipliers ? "has no" : "needs", " multipliers");
  const auto check_plane = [&](std::string_view name, const TensorView& plane, DType dtype, std::int64_t columns,
                               bool is_scale) {
    if (!plane) return;
    check_dtype(kName, name, plane, dtype);
    bool fits = plane.rank <= x.rank;
    for (int i = 0; fits && i < plane.rank; ++i) {
      const int dimension = x.rank - plane.rank + i;
      const auto of_x = static_cast<std::size_t>(dimension);
      const std::int64_t wanted = of_x == last ? columns : x.shape[of_x],
                         length = plane.shape[static_cast<std::size_t>(i)];
      fits = length == wanted || (length == 1 && (of_x != last || is_scale));
    }
    if (!fits)
      refuse(kName, name, " has shape ", to_string(plane.dims()), ", which does not fit x of shape ",
             to_string(x.dims()));
    if (plane.data == nullptr && plane.size() > 0) refuse(kName, name, " has no data (null pointer)");
    if (!is_scale) check_memory(kName, name, plane);
  };
  check_memory(kName, "x", x);
  check_int4_strides(kName, "x", x);
  check_plane("scale", scale, DType::f32, dim, true);
  check_plane("multipliers", multipliers, DType::i8, quantized_groups(dim), false);
  const RowIndex index(x);
  Tensor result = Tensor::uninitialized(DType::f32, Shape(x.dims().begin(), x.dims().end()));
  const auto scales = scale ? static_cast<std::size_t>(scale.rank - 1) : 0;
  const bool of_channels = scale && scale.shape[scales] != 1;
  for (std::int64_t row = 0, rows = dim == 0 ? 0 : index.count(); row < rows; ++row) {
    auto* const to = static_cast<float*>(result.data()) + row * dim;
    const float* const of_row = scale ? scale.as<float>() + index.offset(scale, row) : nullptr;
    quantize_kernels().read(
        x.dtype,
        {.numbers = static_cast<const std::byte*>(x.data) + bytes_of(x.dtype, index.offset(x, row)),
         .scale = of_row && !of_channels ? *of_row : 1,
         .multipliers = multipliers ? multipliers.as<std::int8_t>() + index.offset(multipliers, row) : nullptr},
        dim, to);
    for (std::int64_t d = 0; of_channels && d < dim; ++d) to[d] *= of_row[d * scale.strides[scales]];
  }
  return result;
}

Tensor dequantize(const QuantizedTensor& x) { return dequantize(x.view(), x.scale, x.multipliers); }

Tensor hadamard(const TensorView& x) {
  check_rows("hadamard", x);
  if (!is_floating(x.dtype)) refuse("hadamard", "x must be f32, bf16, f16 or f64, but it is ", name_of(x.dtype));
  Tensor result = Tensor::copy_of(x, DType::f32);
  const std::int64_t dim = result.shape(-1);
  for (std::int64_t row = 0, rows = dim == 0 ? 0 : result.size() / dim; row < rows; ++row)
    quantize_kernels().hadamard(static_cast<float*>(result.data()) + row * dim, dim);
  return result;
}

}  // namespace saccade
