// decode() of bf16 on AMX tiles. Like decode.h, with up to 64 rows that share a kv head, and
//
//   for each 32 keys         S^T = K Q^T    K as it lies in memory, Q packed once
//   for each few 32 keys     O += P V       P rounded to bf16, V packed: its keys i and 16 + i of 32 are words
//
// 16 rows take the time of one, so any number of rows uses tiles, and a row's bits do not depend on the number.
//
// A number of a product depends on one row of each operand, and is NaN or infinite where multiply-adds would be.
// So a key that is not finite spoils only its own scores, which are then hidden from the rows that do not see it.
// A value that is not finite also meets such rows' weights of 0 and makes their o NaN; then the split is computed
// again on the masked-safe path, row by row, with zeros for the values that a row does not see. That changes no
// bit of finite results: a weight of 0 adds 0.
#pragma once

#include "cpu/amx/packing.h"
#include "cpu/attention/decode_shared.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// Keys whose values are packed and added at a time: 32 KiB at 128 columns.
inline constexpr std::int64_t kAmxValueKeys = 128;

/// Scratch memory for one kv head.
class AmxDecodeScratch : public ScratchSlices {
 public:
  /// Rows of a tile begin in different sets of the L1 cache.
  static constexpr std::int64_t kScoreStride = kDecodeSplit + 16;

  AmxDecodeScratch(const AttentionParams& p, std::int64_t rows, void* memory) : ScratchSlices(memory) {
    depth = depth_tiles(p.head_dim), width = depth_tiles(p.head_dim_v), row_tiles = (rows + 15) / 16;
    queries = take<std::uint32_t>(row_tiles * depth * kWords);
    keys = take<std::uint32_t>(2 * depth * kWords);
    scores = take<Scalar>(rows * kScoreStride);
    weights = take<std::uint32_t>((kDecodeSplit / 32 * rows + 15) * 16);
    values = take<std::uint32_t>(kAmxValueKeys / 32 * width * 2 * kWords);
    outputs = take<Scalar>(row_tiles * width * 2 * kWords);
    mask = take<Scalar>(kDecodeBlock);
  }
  static std::int64_t size(const AttentionParams& p, std::int64_t rows) {
    return static_cast<std::int64_t>(AmxDecodeScratch(p, rows, nullptr).bytes() / sizeof(Scalar));
  }

  static constexpr std::int64_t kWords = 256;  // of a tile

  std::int64_t depth, width;  // in 32 numbers
  std::int64_t row_tiles;     // of 16 rows
  std::uint32_t* queries;     // [row tile][depth][16 pairs of dimensions][16 rows]
  std::uint32_t* keys;        // [2][16][depth][16 pairs]: copies of keys that tiles cannot load in place
  Scalar* scores;             // [rows][kScoreStride]
  std::uint32_t* weights;     // [32 keys][rows][16 pairs of keys]; missing rows of a tile hold those of later keys
  std::uint32_t* values;      // [32 keys][width][2][16 pairs of keys][16], columns as interleave_rows() has them
  Scalar* outputs;            // [row tile][width][2][16][16], the same
  Scalar* mask;               // [kDecodeBlock]
};

/// The steps of DecodeHead.
class AmxDecodeHead : public DecodeScores<AmxDecodeScratch> {
 public:
  using Scratch = AmxDecodeScratch;
  using Registers = Tiles;
  using DecodeScores<AmxDecodeScratch>::DecodeScores;

  void start() {
    alignas(64) std::uint32_t rows[kWords];
    for (std::int64_t t = 0; t < scratch_.row_tiles; ++t) {
      for (std::int64_t d = 0; d < scratch_.depth; ++d) {
        for (int i = 0; i < 16; ++i) {
          const int r = static_cast<int>(t) * 16 + i;
          write_words(r < count_ ? query<bfloat16>(r) : nullptr, d * 32, p_.head_dim, unit_.query_factor,
                      rows + i * 16);
        }
        transpose_words(rows, queries(t) + d * kWords);
      }
    }
    plan();
  }

