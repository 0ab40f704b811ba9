#include "saccade/linear.h"

#include <algorithm>

#include "backend/backend.h"
#include "core/check.h"
#include "core/parallel.h"
#include "nn/strides.h"

namespace saccade {
namespace {

constexpr std::string_view kLinear = "linear", kLinearBackward = "linear_backward";

[[gnu::cold, gnu::noinline]] void check_operand(std::string_view function, std::string_view name,
                                                const TensorView& view) {
  if (view.rank == 0) refuse(function, name, " must have at least one dimension");
  if (view.dtype != DType::f32 && view.dtype != DType::bf16 && view.dtype != DType::f16)
    refuse(function, name, " must be f32, bf16 or f16, but it is ", name_of(view.dtype));
  check_memory(function, name, view);
}

/// Checks that a result has the type of x, or f32.
[[gnu::cold, gnu::noinline]] void check_result_type(std::string_view function, std::string_view name,
                                                    const TensorView& view, const TensorView& x) {
  if (view.dtype == x.dtype || view.dtype == DType::f32) return;
  refuse(function, name, " must be ", name_of(x.dtype), " as x is, or f32, but it is ", name_of(view.dtype));
}

/// The checks that linear() and its gradients share: x, the weight, and `y`, which is y or its gradient. Inlined
/// to avoid passing the names: that takes 5 of the 25 ns of a 6 x 3 by 3 x 4 product.
[[gnu::always_inline]] inline void check(std::string_view function, const TensorView& x, const TensorView& weight,
                                         std::string_view y_name, const TensorView& y,
                                         const LinearOptions& options) {
  if (!is_usual_f32(x)) check_operand(function, "x", x);
  if (!is_usual_f32(weight)) check_operand(function, "weight", weight);
  if (!is_usual_f32(y)) check_operand(function, y_name, y);
  if (weight.rank != 2) refuse(function, "weight must have rank 2, but it has shape ", to_string(weight.dims()));
  if (weight.dtype != x.dtype)
    refuse(function, "weight must be ", name_of(x.dtype), " as x is, but it is ", name_of(weight.dtype));
  if (y.dtype != x.dtype) check_result_type(function, y_name, y, x);
  const bool in_out = options.weight_layout == WeightLayout::in_out;
  const std::int64_t d_in = weight.shape[in_out ? 0 : 1], d_out = weight.shape[in_out ? 1 : 0];
  if (x.shape[x.rank - 1] != d_in)
    refuse(function, "x has d_in ", x.shape[x.rank - 1], " (shape ", to_string(x.dims()), ") but weight takes ",
           d_in, " (shape ", to_string(weight.dims()), ")");
  if (y.rank != x.rank || y.shape[y.rank - 1] != d_out || !same_outer_lengths(x, y))
    refuse(function, y_name, " must have the shape of x with d_out ", d_out, " last, but x has shape ",
           to_string(x.dims()), " and ", y_name, " has shape ", to_string(y.dims()));
  if (options.num_threads < 0) refuse(function, "num_threads must be 0 or more, got ", options.num_threads);
}

void check_bias(const TensorView& bias, std::int64_t d_out, const TensorView& x) {
  check_result_type(kLinear, "bias", bias, x);
  check_shape(kLinear, "bias", bias, {d_out});
  check_memory(kLinear, "bias", bias);
}

/// Checks that a gradient, if given, has the shape of its tensor.
void check_gradient(std::string_view name, const TensorView& gradient, std::string_view of_name,
                    const TensorView& of) {
  if (!gradient) return;
  check_operand(kLinearBackward, name, gradient);
  check_result_type(kLinearBackward, name, gradient, of);
  if (gradient.rank != of.rank || !std::ranges::equal(gradient.dims(), of.dims()))
    refuse(kLinearBackward, name, " must have the shape of ", of_name, ", ", to_string(of.dims()),
           ", but it has shape ", to_string(gradient.dims()));
}

/// x and y have a single stride.
ProductParams params_of(const TensorView& x, const TensorView& weight, const MutableTensorView& y,
                        const LinearOptions& options) {
  const bool in_out = options.weight_layout == WeightLayout::in_out;
  return {.rows = row_count(x),
          .depth = weight.shape[in_out ? 0 : 1],
          .columns = weight.shape[in_out ? 1 : 0],
          .dtype = x.dtype,
          .a = x.data,
          .a_row_stride = row_stride(x),
          .a_depth_stride = 1,
          .b = weight.data,
          .b_depth_stride = in_out ? weight.strides[0] : 1,
          .b_column_stride = in_out ? 1 : weight.strides[0],
          .bias = static_cast<const float*>(options.bias.data),
          .c_dtype = y.dtype,
          .c = y.mutable_data(),
          .c_stride = row_stride(y)};
}

void run(const ProductParams& p) {
  if (p.rows > 0 && p.columns > 0) active_backend().product(p);
}

/// c [columns of a, columns of b] = a^T b, or adds it to c, which is f32. a and b have a single stride and
/// equally many rows.
void sum_over_rows(const TensorView& a, const TensorView& b, const MutableTensorView& c, bool adds) {
  run({.rows = a.shape[a.rank - 1],
       .depth = row_count(a),
       .columns = b.shape[b.rank - 1],
       .dtype = a.dtype,
       .a = a.data,
       .a_row_stride = 1,
       .a_depth_stride = row_stride(a),
       .b = b.data,
       .b_depth_stride = row_stride(b),
       .b_column_stride = 1,
       .adds = adds,
       .c = c.mutable_data(),
       .c_stride = row_stride(c)});
}

/// 1 in the type of a tensor.
const void* one_of(DType dtype) {
  static constexpr float kOne = 1.0F;
  static constexpr bfloat16 kBf16One = bfloat16::from_bits(0x3f80);
  static constexpr float16 kF16One = float16::from_bits(0x3c00);
  return dtype == DType::bf16 ? static_cast<const void*>(&kBf16One)
                              : (dtype == DType::f16 ? static_cast<const void*>(&kF16One) : &kOne);
}

/// Computes dweight and dbias, of f32, if given.
void sum_gradients(const TensorView& x, const TensorView& dout, const LinearGradients& gradients, bool adds,
                   const LinearOptions& options) {
  if (row_count(x) > 0 && !(has_single_stride(x) && has_single_stride(dout))) {
    for (std::int64_t i = 0; i < x.shape[0]; ++i)
      sum_gradients(x.select(0, i), dout.select(0, i), gradients, adds || i > 0, options);
    return;
  }
  if (gradients.dweight) {
    const bool in_out = options.weight_layout == WeightLayout::in_out;
    sum_over_rows(in_out ? x : dout, in_out ? dout : x, gradients.dweight, adds);
  }
  if (gradients.dbias) {
    TensorView ones(one_of(dout.dtype), dout.dtype, Shape{row_count(dout), 1}, Shape{0, 1});
    sum_over_rows(ones, dout, gradients.dbias, adds);
  }
}

/// A sum in f32, converted at the end to a gradient of any type.
class ExactSum {
 public:
  ExactSum(const MutableTensorView& gradient, bool adds) : gradient_(gradient) {
    if (!converts()) return;
    sum_ = adds ? Tensor::copy_of(gradient, DType::f32)
                : Tensor::uninitialized(DType::f32, Shape(gradient.dims().begin(), gradient.dims().end()));
  }
  MutableTensorView view() { return converts() ? sum_.mutable_view() : gradient_; }
  void finish() {
    if (converts()) copy(sum_, gradient_);
  }

