// Elementary functions on Vec. Relative errors are the largest over all floats of the stated range.
#pragma once

#include "cpu/prelude.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

inline constexpr float kLog2E = 1.44269504088896340736f;
inline constexpr float kLn2 = 0.693147180559945309417f;
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// 1.5 * 2^23: added to a small float it leaves that float's nearest integer in the low bits of the sum.
inline constexpr float kRoundToInteger = 12582912.0f;

/// NaN with payload bits cleared, which exp2 keeps; everything else as it is.
SACCADE_INLINE Vec canonical_nan(Vec x) {
  return select(is_nan(x), broadcast(std::numeric_limits<float>::quiet_NaN()), x);
}

/// exp2 in two halves, so that a kernel can put other work between them. 2^x = 2^n * 2^f with n the nearest
/// integer; 2^f by a polynomial with p(0) = 1 exactly (minimax under that constraint; relative error 1.7e-7). So
/// exp2(0) is exactly 1, and x <= -127 gives exactly 0: there n = -127 and f = 0, and the bits of 1.0 minus
/// 127 << 23 are those of 0. Valid for x < 127; NaN stays NaN when its low payload bits are 0 (see canonical_nan).
struct Exp2 {
  Vec rounded, fraction, value;
};
inline constexpr int kExp2Degree = 5;
inline constexpr float kExp2Coefficients[kExp2Degree + 1] = {0x1.5bba14p-10f, 0x1.3cea88p-7f, 0x1.c6b752p-5f,
                                                             0x1.ebf9bcp-3f,  0x1.62e42ap-1f, 1.0f};

SACCADE_INLINE Exp2 exp2_begin(Vec x) {
  const Vec clamped = max(broadcast(-127.0f), x);  // in this order a NaN passes
  const Vec rounded = add(clamped, broadcast(kRoundToInteger));
  const Vec fraction = sub(clamped, sub(rounded, broadcast(kRoundToInteger)));
  return {rounded, fraction, broadcast(kExp2Coefficients[0])};
}
SACCADE_INLINE void exp2_step(Exp2& e, int step) {
  e.value = fma(e.value, e.fraction, broadcast(kExp2Coefficients[step + 1]));
}
SACCADE_INLINE Vec exp2_end(const Exp2& e) { return scale_by_exponent(e.value, e.rounded); }

SACCADE_INLINE Vec exp2(Vec x) {
  Exp2 e = exp2_begin(x);
  SACCADE_UNROLL
  for (int step = 0; step < kExp2Degree; ++step) exp2_step(e, step);
  return exp2_end(e);
}

/// tanh with a small relative error everywhere: an odd polynomial (Cephes tanhf) up to 0.625, beyond it
/// 1 - 2 / (e^2x + 1).
SACCADE_INLINE Vec tanh(Vec x) {
  const Vec magnitude = abs(x);
  const Vec square = mul(x, x);
  Vec p = broadcast(-5.70498872745e-3f);
  p = fma(p, square, broadcast(2.06390887954e-2f));
  p = fma(p, square, broadcast(-5.37397155531e-2f));
  p = fma(p, square, broadcast(1.33314422036e-1f));
  p = fma(p, square, broadcast(-3.33332819422e-1f));
  const Vec small = fma(mul(p, square), x, x);
  // Beyond 10 the result is 1 in single precision; the bound keeps exp2 in its range. NaN passes.
  const Vec bounded = min(broadcast(10.0f), magnitude);
  const Vec e = exp2(mul(bounded, broadcast(2.0f * kLog2E)));
  const Vec large = sub(broadcast(1.0f), div(broadcast(2.0f), add(e, broadcast(1.0f))));
  return select(less(magnitude, broadcast(0.625f)), small, copysign(large, x));
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
