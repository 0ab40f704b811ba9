// Vectors of 64 bytes and sums of their products (VNNI) in AVX-512, for bytes/vector_decode.h.
#pragma once

#include "cpu/bytes/rows_avx512.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

using Bytes = __m512i;
using Sums = __m512i;  // 16 of 32 bits

SACCADE_INLINE Sums no_sums() { return _mm512_setzero_si512(); }
SACCADE_INLINE Sums load_sums(const std::int32_t* p) { return _mm512_load_si512(p); }
SACCADE_INLINE Vec as_numbers(Sums x) { return _mm512_cvtepi32_ps(x); }
/// sum + the products of four bytes each: unsigned ones of a, and signed ones of b. (With intrinsics, GCC 12
/// copies sums from register to register.)
SACCADE_INLINE Sums add_products(Sums sum, Bytes a, Bytes b) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
  return sum;
}
/// The same with the aligned bytes at `b`.
SACCADE_INLINE Sums add_products_from(Sums sum, Bytes a, const std::int8_t* b) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "m"(*reinterpret_cast<const Bytes*>(b)));
  return sum;
}
/// Four bytes, 16 times. (See broadcast_from().)
SACCADE_INLINE Bytes broadcast_four(const std::uint8_t* p) {
  Bytes x;
  asm("vpbroadcastd %1, %0" : "=v"(x) : "m"(*reinterpret_cast<const std::uint32_t*>(p)));
  return x;
}

/// 64 numbers of four rows, each plus 128: word i of x[c] has numbers 16 (i / 4) + 4 c and the next three of row
/// i % 4.
SACCADE_INLINE void load_four_keys(const std::int8_t* rows, std::int64_t stride, Bytes (&x)[4]) {
  const auto row = [&](int i) __attribute__((always_inline)) {
    return _mm512_xor_si512(_mm512_loadu_si512(rows + i * stride), _mm512_set1_epi8(-128));
  };
  const __m512i r0 = row(0), r1 = row(1), r2 = row(2), r3 = row(3);
  const __m512i low01 = _mm512_unpacklo_epi32(r0, r1), high01 = _mm512_unpackhi_epi32(r0, r1);
  const __m512i low23 = _mm512_unpacklo_epi32(r2, r3), high23 = _mm512_unpackhi_epi32(r2, r3);
  x[0] = _mm512_unpacklo_epi64(low01, low23), x[1] = _mm512_unpackhi_epi64(low01, low23);
  x[2] = _mm512_unpacklo_epi64(high01, high23), x[3] = _mm512_unpackhi_epi64(high01, high23);
}
/// 64 columns of four rows: word i of x[t] has column 16 (i / 4) + 4 t + i % 4 of each.
SACCADE_INLINE void load_four_values(const std::int8_t* rows, std::int64_t stride, Bytes (&x)[4]) {
  const __m512i r0 = _mm512_loadu_si512(rows), r1 = _mm512_loadu_si512(rows + stride);
  const __m512i r2 = _mm512_loadu_si512(rows + 2 * stride), r3 = _mm512_loadu_si512(rows + 3 * stride);
  const __m512i low01 = _mm512_unpacklo_epi8(r0, r1), high01 = _mm512_unpackhi_epi8(r0, r1);
  const __m512i low23 = _mm512_unpacklo_epi8(r2, r3), high23 = _mm512_unpackhi_epi8(r2, r3);
  x[0] = _mm512_unpacklo_epi16(low01, low23), x[1] = _mm512_unpackhi_epi16(low01, low23);
  x[2] = _mm512_unpacklo_epi16(high01, high23), x[3] = _mm512_unpackhi_epi16(high01, high23);
}

/// Signed digits of 8 bits of up to 16 numbers, n of them, each times 2^-exponent and rounded:
/// digits[0] are the last ones.
template <int kDigits>
SACCADE_INLINE void split_digits(const float* numbers, int n, int exponent, std::int8_t (&digits)[kDigits][16]) {
  const Vec scale = broadcast(static_cast<float>(-exponent));
  __m512i rest = _mm512_cvtps_epi32(_mm512_scalef_ps(load_first(numbers, n), scale));
  SACCADE_UNROLL
  for (int i = 0; i < kDigits; ++i) {
    _mm_store_si128(reinterpret_cast<__m128i*>(digits[i]), _mm512_cvtepi32_epi8(rest));
    rest = _mm512_srai_epi32(_mm512_add_epi32(rest, _mm512_set1_epi32(128)), 8);
  }
}
/// Digits of 64 weights, times `reciprocal`, rounded and without a sign: [digit][64], the last digits first.
template <int kDigits>
SACCADE_INLINE void put_weight_digits(const float* weights, float reciprocal, std::uint8_t* to) {
  SACCADE_UNROLL
  for (int j = 0; j < 64; j += 16) {
    const __m512i x = _mm512_min_epu32(_mm512_cvtps_epu32(mul(load(weights + j), broadcast(reciprocal))),
                                       _mm512_set1_epi32((1 << 8 * kDigits) - 1));
    SACCADE_UNROLL
    for (int i = 0; i < kDigits; ++i)
      _mm_store_si128(reinterpret_cast<__m128i*>(to + i * 64 + j),
                      _mm512_cvtepi32_epi8(_mm512_srli_epi32(x, static_cast<unsigned>(8 * i))));
  }
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
