// decode() of keys and values of i8 and i4 by products of bytes on vectors. Like attention/decode.h, with
//
//   for each 16 keys         S = K Q^T      Q as a few digits
//   for each 64 keys         O += P V       P likewise
//
// Four keys are multiplied at a time: each 32-bit sum has some numbers of one key and of one row's digits, and the
// sums of a key are added up at the end. Keys are without a sign: 128 is added to each number, and taken off again
// by the sums' first value. bytes/words_avx512.h has the instructions.
//
// Queries are three digits of 8 bits, relative to the largest number of a row. Weights are three digits too, or
// two with queries of bf16, relative to the largest of 64 keys, so that few are too small to count.
#pragma once

#include "cpu/bytes/decode.h"
#include "cpu/bytes/words_avx512.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

template <int kDigitsOfWeights>
struct DigitFormat {
  static constexpr bool kHasInt4 = true, kHasSigns = false, kFetchesNextSplit = true;
  static constexpr int kWeightDigits = kDigitsOfWeights, kWeightBits = 8 * kWeightDigits - 1, kUnitKeys = 64;
};

/// Rows whose weights are multiplied together: their sums are in registers.
inline constexpr int kWeightRows = 2;

inline constexpr int kQueryDigits = 3;
/// The largest number of so many digits from -128 to 127.
inline constexpr std::int32_t kMostOfDigits = 127 * (256 * 256 + 256 + 1);

/// Scratch memory for one kv head.
template <class Format>
class ByteVectorScratch : public ScratchSlices {
 public:
  static constexpr std::int64_t kScoreStride = kDecodeSplit + 16;

  ByteVectorScratch(const AttentionParams& p, std::int64_t rows, void* memory) : ScratchSlices(memory) {
    depth = lines_of(p.k.dtype, p.head_dim), width = lines_of(p.v.dtype, p.head_dim_v);
    groups = (rows + kDigitRows - 1) / kDigitRows;
    queries = take<std::int8_t>(groups * depth * kQueryBytes);
    biases = take<std::int32_t>(groups * kDigitRows * kQueryDigits * 16);
    query = take<Scalar>(depth * 64);
    factors = take<Scalar>(groups * kDigitRows);
    copies = take<std::int8_t>(4 * std::max(depth, width) * kTileBytes);
    scores = take<Scalar>(groups * kDigitRows * kScoreStride);
    weights = take<Scalar>(rows * kScoreStride);
    digits = take<std::uint8_t>(groups * kDigitRows * Format::kWeightDigits * 64);
    zeros = take<std::int8_t>(width * 64);
    outputs = take<Scalar>(groups * kDigitRows * width * 64);
    units = take<Scalar>(rows * (kDecodeSplit / Format::kUnitKeys));
    scales = take<Scalar>(kDecodeSplit);
    mask = take<Scalar>(kDecodeBlock);
  }
  static std::int64_t size(const AttentionParams& p, std::int64_t rows) {
    return static_cast<std::int64_t>(ByteVectorScratch(p, rows, nullptr).bytes() / sizeof(Scalar));
  }
  static std::int64_t lines_of(DType dtype, std::int64_t dim) { return (stored_dim(dtype, dim) + 63) / 64; }

  static constexpr std::int64_t kQueryBytes = 4 * kDigitRows * kQueryDigits * 64;  // of 64 numbers

  std::int64_t depth, width;  // in 64 numbers
  std::int64_t groups;        // of kDigitRows rows
  std::int8_t* queries;       // [group][depth][4][row][digit][64]: see load_four_keys()
  std::int32_t* biases;       // [rows][digit][16]: -128 times the sum of the digits of each sum
  Scalar* query;              // [depth][64]: one of bf16, widened
  Scalar* factors;            // [rows]: the value of the last digit
  std::int8_t* copies;        // [64 keys][depth or width][64]: of rows not read in place
  Scalar* scores;             // [rows][kScoreStride], rows a multiple of 4
  Scalar* weights;            // the same, for the masked_safe path, which needs the scores
  std::uint8_t* digits;       // [rows][digit][64]: of the weights of 64 keys
  std::int8_t* zeros;         // a row of zeros
  Scalar* outputs;            // [rows][width][64], in the order of load_four_values()
  Scalar* units;              // [rows][64 keys]: the value of the last digit of a weight; 0: the row has no digits
  Scalar* scales;             // [kDecodeSplit]
  Scalar* mask;               // [kDecodeBlock]
};

