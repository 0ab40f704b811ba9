// i8 and i4 on tiles of integers. K is multiplied as it lies in memory, with TDPBSSD, by queries of four digits of
// 7 bits: they hold 24 bits of a number down to 2^-4 of the row's largest. Weights are four digits of 8 bits for
// TDPBUSD, 32 bits below the largest of the row; three digits would take 12 columns at the same cost. Sums of
// integers are exact. Rows of i4 are read as rows of i8. Digits of weights have no sign: scales of quantize() make
// no negative ones.
#pragma once

#include "cpu/bytes/rows.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

struct IntegerFormat {
  using Sum = std::int32_t;
  static constexpr bool kHasInt4 = true, kHasNan = false, kHasSigns = false, kFetchesNextSplit = false;
  static constexpr int kQueryBits = 26, kWeightBits = 31;  // behind the first bit of the largest number
  static constexpr double kMostOfWeights = 0x1p32 - 1;
  static constexpr int kUnitKeys = kDecodeSplit;
  static constexpr std::int64_t kQueryBytes = kTileBytes;   // of 64 numbers: [16 times 4][digit][row][4 numbers]
  static constexpr std::int64_t kWeightBytes = kTileBytes;  // of 64 weights: [row][digit][64]
  static constexpr std::int64_t kValueBytes =
      4 * kTileBytes;  // of 64 keys: [tile][16 times 4 keys][16 columns][4]

  /// A number is s (2^21 a + 2^14 b + 2^7 c + d), with digits from -64 to 64 and s = 2^exponent.
  SACCADE_INLINE static void put_query(const float* numbers, int n, int exponent, std::int64_t at, int row,
                                       std::int8_t* to) {
    put_query_digits(numbers, n, exponent, to + at * 16 + row * 4);
  }
  /// Of 64 numbers, or of 128.
  SACCADE_INLINE static void load_queries(Tiles& tiles, const std::int8_t* queries, std::int64_t count) {
    tiles.load<6>(queries, 64);
    if (count > 1) tiles.load<7>(queries + kTileBytes, 64);
  }
  template <int kQuery>
  SACCADE_INLINE static void multiply_keys(Tiles& tiles, const RowTile (&rows)[2], std::int64_t d) {
    tiles.load_streamed<2>(rows[0].at(0, d), rows[0].stride);
    tiles.multiply<0, 2, 6 + kQuery, DType::i8>();
    tiles.load_streamed<3>(rows[1].at(0, d), rows[1].stride);
    tiles.multiply<1, 3, 6 + kQuery, DType::i8>();
  }
  SACCADE_INLINE static void join_scores(const Sum* products, const float* factors, const float* scales, float* to,
                                         std::int64_t stride) {
    join_digits(products, factors, scales, to, stride);
  }

  SACCADE_INLINE static void put_weights(const float* weights, float reciprocal, int row, std::int8_t* to) {
    put_digits(weights, reciprocal, reinterpret_cast<std::uint8_t*>(to) + row * 4 * 64);
  }
  /// An eighth of 32 rows.
  SACCADE_INLINE static void interleave(const RowTile (&rows)[2], int half, int i, std::int64_t w,
                                        std::int8_t* to) {
    const RowTile& four = rows[i / 4];
    interleave_rows(four.at(i % 4 * 4, w), four.stride, to + (half * 8 + i) * 64);
  }
  template <class Fetch>
  SACCADE_INLINE static void multiply_values(Tiles& tiles, const std::int8_t* weights, const std::int8_t* values,
                                             const Fetch& fetch) {
    tiles.load<4>(weights, 64);
    tiles.load<6>(values, 64);
    tiles.multiply<0, 4, 6, DType::u8>();
    fetch(1);
    tiles.load<7>(values + kTileBytes, 64);
    tiles.multiply<1, 4, 7, DType::u8>();
    tiles.load<6>(values + 2 * kTileBytes, 64);
    tiles.multiply<2, 4, 6, DType::u8>();
    fetch(2);
    tiles.load<7>(values + 3 * kTileBytes, 64);
    tiles.multiply<3, 4, 7, DType::u8>();
  }
  SACCADE_INLINE static void join_columns(const Sum* sums, int row, float unit, int t, float* to) {
    join_digit_columns(sums + row * 4 * 16, unit, t, to);
  }
};

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
