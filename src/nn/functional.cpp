#include "saccade/functional.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "backend/layer_kernels.h"
#include "core/check.h"
#include "core/parallel.h"

namespace saccade {
namespace {

void check_f32(std::string_view function, std::string_view name, const TensorView& view) {
  if (view.rank == 0) refuse(function, name, " must have at least one dimension");
  check_dtype(function, name, view, DType::f32);
  check_memory(function, name, view);
}

void check_like(std::string_view function, std::string_view name, const TensorView& view, const TensorView& x) {
  check_f32(function, name, view);
  if (!std::ranges::equal(view.dims(), x.dims()))
    refuse(function, name, " must have the shape of x, ", to_string(x.dims()), ", but it has shape ",
           to_string(view.dims()));
}

void check_parameter(std::string_view function, std::string_view name, const TensorView& parameter,
                     const TensorView& x) {
  check_dtype(function, name, parameter, DType::f32);
  check_shape(function, name, parameter, {x.shape[x.rank - 1]});
  check_memory(function, name, parameter);
}

void check_eps(std::string_view function, double eps) {
  if (!(eps >= 0.0 && std::isfinite(eps))) refuse(function, "eps must be 0 or more, got ", eps);
}

/// The rows of a view, in runs along its second-last dimension, within which rows have one stride.
class RowsOf {
 public:
  explicit RowsOf(const TensorView& view) : view_(view) {
    for (int i = 0; i + 1 < view.rank; ++i) count_ *= view.shape[i];
  }
  std::int64_t count() const { return count_; }
  std::int64_t dim() const { return view_.shape[view_.rank - 1]; }
  /// The number of rows from `row` on that are one stride apart, and that stride.
  std::int64_t run(std::int64_t row) const { return view_.rank < 2 ? 1 : length() - row % length(); }
  std::int64_t stride() const { return view_.rank < 2 ? 0 : view_.strides[view_.rank - 2]; }
  const float* at(std::int64_t row) const {
    std::int64_t offset = 0;
    for (int i = view_.rank - 2; i >= 0; row /= view_.shape[i--])
      offset += row % view_.shape[i] * view_.strides[i];
    return view_.as<float>() + offset;
  }

 private:
  std::int64_t length() const { return view_.shape[view_.rank - 2]; }
  TensorView view_;
  std::int64_t count_ = 1;
};

/// Calls body(x, y, rows) for runs of rows that have one stride in x and in y.
template <class Body>
void for_runs(const TensorView& x, const MutableTensorView& y, const Body& body) {
  const RowsOf from(x), to(y);
  if (from.dim() == 0) return;
  for_blocks(from.count(), from.dim(), [&](std::int64_t row, std::int64_t row_end) {
    while (row < row_end) {
      const std::int64_t rows = std::min(from.run(row), row_end - row);
      body(from.at(row), const_cast<float*>(to.at(row)), rows);
      row += rows;
    }
  });
}

std::int64_t stride_of_rows(const TensorView& view) { return RowsOf(view).stride(); }

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

/// f'(x).
double slope_of(Activation activation, double x) {
  switch (activation) {
    case Activation::none:
      return 1.0;
    case Activation::relu:
      return x > 0.0 ? 1.0 : 0.0;
    case Activation::gelu:  // Phi(x) + x phi(x)
      return 0.5 * std::erfc(-x * std::numbers::sqrt2 / 2.0) +
             x * std::exp(-0.5 * x * x) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
    case Activation::gelu_tanh: {  // x sigmoid(v), v = 2 sqrt(2 / pi) (x + 0.044715 x^3)
      const double factor = 2.0 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
      const double s = sigmoid(factor * (x + 0.044715 * x * x * x));
      return s + x * s * (1.0 - s) * factor * (1.0 + 3.0 * 0.044715 * x * x);
    }
    case Activation::quick_gelu: {
      const double s = sigmoid(1.702 * x);
      return s + 1.702 * x * s * (1.0 - s);
    }
    case Activation::silu: {
      const double s = sigmoid(x);
      return s + x * s * (1.0 - s);
    }
    case Activation::tanh:
      return 1.0 - std::tanh(x) * std::tanh(x);
  }
  return 0.0;
}

}  // namespace

void activate(Activation activation, const TensorView& x, const MutableTensorView& y) {
  check_f32("activate", "x", x);
  check_like("activate", "y", y, x);
  const std::int64_t dim = x.shape[x.rank - 1];
  const LayerKernels& kernels = layer_kernels();
  for_runs(x, y, [&](const float* from, float* to, std::int64_t rows) {
    for (std::int64_t i = 0; i < rows; ++i)
      kernels.activate(activation, from + i * stride_of_rows(x), nullptr, to + i * stride_of_rows(y), dim);
  });
}

void activate_backward(Activation activation, const TensorView& x, const TensorView& dout,
                       const MutableTensorView& dx) {
  check_f32("activate_backward", "x", x);
  check_like("activate_backward", "dout", dout, x);
  check_like("activate_backward", "dx", dx, x);
  const RowsOf from(x), gradients(dout), to(dx);
  for_blocks(from.count(), from.dim(), [&](std::int64_t row, std::int64_t row_end) {
    for (; row < row_end; ++row)
      for (std::int64_t i = 0; i < from.dim(); ++i)
        const_cast<float*>(to.at(row))[i] =
            static_cast<float>(slope_of(activation, from.at(row)[i]) * gradients.at(row)[i]);
  });
}

void activate_gated(Activation activation, const TensorView& gate, const TensorView& x,
                    const MutableTensorView& y) {
  check_f32("activate_gated", "x", x);
  check_like("activate_gated", "gate", gate, x);
  check_like("activate_gated", "y", y, x);
  const RowsOf gates(gate), from(x), to(y);
  const LayerKernels& kernels = layer_kernels();
  for_blocks(from.count(), from.dim(), [&](std::int64_t row, std::int64_t row_end) {
    for (; row < row_end; ++row)
      kernels.activate(activation, gates.at(row), from.at(row), const_cast<float*>(to.at(row)), from.dim());
  });
}

void layer_norm(const TensorView& x, const TensorView& scale, const TensorView& shift, const MutableTensorView& y,
                double eps) {
  check_f32("layer_norm", "x", x);
  check_like("layer_norm", "y", y, x);
  check_parameter("layer_norm", "scale", scale, x);
  check_parameter("layer_norm", "shift", shift, x);
  check_eps("layer_norm", eps);
  const LayerKernels& kernels = layer_kernels();
  for_runs(x, y, [&](const float* from, float* to, std::int64_t rows) {
    kernels.layer_norm({.dim = x.shape[x.rank - 1],
                        .eps = eps,
                        .x = from,
                        .x_stride = stride_of_rows(x),
                        .scale = scale.as<float>(),
                        .shift = shift.as<float>(),
                        .y = to,
                        .y_stride = stride_of_rows(y)},
                       0, rows);
  });
}

void rms_norm(const TensorView& x, const TensorView& scale, const MutableTensorView& y, double eps) {
  check_f32("rms_norm", "x", x);
  check_like("rms_norm", "y", y, x);
  check_parameter("rms_norm", "scale", scale, x);
  check_eps("rms_norm", eps);
  const LayerKernels& kernels = layer_kernels();
  for_runs(x, y, [&](const float* from, float* to, std::int64_t rows) {
    kernels.rms_norm({.dim = x.shape[x.rank - 1],
                      .eps = eps,
                      .x = from,
                      .x_stride = stride_of_rows(x),
                      .scale = scale.as<float>(),
                      .y = to,
                      .y_stride = stride_of_rows(y)},
                     0, rows);
  });
}

}  // namespace saccade