/// The steps of DecodeHead.
template <class Format>
class ByteVectorHead : public ByteDecodeSteps<ByteVectorScratch<Format>, Format> {
  using Steps = ByteDecodeSteps<ByteVectorScratch<Format>, Format>;

 public:
  using Scratch = ByteVectorScratch<Format>;
  using Registers = NoRegisters;
  using Steps::Steps;
  static constexpr std::int64_t kStep = 64;

  void start() {
    std::memset(scratch_.queries, 0,
                static_cast<std::size_t>(scratch_.groups * scratch_.depth * Scratch::kQueryBytes));
    std::fill_n(scratch_.biases, scratch_.groups * kDigitRows * kQueryDigits * 16, 0);
    std::memset(scratch_.digits, 0, static_cast<std::size_t>(scratch_.groups * kDigitRows * kWeightDigits * 64));
    std::memset(scratch_.zeros, 0, static_cast<std::size_t>(scratch_.width * 64));
    std::fill_n(scratch_.factors, scratch_.groups * kDigitRows, Scalar{0});
    for (int r = 0; r < count_; ++r) put_query(r);
    this->plan();
    read_scales(p_.key_source(rows_.batch, kv_head_));
  }

  /// Computes the requested products of keys [key, key + count), multiples of 16.
  void score(Registers&, std::int64_t key, std::int64_t count) {
    with_rows(p_.key_source(rows_.batch, kv_head_), scratch_.depth, [&](const auto& keys) {
      const std::int64_t ahead = keys.rows_of(kKeysAhead);
      for (std::int64_t at = key; at < key + count; at += 16) {
        if (!is_wanted(at)) continue;
        const RowTile rows = keys.tile(at, 0), next = keys.next(at + ahead);
        const auto fetch = [&](int quarter) __attribute__((always_inline)) {
          keys.template fetch<4, kToL2>(next, quarter * 4);
        };
        multiply_keys(rows, keys.tiles(), 0, at - begin_, fetch);
        for (std::int64_t g = 1; g < scratch_.groups; ++g)
          multiply_keys(rows, keys.tiles(), g, at - begin_, [](int) {});
      }
    });
  }

  void soften() {
    Steps::soften();
    std::fill_n(scratch_.outputs, scratch_.groups * kDigitRows * scratch_.width * 64, Scalar{0});
  }

  /// Adds the values of keys [key, key + count), multiples of 64, weighted.
  void add_values(Registers&, std::int64_t key, std::int64_t count) {
    with_rows(p_.value_source(rows_.batch, kv_head_), scratch_.width, [&](const auto& values) {
      for (std::int64_t first = key; first < key + count; first += 64) {
        if (!is_wanted(first) && !is_wanted(first + 32)) continue;
        RowTile rows[4], next[4];
        for (int t = 0; t < 4; ++t) {
          const std::int64_t at = first + t * 16;
          rows[t] = is_wanted(at) ? values.tile(at, t) : RowTile{scratch_.zeros, 0};
          next[t] = values.next(at + 64);
        }
        put_weights(first - begin_);
        const int passes = static_cast<int>(values.tiles()) * passes_of(0);
        int pass = 0;
        for (std::int64_t g = 0; g < scratch_.groups; ++g) {
          for (int i = 0; i < passes_of(g); ++i) {
            for (std::int64_t w = 0; w < values.tiles(); ++w, ++pass) {
              const int begin = std::min(4 * pass / passes, 4), end = std::min(4 * (pass + 1) / passes, 4);
              const auto fetch = [&](int row) __attribute__((always_inline)) {
                for (int t = begin; t < end; ++t) values.template fetch<1, kToL1>(next[t], row);
              };
              multiply_values(rows, static_cast<int>(g) * kDigitRows + i * kWeightRows, w, first - begin_, fetch);
            }
          }
        }
      }
    });
  }

