// e4m3 on tiles of bf16, which has all of its numbers. Queries and weights are three parts of bf16, which have all
// bits of a float, relative to the row's largest number: tiles take numbers below 2^-126 as 0. Products are exact,
// and their sums rounded to f32.
#pragma once

#include "cpu/bytes/rows.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

struct Float8Format {
  using Sum = float;
  static constexpr bool kHasInt4 = false, kHasNan = true, kHasSigns = true, kFetchesNextSplit = false;
  static constexpr int kQueryBits = 0, kWeightBits = 0, kUnitKeys = kDecodeSplit;
  static constexpr double kMostOfWeights = 2;
  static constexpr std::int64_t kQueryBytes =
      2 * kTileBytes;  // of 64 numbers: [2][16 pairs][part][row][2 numbers]
  static constexpr std::int64_t kWeightBytes = 2 * kTileBytes;  // of 64 weights: [32 of them][part][row][16 pairs]
  static constexpr std::int64_t kValueBytes =
      8 * kTileBytes;  // of 64 keys: [32 of them][tile][16 pairs][16 columns]

  SACCADE_INLINE static void put_query(const float* numbers, int n, int exponent, std::int64_t at, int row,
                                       std::int8_t* to) {
    put_query_parts(numbers, n, exponent, to + at * 16 + row * 4);
  }
  /// Of 64 numbers, or of 128.
  SACCADE_INLINE static void load_queries(Tiles& tiles, const std::int8_t* queries, std::int64_t count) {
    tiles.load<4>(queries, 64), tiles.load<5>(queries + kTileBytes, 64);
    if (count > 1) tiles.load<6>(queries + 2 * kTileBytes, 64), tiles.load<7>(queries + 3 * kTileBytes, 64);
  }
  template <int kQuery>
  SACCADE_INLINE static void multiply_keys(Tiles& tiles, const RowTile (&rows)[2], std::int64_t d) {
    alignas(64) std::int8_t wide[4 * kTileBytes];
    put_float8_rows(rows[0].at(0, d), rows[0].stride, wide);
    put_float8_rows(rows[1].at(0, d), rows[1].stride, wide + 2 * kTileBytes);
    tiles.load<2>(wide, 64);
    tiles.multiply<0, 2, 4 + 2 * kQuery>();
    tiles.load<3>(wide + kTileBytes, 64);
    tiles.multiply<0, 3, 5 + 2 * kQuery>();
    tiles.load<2>(wide + 2 * kTileBytes, 64);
    tiles.multiply<1, 2, 4 + 2 * kQuery>();
    tiles.load<3>(wide + 3 * kTileBytes, 64);
    tiles.multiply<1, 3, 5 + 2 * kQuery>();
  }
  SACCADE_INLINE static void join_scores(const Sum* products, const float* factors, const float* scales, float* to,
                                         std::int64_t stride) {
    join_parts(products, factors, scales, to, stride);
  }

  SACCADE_INLINE static void put_weights(const float* weights, float reciprocal, int row, std::int8_t* to) {
    for (int half = 0; half < 2; ++half)
      put_weight_parts(weights + half * 32, reciprocal, to + half * kTileBytes + row * 64, kDigitRows * 64);
  }
  /// An eighth of 32 rows: two pairs of keys j and 16 + j.
  SACCADE_INLINE static void interleave(const RowTile (&rows)[2], int half, int i, std::int64_t w,
                                        std::int8_t* to) {
    for (int j = 2 * i; j < 2 * i + 2; ++j)
      interleave_float8(rows[0].at(j, w), rows[1].at(j, w), to + half * 4 * kTileBytes + j * 64);
  }
  template <class Fetch>
  SACCADE_INLINE static void multiply_values(Tiles& tiles, const std::int8_t* weights, const std::int8_t* values,
                                             const Fetch& fetch) {
    for (int half = 0; half < 2; ++half, weights += kTileBytes, values += 4 * kTileBytes) {
      tiles.load<4>(weights, 64);
      tiles.load<6>(values, 64);
      tiles.multiply<0, 4, 6>();
      tiles.load<7>(values + kTileBytes, 64);
      tiles.multiply<1, 4, 7>();
      fetch(1 + half);
      tiles.load<6>(values + 2 * kTileBytes, 64);
      tiles.multiply<2, 4, 6>();
      tiles.load<7>(values + 3 * kTileBytes, 64);
      tiles.multiply<3, 4, 7>();
    }
  }
  SACCADE_INLINE static void join_columns(const Sum* sums, int row, float unit, int t, float* to) {
    join_part_columns(sums + row * 16, kDigitRows * 16, unit, t, to);
  }
};

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