  /// Computes the requested products of keys [key, key + count), multiples of 32.
  void score(Tiles& tiles, std::int64_t key, std::int64_t count) {
    const KvRows<bfloat16> all(p_.key_source(rows_.batch, kv_head_));
    for (const std::int64_t end = key + count; key < end; key += 32) {
      if (!is_wanted(key)) continue;
      const KeyTile keys[2] = {tile_of(all, key, scratch_.keys),
                               tile_of(all, key + 16, scratch_.keys + scratch_.depth * kWords)};
      std::int64_t t = 0;
      for (; t + 2 <= scratch_.row_tiles; t += 2) multiply_keys<2>(tiles, keys, t, key - begin_);
      if (t < scratch_.row_tiles) multiply_keys<1>(tiles, keys, t, key - begin_);
    }
  }

  void soften() {
    finish();
    for (int r = 0; r < count_; ++r) soften(r);
    std::fill_n(scratch_.outputs, scratch_.row_tiles * scratch_.width * 2 * kWords, Scalar{0});
  }

  /// Adds the values of keys [key, key + count), weighted.
  void add_values(Tiles& tiles, std::int64_t key, std::int64_t count) {
    for (const std::int64_t end = key + count; key < end; key += kAmxValueKeys) {
      const std::int64_t to = std::min(end, key + kAmxValueKeys);
      if (masked_safe_)
        add_visible(tiles, key, to);
      else
        add_all(tiles, key, to);
    }
  }

  void keep_output() {
    for (int r = 0; r < count_; ++r) {
      for (std::int64_t w = 0; w < scratch_.width; ++w) {
        const Scalar* const low = outputs(r / 16, w) + r % 16 * 16;
        for (int d = 0; d < 16; d += 4) {
          std::copy_n(low + d, 4, state(r) + w * 32 + d * 2);
          std::copy_n(low + kWords + d, 4, state(r) + w * 32 + d * 2 + 4);
        }
      }
    }
  }

 private:
  static constexpr std::int64_t kWords = AmxDecodeScratch::kWords;
  using Rows = std::array<const bfloat16*, 32>;

  std::uint32_t* queries(std::int64_t tile) const { return scratch_.queries + tile * scratch_.depth * kWords; }
  std::uint32_t* weights(std::int64_t row, std::int64_t column) const {
    return scratch_.weights + (column / 32 * count_ + row) * 16;
  }
  std::uint32_t* values(int place) const { return scratch_.values + place * scratch_.width * 2 * kWords; }
  Scalar* outputs(std::int64_t tile, std::int64_t w) const {
    return scratch_.outputs + (tile * scratch_.width + w) * 2 * kWords;
  }

  /// Keys [key, key + 32), nullptr for those that must not be read.
  Rows rows_of(const KvRows<bfloat16>& all, std::int64_t key) const {
    Rows rows{};
    const std::int64_t end = std::min(key + 32, readable_.end);
    for (std::int64_t from = std::max(key, readable_.begin), to; from < end; from = to) {
      const KvRows<bfloat16>::Run run = all.run(from);
      to = std::min(end, from + run.count);
      for (std::int64_t j = from; j < to; ++j)
        rows[static_cast<std::size_t>(j - key)] = run.rows[static_cast<int>(j - from)];
    }
    return rows;
  }

  // ---- S = Q K^T

  /// 16 rows of keys, `stride` bytes apart.
  struct KeyTile {
    const std::byte* first;
    std::int64_t stride;
  };

  /// Keys [key, key + 16) in place, if all of them can be read as whole tiles; else copied to `copy`, with zeros
  /// for keys that must not be read and beyond the end of each.
  KeyTile tile_of(const KvRows<bfloat16>& all, std::int64_t key, std::uint32_t* copy) const {
    const bool is_there = key >= readable_.begin && key + 16 <= readable_.end;
    if (is_there && all.run(key).count >= 16 && p_.head_dim % 32 == 0)
      return {reinterpret_cast<const std::byte*>(all[key]), all.row_stride() * 2};
    const Rows rows = rows_of(all, key);
    for (std::int64_t i = 0; i < 16; ++i)
      for (std::int64_t d = 0; d < scratch_.depth; ++d)
        copy_32(rows[static_cast<std::size_t>(i)], d * 32, p_.head_dim, copy + (i * scratch_.depth + d) * 16);
    return {reinterpret_cast<const std::byte*>(copy), scratch_.depth * 64};
  }

