#include <algorithm>
#include <cmath>
#include <utility>

#include "backend/layer_kernels.h"
#include "core/ceil_div.h"
#include "core/check.h"
#include "core/parallel.h"
#include "nn/layers/rows.h"
#include "saccade/layers.h"

namespace saccade {

LayerNorm::LayerNorm(std::int64_t dim, double eps) : Module("LayerNorm"), eps_(eps) {
  if (dim < 1) refuse(name(), "dim must be at least 1, got ", dim);
  if (!(eps >= 0.0 && std::isfinite(eps))) refuse(name(), "eps must be 0 or more, got ", eps);
  scale_.value = Tensor(DType::f32, {dim});
  std::ranges::fill(scale_.value.values<float>(), 1.0f);
  shift_.value = Tensor(DType::f32, {dim});
}

std::vector<Module::Part> LayerNorm::parts() { return {Part("scale", scale_), Part("shift", shift_)}; }

Tensor LayerNorm::forward(const TensorView& x) {
  check_input(name(), x, dim());
  const Rows from(x);
  Tensor y = Tensor::uninitialized(DType::f32, shape_of(x));
  LayerNormParams params{.dim = dim(),
                         .eps = eps_,
                         .x = from.data(),
                         .x_stride = dim(),
                         .scale = scale_.value.view().as<float>(),
                         .shift = shift_.value.view().as<float>(),
                         .y = y.mutable_view().as<float>(),
                         .y_stride = dim()};
  if (training()) {
    normalised_ = Tensor::uninitialized(DType::f32, y.shape());
    inverse_.resize(static_cast<std::size_t>(from.rows()));
    params.normalised = normalised_.mutable_view().as<float>();
    params.inverse = inverse_.data();
  }
  const LayerKernels& kernels = layer_kernels();
  for_blocks(from.rows(), dim(),
             [&](std::int64_t row, std::int64_t row_end) { kernels.layer_norm(params, row, row_end); });
  return y;
}

Tensor LayerNorm::backward(const TensorView& dout) {
  require_forward(name(), normalised_.rank() != 0);
  check_dout(name(), dout, normalised_.shape());
  const Tensor normalised = std::exchange(normalised_, Tensor());
  const Rows from(dout);
  Tensor dx = Tensor::uninitialized(DType::f32, normalised.shape());
  const LayerNormBackwardParams params{.dim = dim(),
                                       .normalised = normalised.view().as<float>(),
                                       .inverse = inverse_.data(),
                                       .scale = scale_.value.view().as<float>(),
                                       .dout = from.data(),
                                       .dx = dx.mutable_view().as<float>()};
  const LayerKernels& kernels = layer_kernels();
  // Each block has its own sums; these are added in the order of the blocks.
  const std::int64_t block = rows_of_block(dim()), blocks = ceil_div(from.rows(), block);
  Tensor sums(DType::f32, {blocks, 2, dim()});
  float* const sums_of_blocks = sums.mutable_view().as<float>();
  for_blocks(from.rows(), dim(), [&](std::int64_t row, std::int64_t row_end) {
    kernels.layer_norm_backward(params, row, row_end, sums_of_blocks + row / block * 2 * dim());
  });
  for (std::int64_t i = 1; i < blocks; ++i)
    kernels.add_to(sums_of_blocks + i * 2 * dim(), sums_of_blocks, 2 * dim());
  if (blocks > 0) {
    kernels.add_to(sums_of_blocks, scale_.gradient_to_add_to().as<float>(), dim());
    kernels.add_to(sums_of_blocks + dim(), shift_.gradient_to_add_to().as<float>(), dim());
  }
  return dx;
}

}  // namespace saccade
