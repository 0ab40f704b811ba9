// decode() of keys and values of i8 and i4 by products of bytes on vectors. Like attention/decode.h, with
//
//   for each 16 keys         S = K Q^T      Q as a few digits
//   for each 64 keys         O += P V       P likewise
//
// Queries and weights are digits of 8 bits, relative to the largest number of a row, and to the largest of 64
// weights, so that few are too small to count. `Products` has the instructions (bytes/products_avx512.h and
// bytes/products_neon.h):
//   kWeightBits, kMostOfWeights, kHasSigns    see ByteDecodeSteps
//   kQueryDigits, kMostOfQuery  digits of a query, and the largest number that they hold
//   kQueryBytes, kBiases        memory of 64 numbers of kDigitRows queries, and numbers that a row has beside them
//   put_query()                 puts the digits of 16 numbers there
//   multiply_keys()             the sums of products of queries and 16 keys
//   kWeightBytes                memory of 64 weights of kDigitRows rows
//   put_weights()               puts their digits there
//   passes(), multiply_values() the sums of products of weights and 64 values, in passes of some rows of the group
//   order_columns()             puts 64 columns into ascending order
#pragma once

#include "cpu/bytes/decode.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

template <class Products>
struct ByteVectorFormat : Products {
  static constexpr bool kHasInt4 = true, kFetchesNextSplit = true;
  static constexpr int kUnitKeys = 64;
};

/// Scratch memory for one kv head.
template <class Products>
class ByteVectorScratch : public ScratchSlices {
 public:
  static constexpr std::int64_t kScoreStride = kDecodeSplit + 16;

  ByteVectorScratch(const AttentionParams& p, std::int64_t rows, void* memory) : ScratchSlices(memory) {
    depth = lines_of(p.k.dtype, p.head_dim), width = lines_of(p.v.dtype, p.head_dim_v);
    groups = (rows + kDigitRows - 1) / kDigitRows;
    queries = take<std::int8_t>(groups * depth * Products::kQueryBytes);
    biases = take<std::int32_t>(groups * kDigitRows * Products::kBiases);
    query = take<Scalar>(depth * 64);
    factors = take<Scalar>(groups * kDigitRows);
    copies = take<std::int8_t>(4 * std::max(depth, width) * kTileBytes);
    scores = take<Scalar>(groups * kDigitRows * kScoreStride);
    weights = take<Scalar>(rows * kScoreStride);
    digits = take<std::int8_t>(groups * Products::kWeightBytes);
    zeros = take<std::int8_t>(width * 64);
    outputs = take<Scalar>(groups * kDigitRows * width * 64);
    units = take<Scalar>(rows * (kDecodeSplit / ByteVectorFormat<Products>::kUnitKeys));
    scales = take<Scalar>(kDecodeSplit);
    mask = take<Scalar>(kDecodeBlock);
  }
  static std::int64_t size(const AttentionParams& p, std::int64_t rows) {
    return static_cast<std::int64_t>(ByteVectorScratch(p, rows, nullptr).bytes() / sizeof(Scalar));
  }
  static std::int64_t lines_of(DType dtype, std::int64_t dim) { return (stored_dim(dtype, dim) + 63) / 64; }

  std::int64_t depth, width;  // in 64 numbers
  std::int64_t groups;        // of kDigitRows rows
  std::int8_t* queries;       // [group][depth][kQueryBytes]
  std::int32_t* biases;       // [rows][kBiases]
  Scalar* query;              // [depth][64]: one of bf16, widened
  Scalar* factors;            // [rows]: the value of the last digit
  std::int8_t* copies;        // [64 keys][depth or width][64]: of rows not read in place
  Scalar* scores;             // [rows][kScoreStride], rows a multiple of 4
  Scalar* weights;            // the same, for the masked_safe path, which needs the scores
  std::int8_t* digits;        // [group][kWeightBytes]: of the weights of 64 keys
  std::int8_t* zeros;         // a row of zeros
  Scalar* outputs;            // [rows][width][64], in the order of Products
  Scalar* units;              // [rows][64 keys]: the value of the last digit of a weight; 0: the row has no digits
  Scalar* scales;             // [kDecodeSplit]
  Scalar* mask;               // [kDecodeBlock]
};

/// The steps of DecodeHead.
template <class Products>
class ByteVectorHead : public ByteDecodeSteps<ByteVectorScratch<Products>, ByteVectorFormat<Products>> {
  using Steps = ByteDecodeSteps<ByteVectorScratch<Products>, ByteVectorFormat<Products>>;

 public:
  using Scratch = ByteVectorScratch<Products>;
  using Registers = NoRegisters;
  using Steps::Steps;
  static constexpr std::int64_t kStep = 64;

