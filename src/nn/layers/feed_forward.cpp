#include <utility>

#include "nn/layers/rows.h"
#include "saccade/layers.h"

namespace saccade {

FeedForward::FeedForward(std::int64_t dim, std::int64_t hidden)
    : Module("FeedForward"), first_(dim, hidden), second_(hidden, dim) {}

FeedForward::FeedForward(std::int64_t dim, std::int64_t hidden, TorchGenerator& generator)
    : Module("FeedForward"), first_(dim, hidden, generator), second_(hidden, dim, generator) {}

std::vector<Module::Part> FeedForward::parts() {
  return {Part("layers.0", first_), Part("layers.1", gelu_), Part("layers.2", second_)};
}

Tensor FeedForward::forward(const TensorView& x) {
  check_input(name(), x, dim());
  return second_.forward(gelu_.forward(first_.forward(x)));
}

Tensor FeedForward::forward(Tensor&& x) {
  check_input(name(), x, dim());
  return second_.forward(gelu_.forward(first_.forward(std::move(x))));
}

Tensor FeedForward::backward(const TensorView& dout) {
  return first_.backward(gelu_.backward(second_.backward(dout)));
}

}  // namespace saccade
