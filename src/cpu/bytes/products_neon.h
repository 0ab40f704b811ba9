// Products of bytes in NEON, for bytes/vector_decode.h: of four bytes of one row and one column (SDOT), or of
// eight bytes of two rows and two columns (SMMLA, where SACCADE_MATRIX_PRODUCT is defined). A row of a group has
// three digits; digit i of row r is number 3 r + i of the group's twelve.
#pragma once

#include "cpu/bytes/rows.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// A row of i4 as `tiles` times 64 numbers of i8.
inline void put_int4_row(Int4Row row, std::int64_t tiles, std::int8_t* to) {
  const std::int64_t rest = tiles * 64 - 2 * row.half;
  if (rest > 0) std::memset(to + 2 * row.half, 0, static_cast<std::size_t>(rest));
  const std::int8_t* const multipliers = row.multipliers;
  for (std::int64_t d = 0; d < row.half; d += 16) {
    const uint8x16_t bytes = vld1q_u8(row.bytes + d);
    vst1q_s8(to + d, multiples_of(vandq_u8(bytes, vdupq_n_u8(15)), multipliers[d / 16]));
    vst1q_s8(to + row.half + d, multiples_of(vshrq_n_u8(bytes, 4), multipliers[(row.half + d) / 16]));
  }
}

/// Signed digits of 8 bits of 16 whole numbers; the last digits first.
template <int kDigits>
SACCADE_INLINE void split_integers(const int32x4_t (&numbers)[4], std::int8_t (&digits)[kDigits][16]) {
  int32x4_t rest[4] = {numbers[0], numbers[1], numbers[2], numbers[3]};
  SACCADE_UNROLL
  for (int i = 0; i < kDigits; ++i) {
    const auto low = [&](int j) __attribute__((always_inline)) { return vreinterpretq_s16_s32(rest[j]); };
    const int16x8_t first = vuzp1q_s16(low(0), low(1)), second = vuzp1q_s16(low(2), low(3));
    vst1q_s8(digits[i], vuzp1q_s8(vreinterpretq_s8_s16(first), vreinterpretq_s8_s16(second)));
    SACCADE_UNROLL
    for (int32x4_t& x : rest) x = vshrq_n_s32(vaddq_s32(x, vdupq_n_s32(128)), 8);
  }
}
/// The same of up to 16 numbers, n of them, each times 2^-exponent and rounded.
template <int kDigits>
inline void split_digits(const float* numbers, int n, int exponent, std::int8_t (&digits)[kDigits][16]) {
  const auto power = [](int e) { return std::bit_cast<float>(static_cast<std::uint32_t>(e + 127) << 23); };
  const float first = power(-exponent / 2), second = power(-exponent - -exponent / 2);
  int32x4_t whole[4];
  for (int i = 0; i < 4; ++i)
    whole[i] = vcvtnq_s32_f32(vmulq_n_f32(vmulq_n_f32(load_first(numbers + i * 4, n - i * 4), first), second));
  split_integers(whole, digits);
}

/// Whole numbers with kDigits digits, as a vector for each digit.
template <int kDigits>
SACCADE_INLINE Vec join(const int32x4_t (&sums)[kDigits]) {
  Vec x = vcvtq_f32_s32(sums[kDigits - 1]);
  SACCADE_UNROLL
  for (int i = kDigits - 2; i >= 0; --i) x = fma(x, broadcast(256), vcvtq_f32_s32(sums[i]));
  return x;
}

/// What both kinds of products have. `Products` is the kind.
template <class Products>
struct NeonByteProducts {
  static constexpr bool kHasSigns = true;
  static constexpr int kDigits = 3, kNumbers = kDigitRows * kDigits;
  static constexpr int kQueryDigits = kDigits, kWeightBits = 8 * kDigits - 2;
  static constexpr std::int32_t kMostOfQuery = 127 * (256 * 256 + 256 + 1), kMostOfWeights = kMostOfQuery;
  static constexpr std::int64_t kBiases = 0;

  static constexpr std::int64_t kQueryBytes = kNumbers * 64, kWeightBytes = kNumbers * 64;

