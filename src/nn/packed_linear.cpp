#include "saccade/packed_linear.h"

#include <algorithm>

#include "backend/backend.h"
#include "core/check.h"
#include "core/parallel.h"
#include "nn/strides.h"

namespace saccade {
namespace {

constexpr std::string_view kPackedLinear = "PackedLinear";

bool is_weight_type(DType dtype) { return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16; }

void check_operand_of(std::string_view name, const TensorView& view, std::int64_t width) {
  check_dtype(kPackedLinear, name, view, DType::f32);
  if (view.rank == 0 || view.shape[view.rank - 1] != width)
    refuse(kPackedLinear, name, " must be [..., ", width, "], but it has shape ", to_string(view.dims()));
  check_memory(kPackedLinear, name, view);
}

/// Calls the product for rows that have one stride each in x and y.
void multiply(const PackedProduct& weight, ProductParams p, const TensorView& x, const MutableTensorView& y) {
  if (!has_single_stride(x) || !has_single_stride(y)) {
    for (std::int64_t i = 0; i < x.shape[0]; ++i) multiply(weight, p, x.select(0, i), y.select(0, i));
    return;
  }
  p.rows = row_count(x);
  p.a = x.data, p.a_row_stride = row_stride(x), p.a_depth_stride = 1;
  p.c = y.mutable_data(), p.c_stride = row_stride(y);
  if (p.rows > 0) weight.run(p);
}

}  // namespace

PackedLinear::PackedLinear() = default;
PackedLinear::~PackedLinear() = default;
PackedLinear::PackedLinear(PackedLinear&&) noexcept = default;
PackedLinear& PackedLinear::operator=(PackedLinear&&) noexcept = default;

PackedLinear::PackedLinear(const TensorView& weight, const PackedLinearOptions& options)
    : activation_(options.activation) {
  if (weight.rank != 2 || weight.shape[0] < 1 || weight.shape[1] < 1)
    refuse(kPackedLinear, "weight must have rank 2 and no empty dimension, but it has shape ",
           to_string(weight.dims()));
  if (!is_weight_type(weight.dtype))
    refuse(kPackedLinear, "weight must be f32, bf16 or f16, but it is ", name_of(weight.dtype));
  check_memory(kPackedLinear, "weight", weight);
  const bool in_out = options.weight_layout == WeightLayout::in_out;
  d_in_ = weight.shape[in_out ? 0 : 1], d_out_ = weight.shape[in_out ? 1 : 0];
  if (options.bias) {
    check_shape(kPackedLinear, "bias", options.bias, {d_out_});
    if (!is_weight_type(options.bias.dtype))
      refuse(kPackedLinear, "bias must be f32, bf16 or f16, but it is ", name_of(options.bias.dtype));
    check_data(kPackedLinear, "bias", options.bias);
    bias_.resize(static_cast<std::size_t>(d_out_));
    copy(options.bias, MutableTensorView(bias_.data(), {d_out_}));
  }
  weight_ = active_backend().pack_product({.depth = d_in_,
                                           .columns = d_out_,
                                           .dtype = weight.dtype,
                                           .b = weight.data,
                                           .b_depth_stride = in_out ? weight.strides[0] : 1,
                                           .b_column_stride = in_out ? 1 : weight.strides[0]});
}

std::size_t PackedLinear::bytes() const { return weight_ ? weight_->bytes() : 0; }

void PackedLinear::run(const TensorView& x, const MutableTensorView& y, bool adds, int num_threads) const {
  if (!weight_) refuse(kPackedLinear, "this projection has no weight");
  check_operand_of("x", x, d_in_);
  check_operand_of("y", y, d_out_);
  if (x.rank != y.rank || !same_outer_lengths(x, y))
    refuse(kPackedLinear, "y must have the shape of x with d_out ", d_out_, " last, but x has shape ",
           to_string(x.dims()), " and y has shape ", to_string(y.dims()));
  if (num_threads < 0) refuse(kPackedLinear, "num_threads must be 0 or more, got ", num_threads);
  const ThreadLimit limit(num_threads);
  multiply(*weight_, {.bias = bias_.empty() ? nullptr : bias_.data(), .adds = adds, .activation = activation_}, x,
           y);
}

void PackedLinear::forward(const TensorView& x, const MutableTensorView& y, int num_threads) const {
  run(x, y, false, num_threads);
}

Tensor PackedLinear::forward(const TensorView& x, int num_threads) const {
  if (x.rank == 0) refuse(kPackedLinear, "x must have at least one dimension");
  Shape shape(x.dims().begin(), x.dims().end());
  shape.back() = d_out_;
  Tensor y = Tensor::uninitialized(DType::f32, shape);
  run(x, y, false, num_threads);
  return y;
}

void PackedLinear::add_to(const TensorView& x, const MutableTensorView& y, int num_threads) const {
  if (activation_ != Activation::none)
    refuse(kPackedLinear, "add_to has no activation, but this projection has one");
  run(x, y, true, num_threads);
}

Tensor PackedLinear::backward(const TensorView& x, const TensorView& dout, int num_threads) const {
  if (!weight_) refuse(kPackedLinear, "this projection has no weight");
  check_operand_of("x", x, d_in_);
  check_operand_of("dout", dout, d_out_);
  if (x.rank != dout.rank || !same_outer_lengths(x, dout))
    refuse(kPackedLinear, "dout must have the shape of x with d_out ", d_out_, " last, but x has shape ",
           to_string(x.dims()), " and dout has shape ", to_string(dout.dims()));
  Tensor weight = Tensor::uninitialized(DType::f32, {d_in_, d_out_});
  weight_->unpack(weight.values<float>().data());
  TensorView before = dout;  // the gradient before the activation
  Tensor sums;
  if (activation_ != Activation::none) {
    LinearOptions forward{.weight_layout = WeightLayout::in_out, .num_threads = num_threads};
    if (!bias_.empty()) forward.bias = TensorView(bias_.data(), {d_out_});
    sums = linear(x, weight, forward);
    activate_backward(activation_, sums, dout, sums);
    before = sums;
  }
  // dx = dout W^T: a projection with the transposed weight.
  return linear(before, weight, {.weight_layout = WeightLayout::out_in, .num_threads = num_threads});
}

}  // namespace saccade
