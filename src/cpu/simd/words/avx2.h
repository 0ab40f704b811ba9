// Vectors of 32-bit words over AVX2. See simd/words/avx512.h for what each function means.
#pragma once

#include "cpu/simd/prelude.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

using Words = __m256i;
inline constexpr int kWords = 4;

SACCADE_INLINE Words broadcast_word(std::uint32_t x) { return _mm256_set1_epi64x(x); }
SACCADE_INLINE Words every_second_word(std::uint32_t first) {
  return _mm256_add_epi64(_mm256_set1_epi64x(first), _mm256_set_epi64x(6, 4, 2, 0));
}
SACCADE_INLINE Words multiply_words(Words a, Words b) { return _mm256_mul_epu32(a, b); }
SACCADE_INLINE Words upper_halves(Words a) { return _mm256_srli_epi64(a, 32); }
SACCADE_INLINE Words exclusive_or(Words a, Words b) { return _mm256_xor_si256(a, b); }
SACCADE_INLINE Words exclusive_or(Words a, Words b, Words c) { return exclusive_or(exclusive_or(a, b), c); }

/// All ones where a word is at most `most`.
SACCADE_INLINE __m256i words_up_to(Words even, Words odd, std::uint32_t most) {
  const __m256i words = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
  return _mm256_cmpeq_epi32(_mm256_min_epu32(words, _mm256_set1_epi32(static_cast<int>(most))), words);
}
SACCADE_INLINE void keep_above(float* numbers, Words even, Words odd, std::uint32_t most) {
  const __m256 dropped = _mm256_castsi256_ps(words_up_to(even, odd, most));
  _mm256_store_ps(numbers, _mm256_andnot_ps(dropped, _mm256_load_ps(numbers)));
}
SACCADE_INLINE void keep_above(double* numbers, Words even, Words odd, std::uint32_t most) {
  const __m256i dropped = words_up_to(even, odd, most);
  const __m256d low = _mm256_castsi256_pd(_mm256_cvtepi32_epi64(_mm256_castsi256_si128(dropped)));
  const __m256d high = _mm256_castsi256_pd(_mm256_cvtepi32_epi64(_mm256_extracti128_si256(dropped, 1)));
  _mm256_store_pd(numbers, _mm256_andnot_pd(low, _mm256_load_pd(numbers)));
  _mm256_store_pd(numbers + 4, _mm256_andnot_pd(high, _mm256_load_pd(numbers + 4)));
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
