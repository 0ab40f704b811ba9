// decode() of keys and values of i8, i4 and e4m3 on AMX tiles. Like amx/decode.h, with
//
//   for each 32 keys         S = K Q^T      Q as a few digits, or parts
//   for each 64 keys         O += P V       P likewise, V interleaved
//
// and with formats of stored numbers (bytes/integers.h, bytes/float8.h) that say how tiles multiply digits. The
// digits of a number have all of its bits, and fill the 16 columns of a tile with 4 rows of q. cpu/bytes/decode.h
// has the rest.
#pragma once

#include "cpu/amx/bytes/float8.h"
#include "cpu/amx/bytes/integers.h"
#include "cpu/amx/packing.h"
#include "cpu/bytes/decode.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// Scratch memory for one kv head. A sum of products has 4 bytes in each format.
template <class Format>
class ByteTileScratch : public ScratchSlices {
 public:
  using Sum = typename Format::Sum;
  static constexpr std::int64_t kScoreStride = kDecodeSplit + 16;

  ByteTileScratch(const AttentionParams& p, std::int64_t rows, void* memory) : ScratchSlices(memory) {
    depth = tiles_of(p.k.dtype, p.head_dim), width = tiles_of(p.v.dtype, p.head_dim_v);
    groups = (rows + kDigitRows - 1) / kDigitRows;
    queries = take<std::int8_t>(groups * depth * Format::kQueryBytes);
    query = take<Scalar>(depth * 64);
    factors = take<Scalar>(groups * kDigitRows);
    copies = take<std::int8_t>(4 * std::max(depth, width) * kTileBytes);
    products = take<Sum>(kTileBytes / 2);
    scores = take<Scalar>(groups * kDigitRows * kScoreStride);
    weights = take<Scalar>(rows * kScoreStride);
    digits = take<std::int8_t>(groups * Format::kWeightBytes);
    values = take<std::int8_t>(width * Format::kValueBytes);
    zeros = take<std::int8_t>(width * 64);
    outputs = take<Sum>(groups * width * kTileBytes);
    units = take<Scalar>(rows);
    scales = take<Scalar>(kDecodeSplit);
    mask = take<Scalar>(kDecodeBlock);
  }
  static std::int64_t size(const AttentionParams& p, std::int64_t rows) {
    return static_cast<std::int64_t>(ByteTileScratch(p, rows, nullptr).bytes() / sizeof(Scalar));
  }
  static std::int64_t tiles_of(DType dtype, std::int64_t dim) { return (stored_dim(dtype, dim) + 63) / 64; }

  std::int64_t depth, width;  // in 64 numbers
  std::int64_t groups;        // of kDigitRows rows
  std::int8_t* queries;       // [group][depth][Format::kQueryBytes]
  Scalar* query;              // [depth][64]: one of bf16, widened
  Scalar* factors;            // [rows]: the value of the last digit
  std::int8_t* copies;        // [64 keys][depth or width][64]: of rows not read in place
  Sum* products;              // [32 keys][digit][row]
  Scalar* scores;             // [rows][kScoreStride], rows a multiple of 4
  Scalar* weights;            // the same, for the masked_safe path, which needs the scores
  std::int8_t* digits;        // [group][Format::kWeightBytes]: of the weights of 64 keys
  std::int8_t* values;        // [width][Format::kValueBytes]: of 64 keys
  std::int8_t* zeros;         // a row of zeros
  Sum* outputs;               // [group][width][4 tiles][16 of rows and digits][16 columns]
  Scalar* units;              // [rows]: the value of the last digit of a weight; 0: the row has no digits
  Scalar* scales;             // [kDecodeSplit]
  Scalar* mask;               // [kDecodeBlock]
};

/// The steps of DecodeHead.
template <class Format>
class ByteTileHead : public ByteDecodeSteps<ByteTileScratch<Format>, Format> {
  using Steps = ByteDecodeSteps<ByteTileScratch<Format>, Format>;

 public:
  using Scratch = ByteTileScratch<Format>;
  using Registers = Tiles;
  static constexpr std::int64_t kStep = kDecodeStep;
  using Steps::Steps;

  void start() {
    std::memset(scratch_.queries, 0,
                static_cast<std::size_t>(scratch_.groups * scratch_.depth * Format::kQueryBytes));
    std::memset(scratch_.digits, 0, static_cast<std::size_t>(scratch_.groups * Format::kWeightBytes));
    std::memset(scratch_.zeros, 0, static_cast<std::size_t>(scratch_.width * 64));
    std::fill_n(scratch_.factors, scratch_.groups * kDigitRows, Scalar{0});
    for (int r = 0; r < count_; ++r) put_query(r);
    this->plan();
    read_scales(p_.key_source(rows_.batch, kv_head_));
  }

