#include "saccade/linear.h"

#include <utility>

#include "core/check.h"
#include "nn/layers/rows.h"
#include "saccade/layers.h"

namespace saccade {

Linear::Linear(std::int64_t d_in, std::int64_t d_out, bool bias) : Module("Linear") {
  if (d_in < 1 || d_out < 1) refuse(name(), "d_in and d_out must be at least 1, got ", d_in, " and ", d_out);
  weight_.value = Tensor(DType::f32, {d_out, d_in});
  if (bias) bias_.value = Tensor(DType::f32, {d_out});
}

Linear::Linear(std::int64_t d_in, std::int64_t d_out, TorchGenerator& generator, bool bias)
    : Linear(d_in, d_out, bias) {
  TorchGenerator::Linear drawn = generator.linear(d_in, d_out, bias);
  weight_.value = std::move(drawn.weight);
  if (bias) bias_.value = std::move(drawn.bias);
}

std::vector<Module::Part> Linear::parts() {
  std::vector<Part> result{Part("weight", weight_)};
  if (bias_.value.rank() != 0) result.emplace_back("bias", bias_);
  return result;
}

Tensor Linear::product(const TensorView& x) const {
  return linear(x, weight_.value, {.bias = bias_.value.rank() != 0 ? bias_.value.view() : TensorView()});
}

Tensor Linear::forward(const TensorView& x) {
  check_input(name(), x, d_in());
  if (training() || x.strides[x.rank - 1u] != 1) return forward(Tensor::copy_of(x));
  return product(x);
}

Tensor Linear::forward(Tensor&& x) {
  check_input(name(), x, d_in());
  Tensor y = product(x);
  if (training()) x_ = std::move(x);
  return y;
}

Tensor Linear::backward(const TensorView& dout) {
  require_forward(name(), x_.rank() != 0);
  Shape shape = x_.shape();
  shape.back() = d_out();
  check_dout(name(), dout, shape);
  const Tensor x = std::exchange(x_, Tensor());
  Tensor dx = Tensor::uninitialized(DType::f32, x.shape());
  linear_backward(x, weight_.value, dout,
                  {.dx = dx,
                   .dweight = weight_.gradient_to_add_to(),
                   .dbias = bias_.value.rank() != 0 ? bias_.gradient_to_add_to() : MutableTensorView(),
                   .accumulate = true});
  return dx;
}

}  // namespace saccade
