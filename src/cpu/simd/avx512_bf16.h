// Products of bf16 pairs (VDPBF16PS): a Vec holds 16 words of two bf16 each. acc += a.even * b.even + a.odd *
// b.odd in single precision; denormals count as 0. Included after simd/avx512.h by the level that has the
// instruction.
#pragma once

#include "cpu/simd/avx512.h"
#include "cpu/simd/byte_tables.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

SACCADE_INLINE Vec pair_fma(Vec a, Vec b, Vec acc) {
  return _mm512_dpbf16_ps(acc, (__m512bh)_mm512_castps_si512(a), (__m512bh)_mm512_castps_si512(b));
}
/// acc + a b as in fma_from(), with the aligned vector at `a`.
SACCADE_INLINE Vec pair_fma_from(const float* a, Vec b, Vec acc) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(acc) : "v"(b), "m"(*reinterpret_cast<const Vec*>(a)));
  return acc;
}
/// acc + a b, with the word at `a` and every word of b.
SACCADE_INLINE Vec pair_fma_broadcast(const float* a, Vec b, Vec acc) {
  asm("vdpbf16ps %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(b), "m"(*a));
  return acc;
}

/// Rounds 32 numbers to bf16, in order.
SACCADE_INLINE Vec round_to_pairs(Vec low, Vec high) {
  Vec words;
  asm("vcvtne2ps2bf16 %2, %1, %0" : "=v"(words) : "v"(high), "v"(low));
  return words;
}

/// Loads the first n of the 32 numbers at p as words, and zeros after them.
SACCADE_INLINE Vec load_first_pairs(const bfloat16* p, int n) {
  return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(n >= 32 ? 0xffffffffu : (std::uint32_t{1} << n) - 1u, p));
}
/// Word i holds number i of either row, for n numbers.
SACCADE_INLINE Vec interleave_first(const bfloat16* even, const bfloat16* odd, int n) {
  const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first(n), even));
  const __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first(n), odd));
  return _mm512_castsi512_ps(_mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
}
/// Word i holds number i of either vector; bf16 must hold them.
SACCADE_INLINE Vec pair_numbers(Vec even, Vec odd) {
  const __m512i low = _mm512_srli_epi32(_mm512_castps_si512(even), 16);
  return _mm512_castsi512_ps(_mm512_mask_mov_epi16(low, 0xaaaaaaaau, _mm512_castps_si512(odd)));
}
/// Words of the numbers of two rows of 32. interleave_low: columns 0 - 3 of every eight, interleave_high: columns
/// 4 - 7.
SACCADE_INLINE Vec interleave_low(Vec even, Vec odd) {
  return _mm512_castsi512_ps(_mm512_unpacklo_epi16(_mm512_castps_si512(even), _mm512_castps_si512(odd)));
}
SACCADE_INLINE Vec interleave_high(Vec even, Vec odd) {
  return _mm512_castsi512_ps(_mm512_unpackhi_epi16(_mm512_castps_si512(even), _mm512_castps_si512(odd)));
}
/// Puts 32 columns in the order of interleave_low and interleave_high into ascending order.
SACCADE_INLINE void order_columns(Vec& low, Vec& high) {
  const __m512i first = _mm512_set_epi32(23, 22, 21, 20, 7, 6, 5, 4, 19, 18, 17, 16, 3, 2, 1, 0);
  const __m512i second = _mm512_set_epi32(31, 30, 29, 28, 15, 14, 13, 12, 27, 26, 25, 24, 11, 10, 9, 8);
  const Vec a = _mm512_permutex2var_ps(low, first, high), b = _mm512_permutex2var_ps(low, second, high);
  low = a;
  high = b;
}
/// The words, with the halves that are not kept set to 0.
SACCADE_INLINE Vec keep_of_pairs(Vec words, bool even, bool odd) {
  const std::uint32_t bits = (even ? 0x0000ffffu : 0u) | (odd ? 0xffff0000u : 0u);
  return _mm512_castsi512_ps(
      _mm512_and_si512(_mm512_castps_si512(words), _mm512_set1_epi32(static_cast<int>(bits))));
}
/// The words with the signs of both halves flipped.
SACCADE_INLINE Vec negate_pairs(Vec words) {
  return _mm512_castsi512_ps(
      _mm512_xor_si512(_mm512_castps_si512(words), _mm512_set1_epi32(static_cast<int>(0x80008000u))));
}

// ---- Quantized bytes -------------------------------------------------------------------------------------------
// VPERMI2B looks up the upper and the lower byte of 64 numbers as bf16.

inline constexpr bool kLooksUpPairs = true;

/// Word i of x[t] holds pair 8 (i / 4) + 4 t + i % 4 of 64 bytes.
SACCADE_INLINE void look_up_pairs(const PairTables& tables, __m512i places, __m512i signs, __mmask64 not_zero,
                                  Vec* x) {
  const __m512i lower = _mm512_maskz_permutex2var_epi8(not_zero, _mm512_load_si512(tables.lower), places,
                                                       _mm512_load_si512(tables.lower + 64));
  __m512i upper = _mm512_maskz_permutex2var_epi8(not_zero, _mm512_load_si512(tables.upper), places,
                                                 _mm512_load_si512(tables.upper + 64));
  upper = _mm512_ternarylogic_epi32(upper, signs, _mm512_set1_epi8(-128), 0xf8);
  x[0] = _mm512_castsi512_ps(_mm512_unpacklo_epi8(lower, upper));
  x[1] = _mm512_castsi512_ps(_mm512_unpackhi_epi8(lower, upper));
}
SACCADE_INLINE void widen_to_pairs(__m512i bytes, float8_e4m3, Vec* x) {
  look_up_pairs(kPairsOfFloat8, bytes, bytes, ~__mmask64{0}, x);
}
SACCADE_INLINE void widen_to_pairs(__m512i bytes, std::int8_t, Vec* x) {
  look_up_pairs(kPairsOfInt8, _mm512_abs_epi8(bytes), bytes, _mm512_test_epi8_mask(bytes, bytes), x);
}

template <class T>
SACCADE_INLINE __m512i load_bytes(const T* p, int n) {
  return n >= 64 ? _mm512_loadu_si512(p) : _mm512_maskz_loadu_epi8((__mmask64{1} << n) - 1, p);
}
/// The first n of 64 numbers, and zeros: word i of x[t] holds numbers 16 (i / 4) + 8 t + 2 (i % 4) and the next.
template <class T>
SACCADE_INLINE void look_up_pairs(const T* p, int n, Vec (&x)[2]) {
  widen_to_pairs(load_bytes(p, n), T{}, x);
}
/// The same of two rows: word i of x[t] holds column 16 (i / 4) + 4 t + i % 4 of both.
template <class T>
SACCADE_INLINE void look_up_columns(const T* even, int n_even, const T* odd, int n_odd, Vec (&x)[4]) {
  const __m512i a = load_bytes(even, n_even), b = load_bytes(odd, n_odd);
  widen_to_pairs(_mm512_unpacklo_epi8(a, b), T{}, x);
  widen_to_pairs(_mm512_unpackhi_epi8(a, b), T{}, x + 2);
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