 private:
  bool converts() const { return gradient_ && gradient_.dtype != DType::f32; }

  MutableTensorView gradient_;
  Tensor sum_;
};

}  // namespace

void linear(const TensorView& x, const TensorView& weight, const MutableTensorView& y,
            const LinearOptions& options) {
  check(kLinear, x, weight, "y", y, options);
  if (options.bias) {
    check_bias(options.bias, y.shape[y.rank - 1], x);
    if (options.bias.dtype != DType::f32) {
      const Tensor bias = Tensor::copy_of(options.bias, DType::f32);
      return linear(x, weight, y,
                    {.weight_layout = options.weight_layout, .bias = bias, .num_threads = options.num_threads});
    }
  }
  if (!has_single_stride(x) || !has_single_stride(y)) {
    for (std::int64_t i = 0; i < x.shape[0]; ++i) linear(x.select(0, i), weight, y.select(0, i), options);
    return;
  }
  const ProductParams p = params_of(x, weight, y, options);
  // No back end uses threads for so small a product.
  if (p.rows <= 64 && p.depth <= 16 && p.columns <= 16) return run(p);
  const ThreadLimit limit(options.num_threads);
  run(p);
}

Tensor linear(const TensorView& x, const TensorView& weight, const LinearOptions& options) {
  if (x.rank == 0 || weight.rank != 2)
    refuse(kLinear, "x must have at least one dimension and weight two, but they have shapes ",
           to_string(x.dims()), " and ", to_string(weight.dims()));
  Shape shape(x.dims().begin(), x.dims().end());
  shape.back() = weight.shape[options.weight_layout == WeightLayout::in_out ? 1 : 0];
  Tensor y = Tensor::uninitialized(x.dtype, shape);
  linear(x, weight, y, options);
  return y;
}

void linear_backward(const TensorView& x, const TensorView& weight, const TensorView& dout,
                     const LinearGradients& gradients, const LinearOptions& options) {
  check(kLinearBackward, x, weight, "dout", dout, options);
  if (dout.dtype != x.dtype)
    refuse(kLinearBackward, "dout must be ", name_of(x.dtype), " as x is, but it is ", name_of(dout.dtype));
  check_gradient("dx", gradients.dx, "x", x);
  check_gradient("dweight", gradients.dweight, "weight", weight);
  if (gradients.dbias) {
    check_operand(kLinearBackward, "dbias", gradients.dbias);
    check_result_type(kLinearBackward, "dbias", gradients.dbias, x);
    check_shape(kLinearBackward, "dbias", gradients.dbias, {dout.shape[dout.rank - 1]});
  }
  const ThreadLimit limit(options.num_threads);
  if (gradients.dx) {
    const bool in_out = options.weight_layout == WeightLayout::in_out;
    linear(dout, weight, gradients.dx,
           {.weight_layout = in_out ? WeightLayout::out_in : WeightLayout::in_out,
            .num_threads = options.num_threads});
  }
  ExactSum dweight(gradients.dweight, gradients.accumulate), dbias(gradients.dbias, gradients.accumulate);
  sum_gradients(x, dout, {.dweight = dweight.view(), .dbias = dbias.view()}, gradients.accumulate, options);
  dweight.finish(), dbias.finish();
}

}  // namespace saccade