  /// The products of 32 keys and kTiles times 16 rows. (The keys are operand a: operand b would have to be
  /// transposed.)
  template <int kTiles>
  void multiply_keys(Tiles& tiles, const KeyTile (&keys)[2], std::int64_t tile, std::int64_t column) {
    const std::uint32_t* const q = queries(tile);
    tiles.clear<0>(), tiles.clear<1>();
    if constexpr (kTiles == 2) tiles.clear<2>(), tiles.clear<3>();
    for (std::int64_t d = 0; d < scratch_.depth; ++d) {
      tiles.load<6>(q + d * kWords, 64);
      tiles.load<4>(keys[0].first + d * 64, keys[0].stride);
      tiles.multiply<0, 4, 6>();
      tiles.load<5>(keys[1].first + d * 64, keys[1].stride);
      tiles.multiply<1, 5, 6>();
      if constexpr (kTiles == 2) {
        tiles.load<7>(q + (scratch_.depth + d) * kWords, 64);
        tiles.multiply<2, 4, 7>();
        tiles.multiply<3, 5, 7>();
      }
    }
    keep_scores<0>(tiles, tile, column), keep_scores<1>(tiles, tile, column + 16);
    if constexpr (kTiles == 2)
      keep_scores<2>(tiles, tile + 1, column), keep_scores<3>(tiles, tile + 1, column + 16);
  }

  template <int kTile>
  void keep_scores(const Tiles& tiles, std::int64_t tile, std::int64_t column) {
    alignas(64) std::uint32_t of_keys[kWords], of_rows[kWords];
    tiles.store<kTile>(of_keys, 64);
    transpose_words(of_keys, of_rows);
    for (int i = 0; i < 16 && tile * 16 + i < count_; ++i)
      std::memcpy(scores(static_cast<int>(tile) * 16 + i) + column, of_rows + i * 16, 64);
  }

  // ---- P = exp(S - m)

  static constexpr int kDrawn = 128;  // columns that dropout draws at a time

  void soften(int r) {
    const Scalar* const line = scores(r);
    Vec largest = broadcast(kNoMaximum);
    for (int j = 0; j < kDecodeSplit; j += kWidth) largest = max(largest, load(line + j));
    const Scalar m = reduce_max(largest);
    Vec sums[32 / kWidth];
    SACCADE_UNROLL
    for (Vec& x : sums) x = zero();
    for (int column = 0; column < kDecodeSplit; column += kDrawn) weigh(r, column, m, sums);
    state(r)[decode_output_stride(p_)] = m;
    state(r)[decode_output_stride(p_) + 1] = sum_of(sums);
  }

  /// Writes the rounded weights of some keys, and adds the unrounded ones to the sums over keys modulo 32.
  SACCADE_INLINE void weigh(int r, int column, Scalar m, Vec (&sums)[32 / kWidth]) {
    alignas(64) Scalar weight[kDrawn];
    for (int j = 0; j < kDrawn; j += 32) {
      if (!is_wanted(begin_ + column + j)) continue;
      SACCADE_UNROLL
      for (int i = 0; i < 32 / kWidth; ++i) {
        const Vec x = canonical_nan(sub(load(scores(r) + column + j + i * kWidth), broadcast(m)));
        const Vec w = exp2(mul(x, broadcast(unit_.exp_factor)));
        sums[i] = add(sums[i], w);
        store(weight + j + i * kWidth, w);
      }
    }
    if (p_.dropout_p > 0.0) drop(r, column, weight);
    const Bf16Split<1> rounded;
    for (int j = 0; j < kDrawn; j += 32)
      if (is_wanted(begin_ + column + j)) rounded.split(weight + j, weight + j + 16, weights(r, column + j), 0);
  }

  void drop(int r, int column, Scalar* weight) {
    dropout_.apply(weight, 0, kDrawn, p_.dropout_head(rows_.batch, head(r)), p_.dropout_row(token(r)),
                   begin_ + column);
  }

  /// Adds in the same order for every vector width.
  static Scalar sum_of(const Vec (&sums)[32 / kWidth]) {
    alignas(64) Scalar all[32];
    for (int i = 0; i < 32 / kWidth; ++i) store(all + i * kWidth, sums[i]);
    for (int n = 16; n > 0; n /= 2)
      for (int i = 0; i < n; ++i) all[i] += all[n + i];
    return all[0];
  }

  // ---- O += P V