  static int passes(int /*rows*/) { return 1; }
  static void order_columns(const Scalar* from, Scalar* columns) { std::copy_n(from, 64, columns); }

  /// The digits of 16 weights.
  static void split_weights(const float* weights, float reciprocal, std::int8_t (&digits)[kDigits][16]) {
    int32x4_t whole[4];
    for (int i = 0; i < 4; ++i) whole[i] = vcvtnq_s32_f32(vmulq_n_f32(load(weights + i * 4), reciprocal));
    split_integers(whole, digits);
  }

  /// 8 columns at a time.
  template <class Fetch, class Add>
  SACCADE_INLINE static void multiply_values(const RowTile (&rows)[4], std::int64_t w, const std::int8_t* digits,
                                             int count, int /*pass*/, const Fetch& fetch, const Add& add) {
    SACCADE_ROLLED
    for (int column = 0; column < 64; column += 8) {
      fetch(column / 4), fetch(column / 4 + 1);
      if (count == 1)
        Products::template multiply_columns<1>(rows, w, column, digits, add);
      else if (count == 2)
        Products::template multiply_columns<2>(rows, w, column, digits, add);
      else
        Products::template multiply_columns<4>(rows, w, column, digits, add);
    }
  }
};

#ifndef SACCADE_MATRIX_PRODUCT

/// SDOT: each 32-bit sum has four numbers of a key, or of a column of values.
struct ByteProducts : NeonByteProducts<ByteProducts> {
  // Queries: [16 dimensions][number][16]. Weights: [4 keys][number][4].

  static void put_query(const std::int8_t (&digits)[kDigits][16], int row, std::int64_t d, std::int8_t* to,
                        std::int32_t* /*biases*/) {
    for (int i = 0; i < kDigits; ++i) std::memcpy(to + d * kNumbers + (row * kDigits + i) * 16, digits[i], 16);
  }

  template <int kRows, class Fetch>
  SACCADE_INLINE static void multiply_keys(const RowTile& rows, std::int64_t depth, const std::int8_t* queries,
                                           const std::int32_t* /*biases*/, Vec (&to)[kRows][4],
                                           const Fetch& fetch) {
    constexpr int kTogether = kRows == 4 ? 1 : 2;  // times four keys
    SACCADE_ROLLED
    for (int four = 0; four < 4; four += kTogether) {
      int32x4_t sums[kTogether][kRows][kDigits] = {};
      SACCADE_UNROLL
      for (int i = 0; i < kTogether; ++i) fetch(four + i);
      const std::int8_t* query = as_computed(queries);
      SACCADE_ROLLED
      for (std::int64_t d = 0; d < depth; ++d) {
        SACCADE_ROLLED
        for (int quarter = 0; quarter < 4; ++quarter, query += kNumbers * 16) {
          int8x16_t keys[kTogether][4];
          SACCADE_UNROLL
          for (int i = 0; i < kTogether; ++i)
            load_words(rows.at((four + i) * 4, d) + quarter * 16, rows.stride, keys[i]);
          SACCADE_UNROLL
          for (int r = 0; r < kRows; ++r) {
            SACCADE_UNROLL
            for (int digit = 0; digit < kDigits; ++digit) {
              const int8x16_t q = vld1q_s8(query + (r * kDigits + digit) * 16);
              SACCADE_UNROLL
              for (int i = 0; i < kTogether; ++i) {
                int32x4_t& sum = sums[i][r][digit];
                sum = vdotq_laneq_s32(sum, keys[i][0], q, 0), sum = vdotq_laneq_s32(sum, keys[i][1], q, 1);
                sum = vdotq_laneq_s32(sum, keys[i][2], q, 2), sum = vdotq_laneq_s32(sum, keys[i][3], q, 3);
              }
            }
          }
        }
      }
      SACCADE_UNROLL
      for (int i = 0; i < kTogether; ++i) {
        SACCADE_UNROLL
        for (int r = 0; r < kRows; ++r) to[r][four + i] = join(sums[i][r]);
      }
    }
  }

