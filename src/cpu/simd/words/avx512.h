// Vectors of 32-bit words over AVX-512, for random numbers, and dropout with them of numbers of any type.
#pragma once

#include "cpu/simd/prelude.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// 8 words, each in the lower half of 64 bits. Only upper_halves uses the upper halves.
using Words = __m512i;
inline constexpr int kWords = 8;

SACCADE_INLINE Words broadcast_word(std::uint32_t x) { return _mm512_set1_epi64(x); }
/// first, first + 2, first + 4, ...
SACCADE_INLINE Words every_second_word(std::uint32_t first) {
  return _mm512_add_epi64(_mm512_set1_epi64(first), _mm512_set_epi64(14, 12, 10, 8, 6, 4, 2, 0));
}
/// The 64-bit products.
SACCADE_INLINE Words multiply_words(Words a, Words b) { return _mm512_mul_epu32(a, b); }
SACCADE_INLINE Words upper_halves(Words a) { return _mm512_srli_epi64(a, 32); }
SACCADE_INLINE Words exclusive_or(Words a, Words b) { return _mm512_xor_si512(a, b); }
SACCADE_INLINE Words exclusive_or(Words a, Words b, Words c) { return _mm512_ternarylogic_epi64(a, b, c, 0x96); }

/// Which words are greater than `most`, alternating between those of `even` and `odd`.
SACCADE_INLINE __mmask16 words_above(Words even, Words odd, std::uint32_t most) {
  const __m512i words = _mm512_mask_shuffle_epi32(even, 0xaaaa, odd, _MM_PERM_CCAA);
  return _mm512_cmpgt_epu32_mask(words, _mm512_set1_epi32(static_cast<int>(most)));
}
/// Sets those of 2 kWords aligned numbers to 0 whose word is at most `most`. `even` and `odd` hold the words of
/// the even and the odd numbers.
SACCADE_INLINE void keep_above(float* numbers, Words even, Words odd, std::uint32_t most) {
  _mm512_store_ps(numbers, _mm512_maskz_load_ps(words_above(even, odd, most), numbers));
}
SACCADE_INLINE void keep_above(double* numbers, Words even, Words odd, std::uint32_t most) {
  const __mmask16 kept = words_above(even, odd, most);
  _mm512_store_pd(numbers, _mm512_maskz_load_pd(static_cast<__mmask8>(kept), numbers));
  _mm512_store_pd(numbers + 8, _mm512_maskz_load_pd(static_cast<__mmask8>(kept >> 8), numbers + 8));
}
SACCADE_INLINE void keep_above(bfloat16* numbers, Words even, Words odd, std::uint32_t most) {
  _mm256_store_si256(reinterpret_cast<__m256i*>(numbers),
                     _mm256_maskz_loadu_epi16(words_above(even, odd, most), numbers));
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
