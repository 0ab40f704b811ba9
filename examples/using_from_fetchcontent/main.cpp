// Causal self-attention of three tokens, by a program that builds saccade as a part of itself.
#include <saccade/saccade.h>

#include <iostream>

int main() {
  const auto x = saccade::Tensor::of<float>({{0.43f, 0.15f, 0.89f}, {0.55f, 0.87f, 0.66f}, {0.57f, 0.85f, 0.64f}});
  const saccade::Tensor o = saccade::attention(x, x, x, {.scale = 1.0, .causal = saccade::Causal::top_left});
  std::cout << saccade::to_string(o) << '\n';
}