  void keep_output() {
    for (int r = 0; r < count_; ++r) {
      for (std::int64_t w = 0; w < scratch_.width; ++w) {
        Scalar columns[64];
        const Scalar* const from = output(r, w);
        for (int t = 0; t < 4; ++t)
          for (int quarter = 0; quarter < 4; ++quarter)
            std::copy_n(from + t * 16 + quarter * 4, 4, columns + quarter * 16 + t * 4);
        std::copy_n(columns, std::min<std::int64_t>(64, p_.head_dim_v - w * 64), state(r) + w * 64);
      }
      if (!has_digits(r)) this->add_values_without_digits(r);
      std::fill(state(r) + p_.head_dim_v, state(r) + decode_output_stride(p_), Scalar{0});
    }
  }

 private:
  static constexpr int kWeightDigits = Format::kWeightDigits;
  using Steps::p_, Steps::rows_, Steps::kv_head_, Steps::count_, Steps::begin_, Steps::scratch_, Steps::scores,
      Steps::state, Steps::is_wanted, Steps::weights, Steps::has_digits, Steps::unit, Steps::with_rows,
      Steps::read_scales;

  std::int8_t* queries(std::int64_t group) const {
    return scratch_.queries + group * scratch_.depth * Scratch::kQueryBytes;
  }
  std::int32_t* biases(int r) const { return scratch_.biases + r * kQueryDigits * 16; }
  std::uint8_t* digits(int r) const { return scratch_.digits + r * kWeightDigits * 64; }
  Scalar* output(int r, std::int64_t w) const { return scratch_.outputs + (r * scratch_.width + w) * 64; }

  // ---- Queries

  void put_query(int r) {
    Steps::put_query(
        r,
        [](Scalar largest) {
          const int exponent = Steps::exponent_of(largest) - 22;
          return largest * Steps::power_of_2(-exponent) > kMostOfDigits ? exponent + 1 : exponent;
        },
        [&](const float* numbers, int exponent, std::int64_t d, int n) {
          alignas(16) std::int8_t digits[kQueryDigits][16];
          split_digits(numbers, n, exponent, digits);
          put_digits(r, d, digits);
        });
  }
  /// The digits of 16 numbers, each four of them for four keys.
  void put_digits(int r, std::int64_t d, const std::int8_t (&digits)[kQueryDigits][16]) {
    const std::int64_t quarter = d % 64 / 16;
    std::int8_t* const to =
        queries(r / kDigitRows) + d / 64 * Scratch::kQueryBytes + r % kDigitRows * kQueryDigits * 64;
    for (int i = 0; i < kQueryDigits; ++i) {
      std::int32_t sum = 0;
      for (int j = 0; j < 16; ++j) sum += digits[i][j];
      for (int key = 0; key < 4; ++key) {
        biases(r)[i * 16 + quarter * 4 + key] -= 128 * sum;
        for (int c = 0; c < 4; ++c)
          std::memcpy(to + (c * kDigitRows * kQueryDigits + i) * 64 + (quarter * 4 + key) * 4, digits[i] + 4 * c,
                      4);
      }
    }
  }
  // ---- S = Q K^T

  // Prefetches are spread over the work on the rows before. With keys 2 KiB ahead to the L1 cache, decode() took
  // 1.04 times as long (32768 keys of i8 in memory, Zen 4).
  static constexpr std::int64_t kKeysAhead = 16384;  // bytes; of values, the next 64 rows
  static constexpr int kToL1 = 3, kToL2 = 2;

  /// Rows of a group that exist.
  int rows_of(std::int64_t group) const {
    return std::min(count_ - static_cast<int>(group) * kDigitRows, kDigitRows);
  }
  int passes_of(std::int64_t group) const { return (rows_of(group) + kWeightRows - 1) / kWeightRows; }

  template <class Fetch>
  SACCADE_INLINE void multiply_keys(const RowTile& rows, std::int64_t depth, std::int64_t group,
                                    std::int64_t column, const Fetch& fetch) {
    const int count = rows_of(group);
    if (count == 1) return multiply_keys<1>(rows, depth, group, column, fetch);
    if (count == 2) return multiply_keys<2>(rows, depth, group, column, fetch);
    multiply_keys<4>(rows, depth, group, column, fetch);
  }

