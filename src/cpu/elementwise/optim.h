// One step of the optimizers of saccade/optim.h, elementwise. Memory bandwidth is the limit, so each number is
// read and written once.
#pragma once

#include "cpu/simd/elements.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

inline void adamw(const AdamWParams& p, const float* gradient, float* value, float* first, float* second,
                  std::int64_t count) {
  const Vec keep = broadcast(p.keep), one_minus_beta1 = broadcast(p.one_minus_beta1), beta2 = broadcast(p.beta2);
  const Vec one_minus_beta2 = broadcast(p.one_minus_beta2), step_size = broadcast(-p.step_size);
  const Vec root_of_correction2 = broadcast(p.root_of_correction2), eps = broadcast(p.eps);
  for (std::int64_t i = 0; i < count; i += kWidth) {
    const std::int64_t left = count - i;
    const Vec g = load_part(gradient + i, left), m = load_part(first + i, left);
    const Vec mean = fma(one_minus_beta1, sub(g, m), m);
    const Vec square = fma(mul(one_minus_beta2, g), g, mul(beta2, load_part(second + i, left)));
    store_part(first + i, left, mean);
    store_part(second + i, left, square);
    const Vec denominator = add(div(sqrt(square), root_of_correction2), eps);
    const Vec decayed = mul(load_part(value + i, left), keep);
    store_part(value + i, left, fma(step_size, div(mean, denominator), decayed));
  }
}

/// momentum: nullptr without momentum.
inline void sgd(const SgdParams& p, const float* gradient, float* value, float* momentum, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += kWidth) {
    const std::int64_t left = count - i;
    const Vec w = load_part(value + i, left);
    Vec g = load_part(gradient + i, left);
    if (p.weight_decay != 0) g = fma(broadcast(p.weight_decay), w, g);
    if (momentum) {
      Vec b = g;
      if (!p.is_first)
        b = fma(broadcast(p.one_minus_dampening), g, mul(broadcast(p.momentum), load_part(momentum + i, left)));
      store_part(momentum + i, left, b);
      g = p.nesterov ? fma(broadcast(p.momentum), b, g) : b;
    }
    store_part(value + i, left, fma(broadcast(-p.lr), g, w));
  }
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
