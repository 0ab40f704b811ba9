// Elementary functions on Vec. Relative errors are the largest over all floats of the stated range.
#pragma once

#include "cpu/simd/prelude.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

inline constexpr Scalar kLog2E = static_cast<Scalar>(1.4426950408889634073599246810019);
inline constexpr Scalar kLn2 = static_cast<Scalar>(0.69314718055994530941723212145818);
inline constexpr Scalar kInfinity = std::numeric_limits<Scalar>::infinity();
inline constexpr bool kIsDouble = sizeof(Scalar) == sizeof(double);

/// Clears the payload bits of a NaN, so that exp2 keeps it NaN; other numbers do not change.
SACCADE_INLINE Vec canonical_nan(Vec x) {
  return select(is_nan(x), broadcast(std::numeric_limits<Scalar>::quiet_NaN()), x);
}

/// 2^x; see exp2/table.h and exp2/polynomial.h.
SACCADE_INLINE Vec exp2(Vec x) { return exp2_end(exp2_begin(x)); }

/// tanh with a small relative error everywhere: up to 0.625 the approximations of Cephes (the polynomial of tanhf,
/// for doubles the quotient of tanh), beyond it 1 - 2 / (e^2x + 1).
SACCADE_INLINE Vec tanh(Vec x) {
  const Vec magnitude = abs(x);
  const Vec square = mul(x, x);
  Vec p;
  if constexpr (kIsDouble) {
    p = broadcast(Scalar(-9.64399179425052238628e-1));
    p = fma(p, square, broadcast(Scalar(-9.92877231001918586564e1)));
    p = fma(p, square, broadcast(Scalar(-1.61468768441708447952e3)));
    Vec q = add(square, broadcast(Scalar(1.12811678491632931402e2)));
    q = fma(q, square, broadcast(Scalar(2.23548839060100448583e3)));
    q = fma(q, square, broadcast(Scalar(4.84406305325125486048e3)));
    p = div(p, q);
  } else {
    p = broadcast(Scalar(-5.70498872745e-3));
    p = fma(p, square, broadcast(Scalar(2.06390887954e-2)));
    p = fma(p, square, broadcast(Scalar(-5.37397155531e-2)));
    p = fma(p, square, broadcast(Scalar(1.33314422036e-1)));
    p = fma(p, square, broadcast(Scalar(-3.33332819422e-1)));
  }
  const Vec small = fma(mul(p, square), x, x);
  // Beyond 10 (doubles: 20) the result is 1; the bound keeps exp2 in its range. NaN passes, without its payload.
  const Vec bounded = canonical_nan(min(broadcast(kIsDouble ? Scalar{20} : Scalar{10}), magnitude));
  const Vec e = exp2(mul(bounded, broadcast(Scalar{2} * kLog2E)));
  const Vec large = sub(broadcast(Scalar{1}), div(broadcast(Scalar{2}), add(e, broadcast(Scalar{1}))));
  return select(less(magnitude, broadcast(Scalar(0.625))), small, copysign(large, x));
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
