// Loads of e4m3 for multiply-adds that look bytes up (VPERMI2B). Included after simd/avx512.h by the kernels that
// have the instruction.
#pragma once

#include "cpu/simd/avx512.h"
#include "cpu/simd/byte_tables.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// 64 numbers: the two bytes of each as bf16, which are the upper half of a float.
SACCADE_INLINE void load_64(const float8_e4m3* p, Vec (&x)[4]) {
  // Unpacking takes four bytes of each 128-bit lane at a time.
  const __m512i order = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
  const __m512i bytes = _mm512_permutexvar_epi32(order, _mm512_loadu_si512(p));
  const auto look_up = [&](const std::uint8_t* table) __attribute__((always_inline)) {
    return _mm512_permutex2var_epi8(_mm512_load_si512(table), bytes, _mm512_load_si512(table + 64));
  };
  const __m512i lower = look_up(kPairsOfFloat8.lower);
  const __m512i upper =
      _mm512_ternarylogic_epi32(look_up(kPairsOfFloat8.upper), bytes, _mm512_set1_epi8(-128), 0xf8);
  const __m512i low = _mm512_unpacklo_epi8(lower, upper), high = _mm512_unpackhi_epi8(lower, upper);
  const __m512i none = _mm512_setzero_si512();
  x[0] = _mm512_castsi512_ps(_mm512_unpacklo_epi16(none, low));
  x[1] = _mm512_castsi512_ps(_mm512_unpackhi_epi16(none, low));
  x[2] = _mm512_castsi512_ps(_mm512_unpacklo_epi16(none, high));
  x[3] = _mm512_castsi512_ps(_mm512_unpackhi_epi16(none, high));
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