  /// Computes the requested products of keys [key, key + count), multiples of 32.
  void score(Tiles& tiles, std::int64_t key, std::int64_t count) {
    with_rows(p_.key_source(rows_.batch, kv_head_), scratch_.depth, [&](const auto& keys) {
      if (keeps_queries(keys)) Format::load_queries(tiles, queries(0), keys.tiles());
      const std::int64_t ahead = keys.rows_of(kKeysAhead);
      for (std::int64_t at = key; at < key + count; at += 32) {
        if (!is_wanted(at)) continue;
        const RowTile rows[2] = {keys.tile(at, 0), keys.tile(at + 16, 1)};
        const RowTile next[2] = {keys.next(at + ahead), keys.next(at + ahead + 16)};
        const auto fetch = [&](int quarter) __attribute__((always_inline)) {
          keys.template fetch<8, kToL1>(next[quarter / 2], quarter % 2 * 8);
        };
        multiply_keys(tiles, keys, rows, 0, at - begin_, fetch);
        for (std::int64_t g = 1; g < scratch_.groups; ++g)
          multiply_keys(tiles, keys, rows, g, at - begin_, [](int) {});
      }
    });
  }

  void soften() {
    Steps::soften();
    std::memset(scratch_.outputs, 0, static_cast<std::size_t>(scratch_.groups * scratch_.width * 4 * kTileBytes));
  }

  /// Adds the values of keys [key, key + count), weighted.
  void add_values(Tiles& tiles, std::int64_t key, std::int64_t count) {
    const auto add = [&](const auto& values) {
      for (std::int64_t first = key / 64 * 64; first < key + count; first += 64) {
        const std::int64_t begin = std::max(first, key), end = std::min(first + 64, key + count);
        if (!is_wanted(first) && !is_wanted(first + 32)) continue;
        const RowTile next[4] = {values.next(first + 64), values.next(first + 80), values.next(first + 96),
                                 values.next(first + 112)};
        interleave(values, next, first, begin, end);
        put_weights(first, begin, end);
        for (std::int64_t w = 0; w < values.tiles(); ++w) {
          const auto fetch = [&](int quarter) __attribute__((always_inline)) {
            if (w < 2) values.template fetch<4, kToL2>(next[2 + w], quarter * 4);
            if (values.tiles() == 1) values.template fetch<4, kToL2>(next[3], quarter * 4);
          };
          multiply_values(tiles, 0, w, fetch);
        }
        for (std::int64_t g = 1; g < scratch_.groups; ++g)
          for (std::int64_t w = 0; w < values.tiles(); ++w) multiply_values(tiles, g, w, [](int) {});
      }
    };
    with_rows(p_.value_source(rows_.batch, kv_head_), scratch_.width, add, drops_nan());
  }

  void keep_output() {
    for (int r = 0; r < count_; ++r) {
      for (std::int64_t w = 0; w < scratch_.width; ++w) {
        alignas(64) Scalar columns[64];
        const Sum* const sums = outputs(r / kDigitRows, w);
        for (int t = 0; t < 4; ++t)
          Format::join_columns(sums + t * (kTileBytes / 4), r % kDigitRows, unit(r, 0), t, columns);
        const std::int64_t n = std::min<std::int64_t>(64, p_.head_dim_v - w * 64);
        std::copy_n(columns, n, state(r) + w * 64);
      }
      if (!has_digits(r))
        this->add_values_without_digits(r);
      else if (drops_nan())
        this->add_dropped_nan(r);
      std::fill(state(r) + p_.head_dim_v, state(r) + decode_output_stride(p_), Scalar{0});
    }
  }

 private:
  using Sum = typename Format::Sum;
  /// Whether values that are NaN are left out of products: a weight of 0 would not keep them out.
  bool drops_nan() const { return Format::kHasNan && masked_safe_; }

  using Steps::p_, Steps::rows_, Steps::kv_head_, Steps::count_, Steps::begin_, Steps::scratch_, Steps::scores,
      Steps::state, Steps::is_wanted, Steps::weights, Steps::has_digits, Steps::unit, Steps::with_rows,
      Steps::read_scales, Steps::masked_safe_;

  std::int8_t* queries(std::int64_t group) const {
    return scratch_.queries + group * scratch_.depth * Format::kQueryBytes;
  }
  Sum* outputs(std::int64_t group, std::int64_t w) const {
    return scratch_.outputs + (group * scratch_.width + w) * kTileBytes;
  }

  // ---- Queries

  void put_query(int r) {
    Steps::put_query(
        r, [](Scalar largest) { return Steps::exponent_of(largest) - Format::kQueryBits; },
        [&](const float* numbers, int exponent, std::int64_t d, int n) {
          Format::put_query(numbers, n, exponent, d % 64, r % kDigitRows,
                            queries(r / kDigitRows) + d / 64 * Format::kQueryBytes);
        });
  }

  // ---- S = Q K^T

