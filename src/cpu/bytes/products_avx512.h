// Products of bytes in AVX-512 (VNNI), for bytes/vector_decode.h. Four keys are multiplied at a time: each 32-bit
// sum has some numbers of one key and of one row's digits, and the sums of a key are added up at the end. Keys are
// without a sign: 128 is added to each number, and taken off again by the sums' first value.
#pragma once

#include "cpu/bytes/rows.h"
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
SACCADE_INLINE Bytes broadcast_four(const std::int8_t* p) {
  Bytes x;
  asm("vpbroadcastd %1, %0" : "=v"(x) : "m"(*reinterpret_cast<const std::int32_t*>(p)));
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
SACCADE_INLINE void put_weight_digits(const float* weights, float reciprocal, std::int8_t* to) {
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

/// The sums of products with digits as numbers.
template <int kDigits>
SACCADE_INLINE Vec join(const Sums (&sums)[kDigits]) {
  Vec x = as_numbers(sums[kDigits - 1]);
  SACCADE_UNROLL
  for (int i = kDigits - 2; i >= 0; --i) x = fma(x, broadcast(256), as_numbers(sums[i]));
  return x;
}

/// See bytes/vector_decode.h. Weights are three digits, or two with queries of bf16.
template <int kWeightDigits>
struct ByteProducts {
  static constexpr bool kHasSigns = false;
  static constexpr int kWeightBits = 8 * kWeightDigits - 1, kMostOfWeights = (1 << 8 * kWeightDigits) - 1;
  static constexpr int kQueryDigits = 3;
  static constexpr std::int32_t kMostOfQuery = 127 * (256 * 256 + 256 + 1);

  static constexpr std::int64_t kQueryBytes = 4 * kDigitRows * kQueryDigits * 64;  // [4][row][digit][64]
  static constexpr std::int64_t kBiases = kQueryDigits * 16;  // -128 times the sum of the digits of each sum
  static constexpr std::int64_t kWeightBytes = kDigitRows * kWeightDigits * 64;  // [row][digit][64]

  /// The digits of 16 numbers, each four of them for four keys.
  static void put_query(const std::int8_t (&digits)[kQueryDigits][16], int row, std::int64_t d, std::int8_t* to,
                        std::int32_t* biases) {
    const std::int64_t quarter = d / 16;
    for (int i = 0; i < kQueryDigits; ++i) {
      std::int32_t sum = 0;
      for (int j = 0; j < 16; ++j) sum += digits[i][j];
      for (int key = 0; key < 4; ++key) {
        biases[i * 16 + quarter * 4 + key] -= 128 * sum;
        for (int c = 0; c < 4; ++c)
          std::memcpy(to + ((c * kDigitRows + row) * kQueryDigits + i) * 64 + (quarter * 4 + key) * 4,
                      digits[i] + 4 * c, 4);
      }
    }
  }

  template <int kRows, class Fetch>
  SACCADE_INLINE static void multiply_keys(const RowTile& rows, std::int64_t depth, const std::int8_t* queries,
                                           const std::int32_t* biases, Vec (&to)[kRows][1], const Fetch& fetch) {
    constexpr int kTogether = 4 / kRows;  // times four keys
    alignas(64) Scalar products[kRows][4][kWidth];
    for (int four = 0; four < 4; four += kTogether) {
      Sums sums[kTogether][kRows][kQueryDigits];
      SACCADE_UNROLL
      for (int i = 0; i < kTogether; ++i) {
        SACCADE_UNROLL
        for (int r = 0; r < kRows; ++r) {
          SACCADE_UNROLL
          for (int digit = 0; digit < kQueryDigits; ++digit)
            sums[i][r][digit] = load_sums(biases + r * kBiases + digit * 16);
        }
        fetch(four + i);
      }
      const std::int8_t* query = as_computed(queries);
      for (std::int64_t d = 0; d < depth; ++d, query += kQueryBytes) {
        Bytes keys[kTogether][4];
        SACCADE_UNROLL
        for (int i = 0; i < kTogether; ++i) load_four_keys(rows.at((four + i) * 4, d), rows.stride, keys[i]);
        SACCADE_UNROLL
        for (int c = 0; c < 4; ++c) {
          SACCADE_UNROLL
          for (int r = 0; r < kRows; ++r) {
            SACCADE_UNROLL
            for (int digit = 0; digit < kQueryDigits; ++digit) {
              const std::int8_t* const x = query + ((c * kDigitRows + r) * kQueryDigits + digit) * 64;
              SACCADE_UNROLL
              for (int i = 0; i < kTogether; ++i)
                sums[i][r][digit] = add_products_from(sums[i][r][digit], keys[i][c], x);
            }
          }
        }
      }
      SACCADE_UNROLL
      for (int i = 0; i < kTogether; ++i) {
        SACCADE_UNROLL
        for (int r = 0; r < kRows; ++r) store(products[r][four + i], join(sums[i][r]));
      }
    }
    SACCADE_UNROLL
    for (int r = 0; r < kRows; ++r)
      to[r][0] = add_lanes(add_lanes(load(products[r][0]), load(products[r][1])),
                           add_lanes(load(products[r][2]), load(products[r][3])));
  }

  static void put_weights(const float* weights, float reciprocal, int row, std::int8_t* to) {
    put_weight_digits<kWeightDigits>(weights, reciprocal, to + row * kWeightDigits * 64);
  }

  /// Two rows in a pass: their sums are in registers.
  static int passes(int rows) { return (rows + kPassRows - 1) / kPassRows; }

  template <class Fetch, class Add>
  SACCADE_INLINE static void multiply_values(const RowTile (&rows)[4], std::int64_t w, const std::int8_t* digits,
                                             int /*count*/, int pass, const Fetch& fetch, const Add& add) {
    Sums sums[kPassRows][4][kWeightDigits];
    SACCADE_UNROLL
    for (int r = 0; r < kPassRows; ++r) {
      SACCADE_UNROLL
      for (int t = 0; t < 4; ++t) {
        SACCADE_UNROLL
        for (int digit = 0; digit < kWeightDigits; ++digit) sums[r][t][digit] = no_sums();
      }
    }
    const std::int8_t* const given = digits + pass * kPassRows * kWeightDigits * 64;
    for (int row = 0; row < 64; row += 4) {
      const RowTile& tile = rows[row / 16];
      fetch(row / 4);
      Bytes values[4];
      load_four_values(tile.at(row % 16, w), tile.stride, values);
      SACCADE_UNROLL
      for (int r = 0; r < kPassRows; ++r) {
        SACCADE_UNROLL
        for (int digit = 0; digit < kWeightDigits; ++digit) {
          const Bytes weight = broadcast_four(given + (r * kWeightDigits + digit) * 64 + row);
          SACCADE_UNROLL
          for (int t = 0; t < 4; ++t) sums[r][t][digit] = add_products(sums[r][t][digit], weight, values[t]);
        }
      }
    }
    SACCADE_UNROLL
    for (int r = 0; r < kPassRows; ++r) {
      SACCADE_UNROLL
      for (int t = 0; t < 4; ++t) add(pass * kPassRows + r, t * 16, join(sums[r][t]));
    }
  }

  /// The order of load_four_values().
  static void order_columns(const Scalar* from, Scalar* columns) {
    for (int i = 0; i < 16; ++i) std::copy_n(from + i * 4, 4, columns + i % 4 * 16 + i / 4 * 4);
  }

 private:
  static constexpr int kPassRows = 2;
};

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
