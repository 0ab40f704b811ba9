// exp2 in two parts, by a table in two registers. See polynomial.h.
#pragma once

#include "cpu/simd/prelude.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// 1.5 * 2^18: added to a small float, it puts that float's nearest multiple of 1/32 into the low bits of the sum.
inline constexpr float kRoundTo32nds = 0x1.8p18f;
inline constexpr float kExp2Lowest = -127.0f;
/// The largest relative error where 2^x is a normal number.
inline constexpr double kExp2Error = 2.4e-7;

/// exp2 in two parts, so that a kernel can put other work between them. 2^x = 2^n * 2^(j/32) * 2^f with j < 32 and
/// |f| <= 1/64. 2^f is a parabola, written as its distance from the vertex: c ((f + kVertex)^2 + kHeight), where c
/// is part of the table (minimax with p(0) = 1; relative error 2.4e-7 over all floats, by trying them). That is
/// 2.5 operations on the FMA units, 0.5 for the lookup and 1 each for square and product; a polynomial without a
/// table takes 5 (Zen 4). exp2(0) is exactly 1, and x <= -127 gives exactly 0: there n = -127 and f = 0, and the
/// bits of 1.0 minus 127 << 23 are those of 0. Valid for x < 127; NaN stays NaN when its low payload bits are 0
/// (see canonical_nan).
struct Exp2 {
  Vec rounded, distance;
};
inline constexpr float kVertex = 0x1.7152b2p+0f, kHeight = 0x1.0a6848p+1f;

struct Exp2Table {
  alignas(64) float power[32];  // 2^(j/32) / (kVertex^2 + kHeight)

  constexpr Exp2Table() : power() {
    double x = 1.0 / 0x1.0a68040000000p+2;  // the denominator as multiply-add rounds it
    for (float& p : power) {
      p = static_cast<float>(x);
      x *= 0x1.059b0d3158574p+0;  // 2^(1/32)
    }
  }
};
inline constexpr Exp2Table kExp2Table;

/// For x >= kExp2Lowest.
SACCADE_INLINE Exp2 exp2_begin_bounded(Vec x) {
  const Vec rounded = add(x, broadcast(kRoundTo32nds));
  const Vec fraction = sub(x, sub(rounded, broadcast(kRoundTo32nds)));
  return {rounded, add(fraction, broadcast(kVertex))};
}
SACCADE_INLINE Exp2 exp2_begin(Vec x) {
  return exp2_begin_bounded(max(broadcast_from(&kExp2Lowest), x));  // this order passes a NaN
}
SACCADE_INLINE Vec exp2_end(const Exp2& e) {
  const Vec parabola = fma(e.distance, e.distance, broadcast(kHeight));
  return scale_by_exponent_of_32nds(mul(parabola, lookup_32nds(kExp2Table.power, e.rounded)), e.rounded);
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