  static void put_weights(const float* weights, float reciprocal, int row, std::int8_t* to) {
    for (int j = 0; j < 64; j += 16) {
      std::int8_t digits[kDigits][16];
      split_weights(weights + j, reciprocal, digits);
      for (int i = 0; i < kDigits; ++i)
        for (int four = 0; four < 16; four += 4)
          std::memcpy(to + (j + four) * kNumbers + (row * kDigits + i) * 4, digits[i] + four, 4);
    }
  }

  template <int kRows, class Add>
  SACCADE_INLINE static void multiply_columns(const RowTile (&rows)[4], std::int64_t w, int column,
                                              const std::int8_t* digits, const Add& add) {
    int32x4_t sums[2][kRows][kDigits] = {};
    const std::int8_t* weights = as_computed(digits);
    SACCADE_ROLLED
    for (const RowTile& tile : rows) {
      const std::int64_t stride = as_computed(tile.stride);
      const std::int8_t* values = tile.at(0, w) + column;
      SACCADE_ROLLED
      for (int four = 0; four < 4; ++four, values += 4 * stride, weights += kNumbers * 4) {
        int8x16_t x[2], weight[(kRows * kDigits + 3) / 4];
        load_columns_of_four(values, stride, x);
        SACCADE_UNROLL
        for (int i = 0; i < kRows * kDigits; i += 4) weight[i / 4] = vld1q_s8(weights + i * 4);
        SACCADE_UNROLL
        for (int i = 0; i < kRows * kDigits; ++i) {
          SACCADE_UNROLL
          for (int half = 0; half < 2; ++half) {
            int32x4_t& sum = sums[half][i / kDigits][i % kDigits];
            sum = multiply_lane(sum, x[half], weight[i / 4], i % 4);
          }
        }
      }
    }
    SACCADE_UNROLL
    for (int r = 0; r < kRows; ++r) add(r, column, join(sums[0][r])), add(r, column + 4, join(sums[1][r]));
  }

 private:
  /// 16 numbers of four rows: word i of x[c] has four numbers, from 4 c on, of row i.
  SACCADE_INLINE static void load_words(const std::int8_t* rows, std::int64_t stride, int8x16_t (&x)[4]) {
    const auto row = [&](int i) __attribute__((always_inline)) {
      return vreinterpretq_s32_s8(vld1q_s8(rows + i * stride));
    };
    const int32x4_t r0 = row(0), r1 = row(1), r2 = row(2), r3 = row(3);
    const int64x2_t even01 = vreinterpretq_s64_s32(vtrn1q_s32(r0, r1));
    const int64x2_t odd01 = vreinterpretq_s64_s32(vtrn2q_s32(r0, r1));
    const int64x2_t even23 = vreinterpretq_s64_s32(vtrn1q_s32(r2, r3));
    const int64x2_t odd23 = vreinterpretq_s64_s32(vtrn2q_s32(r2, r3));
    x[0] = vreinterpretq_s8_s64(vtrn1q_s64(even01, even23)), x[1] = vreinterpretq_s8_s64(vtrn1q_s64(odd01, odd23));
    x[2] = vreinterpretq_s8_s64(vtrn2q_s64(even01, even23)), x[3] = vreinterpretq_s8_s64(vtrn2q_s64(odd01, odd23));
  }
  /// 8 columns of four rows: word i of x[half] has column 4 half + i.
  SACCADE_INLINE static void load_columns_of_four(const std::int8_t* rows, std::int64_t stride,
                                                  int8x16_t (&x)[2]) {
    const auto row = [&](int i) __attribute__((always_inline)) {
      return vcombine_s8(vld1_s8(rows + i * stride), vdup_n_s8(0));
    };
    const int16x8_t first = vreinterpretq_s16_s8(vzip1q_s8(row(0), row(1)));
    const int16x8_t second = vreinterpretq_s16_s8(vzip1q_s8(row(2), row(3)));
    x[0] = vreinterpretq_s8_s16(vzip1q_s16(first, second)), x[1] = vreinterpretq_s8_s16(vzip2q_s16(first, second));
  }
  SACCADE_INLINE static int32x4_t multiply_lane(int32x4_t sum, int8x16_t a, int8x16_t b, int lane) {
    if (lane == 0) return vdotq_laneq_s32(sum, a, b, 0);
    if (lane == 1) return vdotq_laneq_s32(sum, a, b, 1);
    return lane == 2 ? vdotq_laneq_s32(sum, a, b, 2) : vdotq_laneq_s32(sum, a, b, 3);
  }
};