  // Prefetches are spread over the work on the rows before. What their distances and caches bring, for 32768 keys
  // of i8 in memory (Granite Rapids): keys 2 KiB ahead took 1.05 times as long, keys to the L2 cache 1.06 times,
  // values to the L1 cache 1.08 times, and all prefetches of values while they are interleaved 1.14 times.
  static constexpr std::int64_t kKeysAhead = 3072;  // bytes; of values, the next 64 rows
  static constexpr int kToL1 = 3, kToL2 = 2;

  /// Whether the queries stay in tiles.
  template <class Rows>
  SACCADE_INLINE bool keeps_queries(const Rows& rows) const {
    return scratch_.groups == 1 && rows.tiles() <= 2;
  }

  /// The scores of 32 keys. Calls fetch(0) to fetch(3) on the way.
  template <class Rows, class Fetch>
  SACCADE_INLINE void multiply_keys(Tiles& tiles, const Rows& keys, const RowTile (&rows)[2], std::int64_t group,
                                    std::int64_t column, const Fetch& fetch) {
    tiles.clear<0>();
    tiles.clear<1>();
    if (keeps_queries(keys)) {
      Format::template multiply_keys<0>(tiles, rows, 0);
      if (keys.tiles() > 1) Format::template multiply_keys<1>(tiles, rows, 1);
    } else {
      for (std::int64_t d = 0; d < keys.tiles(); ++d) {
        Format::load_queries(tiles, queries(group) + d * Format::kQueryBytes, 1);
        Format::template multiply_keys<0>(tiles, rows, d);
      }
    }
    fetch(0), fetch(1);
    tiles.store<0>(scratch_.products, 64);
    tiles.store<1>(scratch_.products + 256, 64);
    const float* const factors = scratch_.factors + group * kDigitRows;
    Scalar* const to = scores(static_cast<int>(group) * kDigitRows) + column;
    for (int t = 0; t < 2; ++t) {
      Format::join_scores(scratch_.products + t * 256, factors, scratch_.scales + column + t * 16, to + t * 16,
                          Scratch::kScoreStride);
      fetch(2 + t);
    }
  }

  // ---- O += P V

  /// The values of keys [first, first + 64), of which those of [begin, end) are taken. Prefetches half of the
  /// next.
  template <class Rows>
  SACCADE_INLINE void interleave(const Rows& values, const RowTile (&next)[4], std::int64_t first,
                                 std::int64_t begin, std::int64_t end) {
    for (int half = 0; half < 2; ++half) {
      RowTile rows[2];
      for (int t = 0; t < 2; ++t) {
        const std::int64_t key = first + half * 32 + t * 16;
        const bool is_read = key >= begin && key < end && is_wanted(key);
        rows[t] = is_read ? values.tile(key, half * 2 + t) : RowTile{scratch_.zeros, 0};
      }
      SACCADE_UNROLL
      for (int i = 0; i < 8; ++i) {
        values.template fetch<2, kToL2>(next[half], i * 2);
        for (std::int64_t w = 0; w < values.tiles(); ++w)
          Format::interleave(rows, half, i, w, scratch_.values + w * Format::kValueBytes);
      }
    }
  }
  void put_weights(std::int64_t first, std::int64_t begin, std::int64_t end) {
    const std::int64_t column = first - begin_;
    for (int r = 0; r < count_; ++r) {
      const Scalar* from = weights(r) + column;
      alignas(64) Scalar some[64];
      if (begin > first || end < first + 64 || !has_digits(r)) {
        for (std::int64_t j = 0; j < 64; ++j)
          some[j] = has_digits(r) && first + j >= begin && first + j < end ? from[j] : 0;
        from = some;
      }
      Format::put_weights(from, has_digits(r) ? 1 / unit(r, column) : 0, r % kDigitRows,
                          scratch_.digits + r / kDigitRows * Format::kWeightBytes);
    }
  }

  /// Calls fetch(0) to fetch(3) on the way.
  template <class Fetch>
  SACCADE_INLINE void multiply_values(Tiles& tiles, std::int64_t g, std::int64_t w, const Fetch& fetch) {
    Sum* const o = outputs(g, w);
    constexpr std::int64_t kTile = kTileBytes / 4;
    tiles.load<0>(o, 64), tiles.load<1>(o + kTile, 64);
    fetch(0);
    tiles.load<2>(o + 2 * kTile, 64), tiles.load<3>(o + 3 * kTile, 64);
    Format::multiply_values(tiles, scratch_.digits + g * Format::kWeightBytes,
                            scratch_.values + w * Format::kValueBytes, fetch);
    tiles.store<0>(o, 64), tiles.store<1>(o + kTile, 64);
    fetch(3);
    tiles.store<2>(o + 2 * kTile, 64), tiles.store<3>(o + 3 * kTile, 64);
  }
};

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