  /// The scores of 16 keys. Calls fetch(0) to fetch(3) on the way.
  template <int kRows, class Fetch>
  SACCADE_INLINE void multiply_keys(const RowTile& rows, std::int64_t depth, std::int64_t group,
                                    std::int64_t column, const Fetch& fetch) {
    constexpr int kTogether = 4 / kRows;  // times four keys
    const int first = static_cast<int>(group) * kDigitRows;
    alignas(64) Scalar products[kRows][4][kWidth];
    for (int four = 0; four < 4; four += kTogether) {
      Sums sums[kTogether][kRows][kQueryDigits];
      SACCADE_UNROLL
      for (int i = 0; i < kTogether; ++i) {
        SACCADE_UNROLL
        for (int r = 0; r < kRows; ++r) {
          SACCADE_UNROLL
          for (int digit = 0; digit < kQueryDigits; ++digit)
            sums[i][r][digit] = load_sums(biases(first + r) + digit * 16);
        }
        fetch(four + i);
      }
      const std::int8_t* query = as_computed(queries(group));
      for (std::int64_t d = 0; d < depth; ++d, query += Scratch::kQueryBytes) {
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
    const Vec scales = load(scratch_.scales + column);
    SACCADE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const Vec x = add_lanes(add_lanes(load(products[r][0]), load(products[r][1])),
                              add_lanes(load(products[r][2]), load(products[r][3])));
      store(scores(first + r) + column, mul(mul(x, broadcast(scratch_.factors[first + r])), scales));
    }
  }

  /// The sums of products with digits as numbers.
  template <int kDigits>
  SACCADE_INLINE static Vec join(const Sums (&sums)[kDigits]) {
    Vec x = as_numbers(sums[kDigits - 1]);
    SACCADE_UNROLL
    for (int i = kDigits - 2; i >= 0; --i) x = fma(x, broadcast(256), as_numbers(sums[i]));
    return x;
  }

  // ---- O += P V

  void put_weights(std::int64_t column) {
    for (int r = 0; r < count_; ++r)
      if (has_digits(r)) put_weight_digits<kWeightDigits>(weights(r) + column, 1 / unit(r, column), digits(r));
  }

  /// Adds 64 values to kWeightRows rows. Calls fetch(0) to fetch(15) on the way.
  template <class Fetch>
  SACCADE_INLINE void multiply_values(const RowTile (&rows)[4], int first, std::int64_t w, std::int64_t column,
                                      const Fetch& fetch) {
    Sums sums[kWeightRows][4][kWeightDigits];
    SACCADE_UNROLL
    for (int r = 0; r < kWeightRows; ++r) {
      SACCADE_UNROLL
      for (int t = 0; t < 4; ++t) {
        SACCADE_UNROLL
        for (int digit = 0; digit < kWeightDigits; ++digit) sums[r][t][digit] = no_sums();
      }
    }
    const std::uint8_t* const given = digits(first);
    for (int row = 0; row < 64; row += 4) {
      const RowTile& tile = rows[row / 16];
      fetch(row / 4);
      Bytes values[4];
      load_four_values(tile.at(row % 16, w), tile.stride, values);
      SACCADE_UNROLL
      for (int r = 0; r < kWeightRows; ++r) {
        SACCADE_UNROLL
        for (int digit = 0; digit < kWeightDigits; ++digit) {
          const Bytes weight = broadcast_four(given + (r * kWeightDigits + digit) * 64 + row);
          SACCADE_UNROLL
          for (int t = 0; t < 4; ++t) sums[r][t][digit] = add_products(sums[r][t][digit], weight, values[t]);
        }
      }
    }
    SACCADE_UNROLL
    for (int r = 0; r < kWeightRows; ++r) {
      if (first + r >= count_ || !has_digits(first + r)) continue;
      const Vec factor = broadcast(unit(first + r, column));
      Scalar* const to = output(first + r, w);
      SACCADE_UNROLL
      for (int t = 0; t < 4; ++t) store(to + t * 16, fma(join(sums[r][t]), factor, load(to + t * 16)));
    }
  }
};

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