  /// Packs 32 rows of values; nullptr: zeros.
  void pack_values(const Rows& rows, std::uint32_t* to) const {
    for (std::size_t i = 0; i < 16; ++i)
      for (std::int64_t w = 0; w < scratch_.width; ++w)
        interleave_columns(rows[i], rows[16 + i], w * 32, to + w * 2 * kWords + i * 16);
  }
  SACCADE_INLINE void interleave_columns(const bfloat16* even, const bfloat16* odd, std::int64_t d,
                                         std::uint32_t* to) const {
    if (even && odd && d + 32 <= p_.head_dim_v) return interleave_rows(even + d, odd + d, to, to + kWords);
    alignas(64) std::uint32_t words[2][16];
    copy_32(even, d, p_.head_dim_v, words[0]);
    copy_32(odd, d, p_.head_dim_v, words[1]);
    interleave_rows(words[0], words[1], to, to + kWords);
  }

  void add_all(Tiles& tiles, std::int64_t key, std::int64_t end) {
    const KvRows<bfloat16> all(p_.value_source(rows_.batch, kv_head_));
    Columns32 columns;
    for (; key < end; key += 32) {
      if (!is_wanted(key)) continue;
      pack_values(rows_of(all, key), values(columns.count));
      columns.first[columns.count++] = key - begin_;
    }
    std::int64_t t = 0;
    for (; t + 2 <= scratch_.row_tiles; t += 2) multiply_values<2>(tiles, columns, t);
    if (t < scratch_.row_tiles) multiply_values<1>(tiles, columns, t);
  }

  /// The columns of scores whose values are packed 32 at a time.
  struct Columns32 {
    int count = 0;
    std::int64_t first[kAmxValueKeys / 32] = {};
  };

  template <int kTiles>
  void multiply_values(Tiles& tiles, const Columns32& columns, std::int64_t tile) {
    for (std::int64_t w = 0; w < scratch_.width && columns.count > 0; ++w) {
      Scalar* const o = outputs(tile, w);
      Scalar* const next = outputs(tile + kTiles - 1, w);
      tiles.load<0>(o, 64), tiles.load<1>(o + kWords, 64);
      if constexpr (kTiles == 2) tiles.load<2>(next, 64), tiles.load<3>(next + kWords, 64);
      for (int n = 0; n < columns.count; ++n) {
        const std::uint32_t* const v = values(n) + w * 2 * kWords;
        tiles.load<4>(weights(tile * 16, columns.first[n]), 64);
        tiles.load<6>(v, 64);
        tiles.multiply<0, 4, 6>();
        tiles.load<7>(v + kWords, 64);
        tiles.multiply<1, 4, 7>();
        if constexpr (kTiles == 2) {
          tiles.load<5>(weights(tile * 16 + 16, columns.first[n]), 64);
          tiles.multiply<2, 5, 6>();
          tiles.multiply<3, 5, 7>();
        }
      }
      tiles.store<0>(o, 64), tiles.store<1>(o + kWords, 64);
      if constexpr (kTiles == 2) tiles.store<2>(next, 64), tiles.store<3>(next + kWords, 64);
    }
  }

  /// Like add_all(), row by row, with zeros for the values of keys whose score is -inf. All rows of its tiles are
  /// equal: loaded from one row of memory, and stored to one.
  __attribute__((noinline)) void add_visible(Tiles& tiles, std::int64_t key, std::int64_t end) {
    const KvRows<bfloat16> all(p_.value_source(rows_.batch, kv_head_));
    for (; key < end; key += 32) {
      if (!is_wanted(key)) continue;
      const Rows rows = rows_of(all, key);
      for (int r = 0; r < count_; ++r) {
        const Scalar* const line = scores(r) + (key - begin_);
        Rows visible = rows;
        for (std::size_t j = 0; j < 32; ++j)
          if (line[j] == -kInfinity) visible[j] = nullptr;
        pack_values(visible, values(0));
        tiles.load<4>(weights(r, key - begin_), 0);
        for (std::int64_t w = 0; w < scratch_.width; ++w) {
          Scalar* const o = outputs(r / 16, w) + r % 16 * 16;
          add_row<0>(tiles, o, values(0) + w * 2 * kWords);
          add_row<1>(tiles, o + kWords, values(0) + (w * 2 + 1) * kWords);
        }
      }
    }
  }
  template <int kTile>
  static void add_row(Tiles& tiles, Scalar* o, const std::uint32_t* v) {
    tiles.load<kTile>(o, 0);
    tiles.load<6>(v, 64);
    tiles.multiply<kTile, 4, 6>();
    tiles.store<kTile>(o, 0);
  }
};

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
