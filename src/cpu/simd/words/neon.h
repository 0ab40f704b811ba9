// Vectors of 32-bit words over NEON. See simd/words/avx512.h for what each function means.
#pragma once

#include "cpu/simd/prelude.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

using Words = uint64x2_t;
inline constexpr int kWords = 2;

SACCADE_INLINE Words broadcast_word(std::uint32_t x) { return vdupq_n_u64(x); }
SACCADE_INLINE Words every_second_word(std::uint32_t first) {
  return vaddq_u64(vdupq_n_u64(first), vcombine_u64(vcreate_u64(0), vcreate_u64(2)));
}
SACCADE_INLINE Words multiply_words(Words a, Words b) { return vmull_u32(vmovn_u64(a), vmovn_u64(b)); }
SACCADE_INLINE Words upper_halves(Words a) { return vshrq_n_u64(a, 32); }
SACCADE_INLINE Words exclusive_or(Words a, Words b) { return veorq_u64(a, b); }
SACCADE_INLINE Words exclusive_or(Words a, Words b, Words c) { return exclusive_or(exclusive_or(a, b), c); }

/// All ones where a word is greater than `most`.
SACCADE_INLINE uint32x4_t words_above(Words even, Words odd, std::uint32_t most) {
  const uint32x4_t words = vtrn1q_u32(vreinterpretq_u32_u64(even), vreinterpretq_u32_u64(odd));
  return vcgtq_u32(words, vdupq_n_u32(most));
}
SACCADE_INLINE void keep_above(float* numbers, Words even, Words odd, std::uint32_t most) {
  const uint32x4_t bits = vreinterpretq_u32_f32(vld1q_f32(numbers));
  vst1q_f32(numbers, vreinterpretq_f32_u32(vandq_u32(words_above(even, odd, most), bits)));
}
SACCADE_INLINE void keep_above(double* numbers, Words even, Words odd, std::uint32_t most) {
  const int32x4_t kept = vreinterpretq_s32_u32(words_above(even, odd, most));
  const int64x2_t low = vandq_s64(vmovl_s32(vget_low_s32(kept)), vreinterpretq_s64_f64(vld1q_f64(numbers)));
  const int64x2_t high = vandq_s64(vmovl_high_s32(kept), vreinterpretq_s64_f64(vld1q_f64(numbers + 2)));
  vst1q_f64(numbers, vreinterpretq_f64_s64(low));
  vst1q_f64(numbers + 2, vreinterpretq_f64_s64(high));
}
SACCADE_INLINE void keep_above(bfloat16* numbers, Words even, Words odd, std::uint32_t most) {
  std::uint16_t* const bits = &numbers->bits;
  vst1_u16(bits, vand_u16(vmovn_u32(words_above(even, odd, most)), vld1_u16(bits)));
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
