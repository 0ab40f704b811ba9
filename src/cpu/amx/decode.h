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

/// Blocks of 32 keys whose values are packed and added at a time: 32 KiB at 128 columns.
inline constexpr int kValueBlocks = 4;

/// Scratch memory for one kv head.
class AmxDecodeScratch : public ScratchSlices {
 public:
  /// Rows of a tile begin in different sets of the L1 cache.
  static constexpr std::int64_t kScoreStride = kDecodeSplit + 16;

  AmxDecodeScratch(const AttentionParams& p, std::int64_t rows, void* memory) : ScratchSlices(memory) {
    depth = depth_tiles(p.head_dim), width = depth_tiles(p.head_dim_v), row_tiles = (rows + 15) / 16;
    queries = take<std::uint32_t>(row_tiles * depth * kWords);
    copies = take<std::uint32_t>(kValueBlocks * 2 * std::max(depth, width) * kWords);
    scores = take<Scalar>(rows * kScoreStride);
    weights = take<std::uint32_t>((kDecodeSplit / 32 * rows + 15) * 16);
    values = take<std::uint32_t>(kValueBlocks * width * 2 * kWords);
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
  std::uint32_t* copies;      // [kValueBlocks][2][16][depth or width][16 pairs]: of rows not read in place
  Scalar* scores;             // [rows][kScoreStride]
  std::uint32_t* weights;     // [32 keys][rows][16 pairs of keys]; missing rows of a tile hold those of later keys
  std::uint32_t* values;  // [kValueBlocks][width][2][16 pairs of keys][16], columns as interleave_rows() has them
  Scalar* outputs;        // [row tile][width][2][16][16], the same
  Scalar* mask;           // [kDecodeBlock]
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
          copy_32(r < count_ ? query<bfloat16>(r) : nullptr, d * 32, p_.head_dim, rows + i * 16);
          for (int w = 0; w < 16 && unit_.query_factor < 0; ++w) rows[i * 16 + w] ^= 0x80008000U;
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
      const RowTiles keys = tiles_of(all, key, p_.head_dim);
      RowTiles later = keys_ahead(all, key);
      std::int64_t t = 0;
      for (; t + 2 <= scratch_.row_tiles; t += 2) multiply_keys<2>(tiles, keys, later, t, key - begin_);
      if (t < scratch_.row_tiles) multiply_keys<1>(tiles, keys, later, t, key - begin_);
    }
  }

  void soften() {
    finish();
    for (int r = 0; r < count_; ++r) soften(r);
    std::fill_n(scratch_.outputs, scratch_.row_tiles * scratch_.width * 2 * kWords, Scalar{0});
  }

  /// Adds the values of keys [key, key + count), weighted.
  void add_values(Tiles& tiles, std::int64_t key, std::int64_t count) {
    if (masked_safe_)
      add_visible(tiles, key, key + count);
    else
      add_all(tiles, key, key + count);
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
  std::uint32_t* queries(std::int64_t tile) const { return scratch_.queries + tile * scratch_.depth * kWords; }
  std::uint32_t* weights(std::int64_t row, std::int64_t column) const {
    return scratch_.weights + (column / 32 * count_ + row) * 16;
  }
  /// 32 packed columns of the values of block n.
  std::uint32_t* values(int n, std::int64_t w) const {
    return scratch_.values + (n * scratch_.width + w) * 2 * kWords;
  }
  Scalar* outputs(std::int64_t tile, std::int64_t w) const {
    return scratch_.outputs + (tile * scratch_.width + w) * 2 * kWords;
  }

  // ---- Rows of keys and values

  /// 16 rows, `stride` bytes apart, as whole tiles: their length is a multiple of 64 bytes.
  struct RowTile {
    const std::byte* first = nullptr;
    std::int64_t stride = 0;
    SACCADE_INLINE const std::byte* at(std::int64_t row, std::int64_t d) const {
      return first + row * stride + d * 64;
    }
  };
  using RowTiles = std::array<RowTile, 2>;  // keys [key, key + 16) and [key + 16, key + 32)

  /// Rows [key, key + 16) in place; nullptr if they cannot be read so.
  RowTile tile_in_place(const KvRows<bfloat16>& all, std::int64_t key, std::int64_t dim) const {
    if (key < readable_.begin || key + 16 > readable_.end || dim % 32 != 0) return {};
    const KvRows<bfloat16>::Run run = all.run(key);
    if (run.count < 16) return {};
    return {reinterpret_cast<const std::byte*>(run.rows[0]), all.row_stride() * 2};
  }
  /// A copy with zeros for rows that `reads` rejects and beyond the end of each row.
  template <class F>
  __attribute__((noinline)) RowTile copy_tile(const KvRows<bfloat16>& all, std::int64_t key, std::int64_t dim,
                                              int place, const F& reads) const {
    const std::int64_t depth = depth_tiles(dim);
    std::uint32_t* const copy = scratch_.copies + place * depth * kWords;
    for (std::int64_t i = 0; i < 16; ++i)
      for (std::int64_t d = 0; d < depth; ++d)
        copy_32(reads(key + i) ? all[key + i] : nullptr, d * 32, dim, copy + (i * depth + d) * 16);
    return {reinterpret_cast<const std::byte*>(copy), depth * 64};
  }
  /// Rows [key, key + 32), in place or copied to a block of `copies`.
  RowTiles tiles_of(const KvRows<bfloat16>& all, std::int64_t key, std::int64_t dim, int block = 0) const {
    RowTiles tiles{tile_in_place(all, key, dim), tile_in_place(all, key + 16, dim)};
    const auto reads = [&](std::int64_t at) { return at >= readable_.begin && at < readable_.end; };
    for (int half = 0; half < 2; ++half)
      if (auto& tile = tiles[static_cast<std::size_t>(half)]; !tile.first)
        tile = copy_tile(all, key + half * 16, dim, 2 * block + half, reads);
    return tiles;
  }

  /// What is prefetched while keys at `key` are multiplied: those 32 KiB further on, which the processor itself
  /// prefetches too late. In the order of memory: 1.19 times as fast at 32768 keys, 0.93 if 32 numbers of each row
  /// are prefetched at a time. Values, which are read in that order, do not gain (Granite Rapids).
  RowTiles keys_ahead(const KvRows<bfloat16>& all, std::int64_t key) const {
    const std::int64_t ahead = key + round_up(std::int64_t{16384} / std::max<std::int64_t>(p_.head_dim, 16), 32);
    return {tile_in_place(all, ahead, p_.head_dim), tile_in_place(all, ahead + 16, p_.head_dim)};
  }

  // ---- S = Q K^T

  /// Prefetches rows [first, first + count) of 16: all at once would take the fill buffers that loads need.
  SACCADE_INLINE void fetch(const RowTile& later, std::int64_t first, std::int64_t count) const {
    if (!later.first) return;
    for (std::int64_t i = first; i < std::min<std::int64_t>(16, first + count); ++i)
      for (std::int64_t d = 0; d < scratch_.depth; ++d) __builtin_prefetch(later.at(i, d), 0, 2);
  }

  /// The products of 32 keys and kTiles times 16 rows; prefetches `later`, once. (The keys are operand a: operand
  /// b would have to be transposed.)
  template <int kTiles>
  void multiply_keys(Tiles& tiles, const RowTiles& keys, RowTiles& later, std::int64_t tile, std::int64_t column) {
    const std::uint32_t* const q = queries(tile);
    tiles.clear<0>(), tiles.clear<1>();
    if constexpr (kTiles == 2) tiles.clear<2>(), tiles.clear<3>();
    const std::int64_t fetched = (16 + scratch_.depth - 1) / scratch_.depth;  // rows
    for (std::int64_t d = 0; d < scratch_.depth; ++d) {
      fetch(later[0], d * fetched, fetched);
      tiles.load<6>(q + d * kWords, 64);
      tiles.load_streamed<4>(keys[0].at(0, d), keys[0].stride);
      tiles.multiply<0, 4, 6>();
      fetch(later[1], d * fetched, fetched);
      tiles.load_streamed<5>(keys[1].at(0, d), keys[1].stride);
      tiles.multiply<1, 5, 6>();
      if constexpr (kTiles == 2) {
        tiles.load<7>(q + (scratch_.depth + d) * kWords, 64);
        tiles.multiply<2, 4, 7>();
        tiles.multiply<3, 5, 7>();
      }
    }
    later = {};
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

  /// Up to kValueBlocks times 32 keys: their columns of scores and their values.
  struct ValueGroup {
    int count = 0;
    std::array<std::int64_t, kValueBlocks> column{};
    std::array<RowTiles, kValueBlocks> rows;

    void add(std::int64_t of_scores, const RowTiles& values) {
      const auto n = static_cast<std::size_t>(count++);
      column[n] = of_scores, rows[n] = values;
    }
  };

  /// The next keys from `key` on whose values are added.
  ValueGroup group_at(const KvRows<bfloat16>& all, std::int64_t& key, std::int64_t end) const {
    ValueGroup group{.rows = {}};
    for (; key < end && group.count < kValueBlocks; key += 32)
      if (is_wanted(key)) group.add(key - begin_, tiles_of(all, key, p_.head_dim_v, group.count));
    return group;
  }

  /// Packs a block of 32 values, row by row: as they lie in memory.
  SACCADE_INLINE void pack_values(const ValueGroup& group, int n) const {
    const RowTiles rows = group.rows[static_cast<std::size_t>(n)];
    for (std::int64_t i = 0; i < 16; ++i) {
      for (std::int64_t w = 0; w < scratch_.width; ++w) {
        std::uint32_t* const to = values(n, w) + i * 16;
        interleave_rows(rows[0].at(i, w), rows[1].at(i, w), to, to + kWords);
      }
    }
  }

  void add_all(Tiles& tiles, std::int64_t key, std::int64_t end) {
    const KvRows<bfloat16> all(p_.value_source(rows_.batch, kv_head_));
    for (ValueGroup group = group_at(all, key, end); group.count > 0; group = group_at(all, key, end)) {
      for (int n = 0; n < group.count; ++n) pack_values(group, n);
      for (std::int64_t t = 0; t < scratch_.row_tiles; t += 2) {
        if (t + 1 < scratch_.row_tiles)
          multiply_values<2>(tiles, group, t);
        else
          multiply_values<1>(tiles, group, t);
      }
    }
  }

  template <int kTiles>
  void multiply_values(Tiles& tiles, const ValueGroup& now, std::int64_t tile) {
    for (std::int64_t w = 0; w < scratch_.width; ++w) {
      Scalar* const o = outputs(tile, w);
      Scalar* const second = outputs(tile + kTiles - 1, w);
      tiles.load<0>(o, 64), tiles.load<1>(o + kWords, 64);
      if constexpr (kTiles == 2) tiles.load<2>(second, 64), tiles.load<3>(second + kWords, 64);
      for (int n = 0; n < now.count; ++n) {
        const std::uint32_t* const v = values(n, w);
        const std::int64_t column = now.column[static_cast<std::size_t>(n)];
        tiles.load<4>(weights(tile * 16, column), 64);
        tiles.load<6>(v, 64);
        tiles.multiply<0, 4, 6>();
        tiles.load<7>(v + kWords, 64);
        tiles.multiply<1, 4, 7>();
        if constexpr (kTiles == 2) {
          tiles.load<5>(weights(tile * 16 + 16, column), 64);
          tiles.multiply<2, 5, 6>();
          tiles.multiply<3, 5, 7>();
        }
      }
      tiles.store<0>(o, 64), tiles.store<1>(o + kWords, 64);
      if constexpr (kTiles == 2) tiles.store<2>(second, 64), tiles.store<3>(second + kWords, 64);
    }
  }

  /// Like add_all(), row by row, with zeros for the values of keys whose score is -inf. All rows of its tiles are
  /// equal: loaded from one row of memory, and stored to one.
  __attribute__((noinline)) void add_visible(Tiles& tiles, std::int64_t key, std::int64_t end) {
    const KvRows<bfloat16> all(p_.value_source(rows_.batch, kv_head_));
    for (; key < end; key += 32) {
      if (!is_wanted(key)) continue;
      for (int r = 0; r < count_; ++r) {
        const Scalar* const line = scores(r) + (key - begin_);
        const auto is_visible = [&](std::int64_t at) {
          return at >= readable_.begin && at < readable_.end && line[at - key] != -kInfinity;
        };
        ValueGroup group;
        group.add(0, {copy_tile(all, key, p_.head_dim_v, 0, is_visible),
                      copy_tile(all, key + 16, p_.head_dim_v, 1, is_visible)});
        pack_values(group, 0);
        tiles.load<4>(weights(r, key - begin_), 0);
        for (std::int64_t w = 0; w < scratch_.width; ++w) {
          Scalar* const o = outputs(r / 16, w) + r % 16 * 16;
          add_row<0>(tiles, o, values(0, w));
          add_row<1>(tiles, o + kWords, values(0, w) + kWords);
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
