// Products of bf16 pairs (BFDOT): a Vec holds 4 words of two bf16 each. acc += a.even * b.even + a.odd * b.odd in
// single precision; denormals count as 0. Included after simd/neon.h by the level that has the instruction.
//
// Inexact sums are rounded to odd, so an error is up to one unit in the last place. (Extended bfloat16, which a
// program switches on in FPCR.EBF, rounds to nearest; the bits then differ.) BFMMLA multiplies 2 x 4 by 4 x 2
// numbers, twice the work of BFDOT. It needs tiles of 2 x 2 blocks: two rows of queries and two keys packed side
// by side in groups of four dimensions, and scores and output sorted into rows after the last step.
#pragma once

#include "cpu/simd/neon.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

SACCADE_INLINE bfloat16x8_t as_pairs(Vec x) { return vreinterpretq_bf16_f32(x); }
SACCADE_INLINE uint16x8_t as_halves(Vec x) { return vreinterpretq_u16_f32(x); }

inline constexpr bool kLooksUpPairs = false;  // see simd/avx512_bf16.h

SACCADE_INLINE Vec pair_fma(Vec a, Vec b, Vec acc) { return vbfdotq_f32(acc, as_pairs(a), as_pairs(b)); }
/// acc + a b, with the word of the factor and every word of b.
SACCADE_INLINE Vec pair_fma(Factor a, Vec b, Vec acc) {
  return vbfdotq_laneq_f32(acc, as_pairs(b), as_pairs(a.lanes), 0);
}
SACCADE_INLINE Vec pair_fma_from(const float* a, Vec b, Vec acc) { return pair_fma(load(a), b, acc); }
SACCADE_INLINE Vec pair_fma_broadcast(const float* a, Vec b, Vec acc) { return pair_fma(factor_from(a), b, acc); }

/// Rounds 8 numbers to bf16, in order.
SACCADE_INLINE Vec round_to_pairs(Vec low, Vec high) {
  return vreinterpretq_f32_bf16(vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(low), high));
}

/// Loads the first n of the 8 numbers at p as words, and zeros after them.
SACCADE_INLINE Vec load_first_pairs(const bfloat16* p, int n) {
  return vreinterpretq_f32_u16(
      n >= 8 ? vld1q_u16(&p->bits)
             : vcombine_u16(load_first_bits(p, n), n > 4 ? load_first_bits(p + 4, n - 4) : vdup_n_u16(0)));
}
/// Word i holds number i of either row, for n numbers.
SACCADE_INLINE Vec interleave_first(const bfloat16* even, const bfloat16* odd, int n) {
  const uint16x4_t low = load_first_bits(even, n), high = load_first_bits(odd, n);
  return vreinterpretq_f32_u16(vcombine_u16(vzip1_u16(low, high), vzip2_u16(low, high)));
}
/// Word i holds number i of either vector; bf16 must hold them.
SACCADE_INLINE Vec pair_numbers(Vec even, Vec odd) {
  return vreinterpretq_f32_u32(vsriq_n_u32(vreinterpretq_u32_f32(odd), vreinterpretq_u32_f32(even), 16));
}
/// Words of the numbers of two rows of 8. interleave_low: columns 0 - 3, interleave_high: columns 4 - 7.
SACCADE_INLINE Vec interleave_low(Vec even, Vec odd) {
  return vreinterpretq_f32_u16(vzip1q_u16(as_halves(even), as_halves(odd)));
}
SACCADE_INLINE Vec interleave_high(Vec even, Vec odd) {
  return vreinterpretq_f32_u16(vzip2q_u16(as_halves(even), as_halves(odd)));
}
/// They are in ascending order.
SACCADE_INLINE void order_columns(Vec&, Vec&) {}
/// The words, with the halves that are not kept set to 0.
SACCADE_INLINE Vec keep_of_pairs(Vec words, bool even, bool odd) {
  const std::uint32_t bits = (even ? 0x0000ffffu : 0u) | (odd ? 0xffff0000u : 0u);
  return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(words), vdupq_n_u32(bits)));
}
/// The words with the signs of both halves flipped.
SACCADE_INLINE Vec negate_pairs(Vec words) {
  return vreinterpretq_f32_u32(veorq_u32(vreinterpretq_u32_f32(words), vdupq_n_u32(0x80008000u)));
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
