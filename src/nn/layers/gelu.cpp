#include <utility>

#include "backend/layer_kernels.h"
#include "core/check.h"
#include "core/parallel.h"
#include "nn/layers/rows.h"
#include "saccade/layers.h"

namespace saccade {

Gelu::Gelu() : Module("Gelu") {}

std::vector<Module::Part> Gelu::parts() { return {}; }

Tensor Gelu::forward(const TensorView& x) {
  check_input(name(), x);
  return forward(Tensor::copy_of(x));
}

Tensor Gelu::forward(Tensor&& x) {
  check_input(name(), x);
  Tensor y = training() ? Tensor::uninitialized(DType::f32, x.shape()) : Tensor();
  const LayerKernels& kernels = layer_kernels();
  float* const from = x.mutable_view().as<float>();
  float* const to = training() ? y.mutable_view().as<float>() : from;
  for_blocks(x.size(), 1, [&](std::int64_t i, std::int64_t end) {
    kernels.activate(Activation::gelu_tanh, from + i, nullptr, to + i, end - i);
  });
  if (!training()) return std::move(x);
  x_ = std::move(x);
  return y;
}

Tensor Gelu::backward(const TensorView& dout) {
  require_forward(name(), x_.rank() != 0);
  check_dout(name(), dout, x_.shape());
  const Rows from(dout);
  // The gradient overwrites x.
  Tensor dx = std::exchange(x_, Tensor());
  const LayerKernels& kernels = layer_kernels();
  float* const to = dx.mutable_view().as<float>();
  for_blocks(dx.size(), 1, [&](std::int64_t i, std::int64_t end) {
    kernels.gelu_backward(to + i, from.data() + i, to + i, end - i);
  });
  return dx;
}

}  // namespace saccade