  void start() {
    std::memset(scratch_.queries, 0,
                static_cast<std::size_t>(scratch_.groups * scratch_.depth * Products::kQueryBytes));
    std::fill_n(scratch_.biases, scratch_.groups * kDigitRows * Products::kBiases, 0);
    std::memset(scratch_.digits, 0, static_cast<std::size_t>(scratch_.groups * Products::kWeightBytes));
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
        int done = 0;
        for (std::int64_t g = 0; g < scratch_.groups; ++g) {
          for (int pass = 0; pass < passes_of(g); ++pass) {
            for (std::int64_t w = 0; w < values.tiles(); ++w, ++done) {
              const int begin = std::min(4 * done / passes, 4), end = std::min(4 * (done + 1) / passes, 4);
              const auto fetch = [&](int row) __attribute__((always_inline)) {
                for (int t = begin; t < end; ++t) values.template fetch<1, kToL1>(next[t], row);
              };
              multiply_values(rows, g, pass, w, first - begin_, fetch);
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
        Products::order_columns(output(r, w), columns);
        std::copy_n(columns, std::min<std::int64_t>(64, p_.head_dim_v - w * 64), state(r) + w * 64);
      }
      if (!has_digits(r)) this->add_values_without_digits(r);
      std::fill(state(r) + p_.head_dim_v, state(r) + decode_output_stride(p_), Scalar{0});
    }
  }

 private:
  using Steps::p_, Steps::rows_, Steps::kv_head_, Steps::count_, Steps::begin_, Steps::scratch_, Steps::scores,
      Steps::state, Steps::is_wanted, Steps::weights, Steps::has_digits, Steps::unit, Steps::with_rows,
      Steps::read_scales;

  // Prefetches are spread over the work on the rows before. With keys 2 KiB ahead to the L1 cache, decode() took
  // 1.04 times as long (32768 keys of i8 in memory, Zen 4).
  static constexpr std::int64_t kKeysAhead = 16384;  // bytes; of values, the next 64 rows
  static constexpr int kToL1 = 3, kToL2 = 2;

  std::int8_t* queries(std::int64_t group) const {
    return scratch_.queries + group * scratch_.depth * Products::kQueryBytes;
  }
  std::int32_t* biases(std::int64_t r) const { return scratch_.biases + r * Products::kBiases; }
  std::int8_t* digits(std::int64_t group) const { return scratch_.digits + group * Products::kWeightBytes; }
  Scalar* output(std::int64_t r, std::int64_t w) const { return scratch_.outputs + (r * scratch_.width + w) * 64; }

  /// Rows of a group that exist.
  int rows_of(std::int64_t group) const {
    return std::min(count_ - static_cast<int>(group) * kDigitRows, kDigitRows);
  }
  int passes_of(std::int64_t group) const { return Products::passes(rows_of(group)); }

  void put_query(int r) {
    Steps::put_query(
        r,
        [](Scalar largest) {
          const int exponent = Steps::exponent_of(largest) - (8 * Products::kQueryDigits - 2);
          return largest * Steps::power_of_2(-exponent) > Products::kMostOfQuery ? exponent + 1 : exponent;
        },
        [&](const float* numbers, int exponent, std::int64_t d, int n) {
          alignas(16) std::int8_t of_numbers[Products::kQueryDigits][16];
          split_digits(numbers, n, exponent, of_numbers);
          Products::put_query(of_numbers, r % kDigitRows, d % 64,
                              queries(r / kDigitRows) + d / 64 * Products::kQueryBytes, biases(r));
        });
  }

  // ---- S = Q K^T

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
    constexpr int kVectors = 16 / kWidth;
    const std::int64_t first = group * kDigitRows;
    Vec sums[kRows][kVectors];
    Products::template multiply_keys<kRows>(rows, depth, as_computed(queries(group)), biases(first), sums, fetch);
    SACCADE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const Vec factor = broadcast(scratch_.factors[first + r]);
      SACCADE_UNROLL
      for (int i = 0; i < kVectors; ++i)
        store(scores(static_cast<int>(first) + r) + column + i * kWidth,
              mul(mul(sums[r][i], factor), load(scratch_.scales + column + i * kWidth)));
    }
  }

  // ---- O += P V

  void put_weights(std::int64_t column) {
    for (int r = 0; r < count_; ++r)
      if (has_digits(r))
        Products::put_weights(weights(r) + column, 1 / unit(r, column), r % kDigitRows, digits(r / kDigitRows));
  }

  /// Adds 64 values to some rows of a group. Calls fetch(0) to fetch(15) on the way.
  template <class Fetch>
  SACCADE_INLINE void multiply_values(const RowTile (&rows)[4], std::int64_t group, int pass, std::int64_t w,
                                      std::int64_t column, const Fetch& fetch) {
    const int first = static_cast<int>(group) * kDigitRows, count = rows_of(group);
    Scalar units[kDigitRows] = {};
    for (int r = 0; r < count; ++r) units[r] = unit(first + r, column);  // 0 for a row without digits
    Scalar* const out = output(first, w);
    const std::int64_t stride = scratch_.width * 64;
    Products::multiply_values(
        rows, w, digits(group), count, pass, fetch, [&](int row, int at, Vec sum) __attribute__((always_inline)) {
          Scalar* const to = out + row * stride + at;
          store(to, fma(sum, broadcast(units[row]), load(to)));
        });
  }
};

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
