// exp2 in two parts, by a polynomial, for instruction sets without a table lookup in registers. See exp2_table.h.
#pragma once

#include "cpu/prelude.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// The polynomial of exp2 on [-1/2, 1/2]: minimax in relative error with p(0) = 1 exactly.
template <class T>
struct Exp2Polynomial;
template <>
struct Exp2Polynomial<float> {  // 1.7e-7
  static constexpr int kDegree = 5;
  static constexpr float kCoefficients[] = {0x1.5bba14p-10f, 0x1.3cea88p-7f, 0x1.c6b752p-5f,
                                            0x1.ebf9bcp-3f,  0x1.62e42ap-1f, 1};
  /// 1.5 * 2^23: added to a small number, it puts that number's nearest integer into the low bits of the sum.
  static constexpr float kRoundToInteger = 0x1.8p23f;
};
template <>
struct Exp2Polynomial<double> {  // 3.4e-18 before rounding
  static constexpr int kDegree = 11;
  static constexpr double kCoefficients[] = {0x1.e79bb6fc55606p-32, 0x1.e61b4f9a207f5p-28, 0x1.b5267cdfd91eep-24,
                                             0x1.62bfc79d4b59fp-20, 0x1.ffcbfba980f96p-17, 0x1.4309130ed8cd5p-13,
                                             0x1.5d87fe78cd6cfp-10, 0x1.3b2ab6fba011ap-7,  0x1.c6b08d7049fe8p-5,
                                             0x1.ebfbdff82c5a4p-3,  0x1.62e42fefa39efp-1,  1};
  static constexpr double kRoundToInteger = 0x1.8p52;
};

/// 2^x is 0 for x up to this.
inline constexpr Scalar kExp2Lowest = std::is_same_v<Scalar, double> ? -1023 : -127;

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
  return exp2_begin_bounded(max(broadcast(kExp2Lowest), x));  // in this order a NaN passes
}
SACCADE_INLINE Vec exp2_end(const Exp2& e) {
  using Polynomial = Exp2Polynomial<Scalar>;
  Vec p = broadcast(Polynomial::kCoefficients[0]);
  SACCADE_UNROLL
  for (int i = 1; i <= Polynomial::kDegree; ++i) p = fma(p, e.fraction, broadcast(Polynomial::kCoefficients[i]));
  return scale_by_exponent(p, e.rounded);
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