#else

/// SMMLA: four sums have eight numbers each, of two keys, or columns of values, with two of the group's numbers.
struct ByteProducts : NeonByteProducts<ByteProducts> {
  static constexpr int kPairs = kNumbers / 2;
  // Queries: [8 dimensions][pair of numbers][2][8]. Weights: [8 keys][pair of numbers][2][8].

  static void put_query(const std::int8_t (&digits)[kDigits][16], int row, std::int64_t d, std::int8_t* to,
                        std::int32_t* /*biases*/) {
    put(digits, row, to + d * kNumbers);
  }
  static void put_weights(const float* weights, float reciprocal, int row, std::int8_t* to) {
    for (int j = 0; j < 64; j += 16) {
      std::int8_t digits[kDigits][16];
      split_weights(weights + j, reciprocal, digits);
      put(digits, row, to + j * kNumbers);
    }
  }

  template <int kRows, class Fetch>
  SACCADE_INLINE static void multiply_keys(const RowTile& rows, std::int64_t depth, const std::int8_t* queries,
                                           const std::int32_t* /*biases*/, Vec (&to)[kRows][4],
                                           const Fetch& fetch) {
    constexpr int kTogether = kRows == 4 ? 1 : 2;  // times four keys
    constexpr int kUsed = (kRows * kDigits + 1) / 2;
    SACCADE_ROLLED
    for (int four = 0; four < 4; four += kTogether) {
      int32x4_t sums[kTogether][2][kUsed] = {};
      SACCADE_UNROLL
      for (int i = 0; i < kTogether; ++i) fetch(four + i);
      const std::int8_t* query = as_computed(queries);
      SACCADE_ROLLED
      for (std::int64_t d = 0; d < depth; ++d) {
        SACCADE_ROLLED
        for (int quarter = 0; quarter < 4; ++quarter, query += kNumbers * 16) {
          int8x16_t keys[kTogether][2][2];  // [half of 16 numbers][two keys]
          SACCADE_UNROLL
          for (int i = 0; i < kTogether; ++i)
            load_halves(rows.at((four + i) * 4, d) + quarter * 16, rows.stride, keys[i]);
          SACCADE_UNROLL
          for (int half = 0; half < 2; ++half) {
            SACCADE_UNROLL
            for (int p = 0; p < kUsed; ++p) {
              const int8x16_t q = vld1q_s8(query + (half * kPairs + p) * 16);
              SACCADE_UNROLL
              for (int i = 0; i < kTogether; ++i) {
                sums[i][0][p] = vmmlaq_s32(sums[i][0][p], keys[i][half][0], q);
                sums[i][1][p] = vmmlaq_s32(sums[i][1][p], keys[i][half][1], q);
              }
            }
          }
        }
      }
      SACCADE_UNROLL
      for (int i = 0; i < kTogether; ++i)
        join_pairs<kRows>(sums[i][0], sums[i][1], [&](int r, Vec x) { to[r][four + i] = x; });
    }
  }

