// Elementary functions on Vec. Relative errors are the largest over all floats of the stated range.
#pragma once

#include "cpu/prelude.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

inline constexpr Scalar kLog2E = static_cast<Scalar>(1.4426950408889634073599246810019);
inline constexpr Scalar kLn2 = static_cast<Scalar>(0.69314718055994530941723212145818);
inline constexpr Scalar kInfinity = std::numeric_limits<Scalar>::infinity();
inline constexpr bool kIsDouble = sizeof(Scalar) == sizeof(double);

/// 1.5 * 2^23 (doubles: 2^52): added to a small number it leaves that number's nearest integer in the low bits of
/// the sum.
inline constexpr Scalar kRoundToInteger = kIsDouble ? Scalar(0x1.8p52) : Scalar(0x1.8p23);

/// NaN with payload bits cleared, which exp2 keeps; everything else as it is.
SACCADE_INLINE Vec canonical_nan(Vec x) {
  return select(is_nan(x), broadcast(std::numeric_limits<Scalar>::quiet_NaN()), x);
}

/// The polynomial of exp2 on [-1/2, 1/2] without its last coefficient, which is 1: minimax in relative error under
/// that constraint.
struct Polynomial {
  int degree;
  Scalar coefficients[11];
};
inline constexpr Polynomial kExp2Float = {5,
                                          {Scalar(0x1.5bba14p-10), Scalar(0x1.3cea88p-7), Scalar(0x1.c6b752p-5),
                                           Scalar(0x1.ebf9bcp-3), Scalar(0x1.62e42ap-1)}};  // 1.7e-7
inline constexpr Polynomial kExp2Double = {
    11,
    {Scalar(0x1.e79bb6fc55606p-32), Scalar(0x1.e61b4f9a207f5p-28), Scalar(0x1.b5267cdfd91eep-24),
     Scalar(0x1.62bfc79d4b59fp-20), Scalar(0x1.ffcbfba980f96p-17), Scalar(0x1.4309130ed8cd5p-13),
     Scalar(0x1.5d87fe78cd6cfp-10), Scalar(0x1.3b2ab6fba011ap-7), Scalar(0x1.c6b08d7049fe8p-5),
     Scalar(0x1.ebfbdff82c5a4p-3), Scalar(0x1.62e42fefa39efp-1)}};  // 3.4e-18 before rounding
inline constexpr const Polynomial& kExp2 = kIsDouble ? kExp2Double : kExp2Float;

/// exp2 in two halves, so that a kernel can put other work between them. 2^x = 2^n * 2^f with n the nearest
/// integer; 2^f by a polynomial with p(0) = 1 exactly. So exp2(0) is exactly 1, and x <= -127 (doubles: -1023)
/// gives exactly 0: there n = -127 and f = 0, and the bits of 1.0 minus 127 << 23 are those of 0. Valid for x <
/// 127; NaN stays NaN when its low payload bits are 0 (see canonical_nan).
struct Exp2 {
  Vec rounded, fraction, value;
};

SACCADE_INLINE Exp2 exp2_begin(Vec x, const Polynomial& p = kExp2) {
  const Vec clamped = max(broadcast(kIsDouble ? Scalar{-1023} : Scalar{-127}), x);  // in this order a NaN passes
  const Vec rounded = add(clamped, broadcast(kRoundToInteger));
  const Vec fraction = sub(clamped, sub(rounded, broadcast(kRoundToInteger)));
  return {rounded, fraction, broadcast(p.coefficients[0])};
}
SACCADE_INLINE void exp2_step(Exp2& e, int step, const Polynomial& p = kExp2) {
  e.value = fma(e.value, e.fraction, broadcast(step + 1 < p.degree ? p.coefficients[step + 1] : Scalar{1}));
}
SACCADE_INLINE Vec exp2_end(const Exp2& e) { return scale_by_exponent(e.value, e.rounded); }

SACCADE_INLINE Vec exp2(Vec x, const Polynomial& p = kExp2) {
  Exp2 e = exp2_begin(x, p);
  SACCADE_UNROLL
  for (int step = 0; step < p.degree; ++step) exp2_step(e, step, p);
  return exp2_end(e);
}

/// tanh with a small relative error everywhere: up to 0.625 Cephes' approximations (tanhf's polynomial, for
/// doubles tanh's quotient), beyond it 1 - 2 / (e^2x + 1).
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
  // Beyond 10 (doubles: 20) the result is 1; the bound keeps exp2 in its range. NaN passes.
  const Vec bounded = min(broadcast(kIsDouble ? Scalar{20} : Scalar{10}), magnitude);
  const Vec e = exp2(mul(bounded, broadcast(Scalar{2} * kLog2E)));
  const Vec large = sub(broadcast(Scalar{1}), div(broadcast(Scalar{2}), add(e, broadcast(Scalar{1}))));
  return select(less(magnitude, broadcast(Scalar(0.625))), small, copysign(large, x));
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
