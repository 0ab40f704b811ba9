// Rows of i4 as rows of i8 in AVX-512.
#pragma once

#include "cpu/simd/quantized.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// The numbers of 64 nibbles of four groups, a group to each quarter. Two products make the 16 multiples of each
/// multiplier: those of even nibbles in the lower bytes of words, and of odd ones in the upper bytes.
SACCADE_INLINE __m512i multiples(__m512i nibbles, const std::int8_t* multipliers) {
  std::int32_t four;
  std::memcpy(&four, multipliers, sizeof four);
  const __m512i quarters = _mm512_set_epi64(0x0303030303030303, 0x0303030303030303, 0x0202020202020202,
                                            0x0202020202020202, 0x0101010101010101, 0x0101010101010101, 0, 0);
  const __m512i even = _mm512_set4_epi32(0x00060004, 0x00020000, 0x00fe00fc, 0x00fa00f8);
  const __m512i m = _mm512_shuffle_epi8(_mm512_set1_epi32(four), quarters);
  const __m512i odd = _mm512_add_epi8(_mm512_slli_epi16(even, 8), _mm512_set1_epi16(0x0100));
  const __m512i table =
      _mm512_mask_blend_epi8(0xaaaaaaaaaaaaaaaa, _mm512_mullo_epi16(m, even), _mm512_mullo_epi16(m, odd));
  return _mm512_shuffle_epi8(table, nibbles);
}

/// A row of i4 as `tiles` times 64 numbers of i8.
SACCADE_INLINE void put_int4_row(Int4Row row, std::int64_t tiles, std::int8_t* to) {
  const __m512i low = _mm512_set1_epi8(15);
  if (row.half % 64 == 0) {
    for (std::int64_t d = 0; d < row.half; d += 64) {
      const __m512i bytes = _mm512_loadu_si512(row.bytes + d), upper = _mm512_srli_epi16(bytes, 4);
      const std::int8_t* const of_upper = row.multipliers + (row.half + d) / 16;
      _mm512_store_si512(to + d, multiples(_mm512_and_si512(bytes, low), row.multipliers + d / 16));
      _mm512_store_si512(to + row.half + d, multiples(_mm512_and_si512(upper, low), of_upper));
    }
    return;
  }
  std::memset(to + 2 * row.half, 0, static_cast<std::size_t>(tiles * 64 - 2 * row.half));
  for (std::int64_t d = 0; d < 2 * row.half; d += 16) {
    const bool is_upper = d >= row.half;
    const __m128i bytes =
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(row.bytes + d - (is_upper ? row.half : 0)));
    const __m128i nibbles = _mm_and_si128(is_upper ? _mm_srli_epi16(bytes, 4) : bytes, _mm_set1_epi8(15));
    const auto* const table = kMultiples[static_cast<std::uint8_t>(row.multipliers[d / 16])].data();
    _mm_store_si128(reinterpret_cast<__m128i*>(to + d),
                    _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)), nibbles));
  }
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