  template <int kRows, class Add>
  SACCADE_INLINE static void multiply_columns(const RowTile (&rows)[4], std::int64_t w, int column,
                                              const std::int8_t* digits, const Add& add) {
    constexpr int kUsed = (kRows * kDigits + 1) / 2;
    int32x4_t sums[4][kUsed] = {};
    const std::int8_t* weights = as_computed(digits);
    SACCADE_ROLLED
    for (int row = 0; row < 64; row += 8, weights += kNumbers * 8) {
      const RowTile& tile = rows[row / 16];
      int8x16_t x[4];
      load_columns_of_eight(tile.at(row % 16, w) + column, as_computed(tile.stride), x);
      SACCADE_UNROLL
      for (int p = 0; p < kUsed; ++p) {
        const int8x16_t weight = vld1q_s8(weights + p * 16);
        SACCADE_UNROLL
        for (int i = 0; i < 4; ++i) sums[i][p] = vmmlaq_s32(sums[i][p], x[i], weight);
      }
    }
    SACCADE_UNROLL
    for (int half = 0; half < 2; ++half)
      join_pairs<kRows>(
          sums[2 * half],
          sums[2 * half + 1], [&](int r, Vec x) __attribute__((always_inline)) { add(r, column + 4 * half, x); });
  }

 private:
  static void put(const std::int8_t (&digits)[kDigits][16], int row, std::int8_t* to) {
    for (int i = 0; i < kDigits; ++i)
      for (int half = 0; half < 2; ++half)
        std::memcpy(to + half * kNumbers * 8 + (row * kDigits + i) * 8, digits[i] + half * 8, 8);
  }
  /// 16 numbers of four rows: x[half][i] has 8 of rows 2 i and 2 i + 1.
  SACCADE_INLINE static void load_halves(const std::int8_t* rows, std::int64_t stride, int8x16_t (&x)[2][2]) {
    SACCADE_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int64x2_t even = vreinterpretq_s64_s8(vld1q_s8(rows + 2 * i * stride));
      const int64x2_t odd = vreinterpretq_s64_s8(vld1q_s8(rows + (2 * i + 1) * stride));
      x[0][i] = vreinterpretq_s8_s64(vzip1q_s64(even, odd));
      x[1][i] = vreinterpretq_s8_s64(vzip2q_s64(even, odd));
    }
  }
  /// 8 columns of eight rows: x[i] has columns 2 i and 2 i + 1.
  SACCADE_INLINE static void load_columns_of_eight(const std::int8_t* rows, std::int64_t stride,
                                                   int8x16_t (&x)[4]) {
    const auto two = [&](int i) __attribute__((always_inline)) {
      const auto row = [&](int j) __attribute__((always_inline)) {
        return vcombine_s8(vld1_s8(rows + j * stride), vdup_n_s8(0));
      };
      return vreinterpretq_s16_s8(vzip1q_s8(row(i), row(i + 1)));
    };
    const int16x8_t r01 = two(0), r23 = two(2), r45 = two(4), r67 = two(6);
    const int32x4_t low0 = vreinterpretq_s32_s16(vzip1q_s16(r01, r23));
    const int32x4_t high0 = vreinterpretq_s32_s16(vzip2q_s16(r01, r23));
    const int32x4_t low4 = vreinterpretq_s32_s16(vzip1q_s16(r45, r67));
    const int32x4_t high4 = vreinterpretq_s32_s16(vzip2q_s16(r45, r67));
    x[0] = vreinterpretq_s8_s32(vzip1q_s32(low0, low4)), x[1] = vreinterpretq_s8_s32(vzip2q_s32(low0, low4));
    x[2] = vreinterpretq_s8_s32(vzip1q_s32(high0, high4)), x[3] = vreinterpretq_s8_s32(vzip2q_s32(high0, high4));
  }
  /// Calls f(row, sums) for each row, with the sums of four keys or columns: `low` has those of the first two,
  /// `high` of the others.
  template <int kRows, int kUsed, class F>
  SACCADE_INLINE static void join_pairs(const int32x4_t (&low)[kUsed], const int32x4_t (&high)[kUsed],
                                        const F& f) {
    int32x4_t sums[kRows + 1][kDigits];
    SACCADE_UNROLL
    for (int p = 0; p < kUsed; ++p) {
      sums[2 * p / kDigits][2 * p % kDigits] = vuzp1q_s32(low[p], high[p]);
      sums[(2 * p + 1) / kDigits][(2 * p + 1) % kDigits] = vuzp2q_s32(low[p], high[p]);
    }
    SACCADE_UNROLL
    for (int r = 0; r < kRows; ++r) f(r, join(sums[r]));
  }
};

#endif

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
