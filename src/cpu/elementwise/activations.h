// Activations, element by element.
#pragma once

#include "cpu/simd/elements.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

inline constexpr float kGeluFactor = 1.5957691216057307f;  // 2 sqrt(2 / pi)
inline constexpr float kGeluCubic = kGeluFactor * 0.044715f;

/// 0.5 (1 + tanh(v / 2)) = 1 / (1 + e^-v), in terms of e^-|v|, which cannot overflow. With tanh, few bits would be
/// left where it is near -1.
struct Sigmoid {
  Vec exponential, inverse;  // e^-|v| and 1 / (1 + e^-|v|)
  Vec value;
};

SACCADE_INLINE Sigmoid sigmoid(Vec v) {
  const Vec e = exp2(canonical_nan(mul(abs(v), broadcast(-kLog2E))));
  const Vec inverse = div(broadcast(1.0f), add(e, broadcast(1.0f)));
  return {e, inverse, select(less(v, zero()), mul(e, inverse), inverse)};
}

struct Relu {
  SACCADE_INLINE Vec operator()(Vec x) const { return select(less(x, zero()), zero(), x); }
};

/// x Phi(x). The tail Phi(-|x|) is e^(-x^2 / 2) times a polynomial of 1 / (1 + 0.3 |x|), fitted for |x| <= 14 with
/// a relative error of 6e-8: where erf is near -1, few bits would be left of 1 + erf.
struct Gelu {
  SACCADE_INLINE Vec operator()(Vec x) const {
    static constexpr float kTerms[] = {0.03837824213910902f,  -0.16916590785921726f, 0.22865971341802574f,
                                       -0.07650611522094619f, 0.1425353121856941f,   0.09468359825510245f,
                                       0.12192032649552109f,  0.11948769070097635f,  7.168796629384742e-06f};
    const Vec magnitude = min(broadcast(14.0f), abs(x));
    const Vec t = div(broadcast(1.0f), fma(magnitude, broadcast(0.3f), broadcast(1.0f)));
    Vec p = broadcast(kTerms[0]);
    SACCADE_UNROLL
    for (int i = 1; i < 9; ++i) p = fma(p, t, broadcast(kTerms[i]));
    const Vec square = mul(magnitude, magnitude);
    const Vec tail = mul(p, exp2(canonical_nan(mul(square, broadcast(-0.5f * kLog2E)))));
    return mul(x, select(less(x, zero()), tail, sub(broadcast(1.0f), tail)));
  }
};

struct GeluTanh {
  SACCADE_INLINE Vec operator()(Vec x) const {
    const Vec v = mul(x, fma(mul(x, x), broadcast(kGeluCubic), broadcast(kGeluFactor)));
    return mul(x, sigmoid(v).value);
  }
};

struct QuickGelu {
  SACCADE_INLINE Vec operator()(Vec x) const { return mul(x, sigmoid(mul(x, broadcast(1.702f))).value); }
};

struct Silu {
  SACCADE_INLINE Vec operator()(Vec x) const { return mul(x, sigmoid(x).value); }
};

struct Tanh {
  SACCADE_INLINE Vec operator()(Vec x) const { return tanh(x); }
};

struct Identity {
  SACCADE_INLINE Vec operator()(Vec x) const { return x; }
};

template <class F>
void with_activation(Activation activation, const F& f) {
  switch (activation) {
    case Activation::none:
      return f(Identity{});
    case Activation::relu:
      return f(Relu{});
    case Activation::gelu:
      return f(Gelu{});
    case Activation::gelu_tanh:
      return f(GeluTanh{});
    case Activation::quick_gelu:
      return f(QuickGelu{});
    case Activation::silu:
      return f(Silu{});
    case Activation::tanh:
      return f(Tanh{});
  }
}

/// y = f(x), or f(x) times `factors` if these are given; y may be x or the factors.
inline void activate(Activation activation, const float* x, const float* factors, float* y, std::int64_t count) {
  with_activation(activation, [&](auto f) {
    if (factors == nullptr)
      for (std::int64_t i = 0; i < count; i += kWidth)
        store_part(y + i, count - i, f(load_part(x + i, count - i)));
    else
      for (std::int64_t i = 0; i < count; i += kWidth)
        store_part(y + i, count - i, mul(f(load_part(x + i, count - i)), load_part(factors + i, count - i)));
  });
}

/// d/dx x s(v) = s + x v' s (1 - s), with s (1 - s) = e^-|v| / (1 + e^-|v|)^2.
inline void gelu_backward(const float* x, const float* dout, float* dx, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += kWidth) {
    // The derivative is 1 above 30 and 0 below -30; the bounds keep v' finite. A NaN passes.
    const Vec a = min(broadcast(30.0f), max(broadcast(-30.0f), load_part(x + i, count - i)));
    const Vec square = mul(a, a);
    const Vec v = mul(a, fma(square, broadcast(kGeluCubic), broadcast(kGeluFactor)));
    const Vec slope = fma(square, broadcast(3.0f * kGeluCubic), broadcast(kGeluFactor));
    const Sigmoid s = sigmoid(v);
    const Vec derivative = fma(mul(a, slope), mul(mul(s.exponential, s.inverse), s.inverse), s.value);
    store_part(dx + i, count - i, mul(load_part(dout + i, count - i), derivative));
  }
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
