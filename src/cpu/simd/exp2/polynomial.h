// exp2 in two parts, by a polynomial, for instruction sets without a table lookup in registers. See table.h.
#pragma once

#include "cpu/simd/exp2/coefficients.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// 2^x is 0 for x up to this.
inline constexpr Scalar kExp2Lowest = std::is_same_v<Scalar, double> ? -1023 : -127;
/// The largest relative error where 2^x is a normal number.
inline constexpr double kExp2Error = Exp2Polynomial<Scalar>::kError;

/// exp2 in two parts, so that a kernel can put other work between them. 2^x = 2^n * 2^f with n the nearest
/// integer; 2^f by a polynomial. exp2(0) is exactly 1, and x <= -127 (doubles: -1023) gives exactly 0: there n =
/// -127 and f = 0, and the bits of 1.0 minus 127 << 23 are those of 0. Valid for x < 127; NaN stays NaN when its
/// low payload bits are 0 (see canonical_nan).
struct Exp2 {
  Vec rounded, fraction;
};

/// For x >= kExp2Lowest.
SACCADE_INLINE Exp2 exp2_begin_bounded(Vec x) {
  using Polynomial = Exp2Polynomial<Scalar>;
  const Vec rounded = add(x, broadcast(Polynomial::kRoundToInteger));
  return {rounded, sub(x, sub(rounded, broadcast(Polynomial::kRoundToInteger)))};
}
SACCADE_INLINE Exp2 exp2_begin(Vec x) {
  return exp2_begin_bounded(max(broadcast(kExp2Lowest), x));  // this order passes a NaN
}
SACCADE_INLINE Vec exp2_end(const Exp2& e) {
  using Polynomial = Exp2Polynomial<Scalar>;
  Vec p = broadcast(Polynomial::kCoefficients[0]);
  SACCADE_UNROLL
  for (int i = 1; i <= Polynomial::kDegree; ++i) p = fma(p, e.fraction, broadcast(Polynomial::kCoefficients[i]));
  return scale_by_exponent(p, e.rounded);
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
