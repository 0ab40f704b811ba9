// decode() of bf16 on AMX tiles. Like decode.h, with up to 64 rows that share a kv head, and
//
//   for each 16 keys         S^T = K Q^T    K as it lies in memory, Q packed once
//   for each few 16 keys     O += P V       P rounded to bf16, V as it lies in memory
//
// A word of V in memory has two neighboring columns of one key, not two keys of one column. So a row of P takes
// two rows of a tile: the words of one are (weight, 0) and give the even columns of O, those of the other (0,
// weight) and give the odd ones. Half of the products are by 0, but the few rows of decode leave rows of tiles
// unused anyway, and to interleave the values of two keys took 60 % of the time, with keys in the L2 cache
// (Granite Rapids).
//
// 8 rows take the time of one, so any number of rows uses tiles, and a row's bits do not depend on the number.
//
// A number of a product depends on one row of each operand, and is NaN or infinite where multiply-adds would be.
// So a key that is not finite spoils only its own scores, which are then hidden from the rows that do not see it.
// A value that is not finite also meets weights of 0, those of rows that do not see it and those of its neighbor,
// and makes o NaN. Then the split is computed again on the masked-safe path, row by row and half by half of the
// words, with zeros for the values that a row does not see. That changes no bit of finite results: a product with
// 0 adds 0.
#pragma once

#include "cpu/amx/packing.h"
#include "cpu/attention/decode_shared.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// Tiles of 16 keys whose values are added at a time: for each few tiles of o, which stay in registers meanwhile.
inline constexpr int kValueTiles = 8;

/// Scratch memory for one kv head.
class AmxDecodeScratch : public ScratchSlices {
 public:
  /// Rows of a tile begin in different sets of the L1 cache.
  static constexpr std::int64_t kScoreStride = kDecodeSplit + 16;

  AmxDecodeScratch(const AttentionParams& p, std::int64_t rows, void* memory) : ScratchSlices(memory) {
    depth = depth_tiles(p.head_dim), width = depth_tiles(p.head_dim_v), row_tiles = (rows + 15) / 16;
    queries = take<std::uint32_t>(row_tiles * depth * kWords);
    copies = take<std::uint32_t>(kValueTiles * std::max(depth, width) * kWords);
    scores = take<Scalar>(round_up(rows, 4) * kScoreStride);
    weights = take<Scalar>(rows * kScoreStride);
    words = take<std::uint32_t>((kValueTiles * rows + 8) * 32);
    outputs = take<Scalar>(2 * row_tiles * width * kWords);
    mask = take<Scalar>(kDecodeBlock);
  }
  static std::int64_t size(const AttentionParams& p, std::int64_t rows) {
    return static_cast<std::int64_t>(AmxDecodeScratch(p, rows, nullptr).bytes() / sizeof(Scalar));
  }

  static constexpr std::int64_t kWords = 256;  // of a tile

  std::int64_t depth, width;  // in 32 numbers
  std::int64_t row_tiles;     // of 16 rows
  std::uint32_t* queries;     // [row tile][depth][16 pairs of dimensions][16 rows]
  std::uint32_t* copies;      // [kValueTiles][16][depth or width][16 pairs]: of rows not read in place
  Scalar* scores;             // [rows][kScoreStride], rows a multiple of 4
  Scalar* weights;            // the same, for the masked_safe path, which needs the scores
  std::uint32_t* words;       // [kValueTiles][rows][even, odd][16 keys]; missing rows of a tile: those of the next
  Scalar* outputs;            // [8 rows][width][8][even, odd][16 columns]
  Scalar* mask;               // [kDecodeBlock]
};

/// The steps of DecodeHead.
class AmxDecodeHead : public DecodeScores<AmxDecodeScratch> {
 public:
  using Scratch = AmxDecodeScratch;
  using Registers = Tiles;
  static constexpr std::int64_t kStep = kDecodeStep;
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
    const KvRows<bfloat16> all = keys_of(kv_head_);
    const Step step{key, key + count};
    for (; key < step.end; key += 16) {
      if (!is_wanted(key)) continue;
      const RowTile keys = tile_of(all, key, p_.head_dim, 0);
      RowTile next = next_tile<&AmxDecodeHead::keys_of>(all, step, key, p_.head_dim);
      for (std::int64_t t = 0; t < scratch_.row_tiles; ++t) multiply_keys(tiles, keys, next, t, key - begin_);
    }
  }

  void soften() {
    finish();
    for (int r = 0; r < count_; ++r) soften(r);
    std::fill_n(scratch_.outputs, 2 * scratch_.row_tiles * scratch_.width * kWords, Scalar{0});
  }

  /// Adds the values of keys [key, key + count), weighted.
  void add_values(Tiles& tiles, std::int64_t key, std::int64_t count) {
    if (masked_safe_)
      add_visible(tiles, key, key + count);
    else
      add_all(tiles, {key, key + count});
  }

  void keep_output() {
    for (int r = 0; r < count_; ++r) {
      for (std::int64_t w = 0; w < scratch_.width; ++w) {
        const Scalar* const o = outputs(r / 8, w) + r % 8 * 32;
        for (int d = 0; d < 32; ++d) state(r)[w * 32 + d] = o[d % 2 * 16 + d / 2];
      }
    }
  }

 private:
  static constexpr std::int64_t kWords = AmxDecodeScratch::kWords;
  std::uint32_t* queries(std::int64_t tile) const { return scratch_.queries + tile * scratch_.depth * kWords; }
  Scalar* weights(int r) const {
    return masked_safe_ ? scratch_.weights + r * AmxDecodeScratch::kScoreStride : scores(r);
  }
  /// The words of the weights of key tile n of a group.
  std::uint32_t* words(std::int64_t n, std::int64_t row) const { return scratch_.words + (n * count_ + row) * 32; }
  /// 8 rows and 32 columns of o.
  Scalar* outputs(std::int64_t tile, std::int64_t w) const {
    return scratch_.outputs + (tile * scratch_.width + w) * kWords;
  }

  // ---- Rows of keys and values

  KvRows<bfloat16> keys_of(std::int64_t head) const { return KvRows<bfloat16>(p_.key_source(rows_.batch, head)); }
  KvRows<bfloat16> values_of(std::int64_t head) const {
    return KvRows<bfloat16>(p_.value_source(rows_.batch, head));
  }

  /// 16 rows, `stride` bytes apart, as whole tiles: their length is a multiple of 64 bytes.
  struct RowTile {
    const std::byte* first = nullptr;
    std::int64_t stride = 0;
    SACCADE_INLINE const std::byte* at(std::int64_t row, std::int64_t d) const {
      return first + row * stride + d * 64;
    }
  };
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
  /// Rows [key, key + 16), in place or copied to a tile of `copies`.
  RowTile tile_of(const KvRows<bfloat16>& all, std::int64_t key, std::int64_t dim, int place) const {
    if (const RowTile tile = tile_in_place(all, key, dim); tile.first) return tile;
    const auto reads = [&](std::int64_t at) { return at >= readable_.begin && at < readable_.end; };
    return copy_tile(all, key, dim, place, reads);
  }

  /// Keys that this head reads before the next head reads the same.
  struct Step {
    std::int64_t begin, end;
  };
  /// What is prefetched while the 16 rows at `key` are multiplied: those that are read 4 KiB later, of this head
  /// or of the one that comes next. At 131072 keys in memory 1.15 times as fast, in pages of 16 1.24 times; 8 KiB
  /// ahead is 1.03 times slower than 4 (Granite Rapids).
  template <KvRows<bfloat16> (AmxDecodeHead::*kRowsOf)(std::int64_t) const>
  RowTile next_tile(const KvRows<bfloat16>& all, const Step& step, std::int64_t key, std::int64_t dim) const {
    const std::int64_t ahead = key + round_up(2048 / std::max<std::int64_t>(dim, 16), 16);
    if (ahead < step.end) return tile_in_place(all, ahead, dim);
    const bool is_last = kv_head_ + 1 == rows_.kv_head + rows_.kv_heads;
    return tile_in_place((this->*kRowsOf)(is_last ? rows_.kv_head : kv_head_ + 1),
                         ahead - step.end + (is_last ? step.end : step.begin), dim);
  }
  /// Prefetches quarters n, n + step, ... of a tile: all at once would take the fill buffers that loads need.
  SACCADE_INLINE void fetch(const RowTile& tile, std::int64_t depth, std::int64_t n, std::int64_t step) const {
    if (!tile.first) return;
    for (; n < 4; n += step)
      for (std::int64_t i = 4 * n; i < 4 * n + 4; ++i)
        for (std::int64_t d = 0; d < depth; ++d) __builtin_prefetch(tile.at(i, d), 0, 2);
  }

  // ---- S = Q K^T

  /// The products of 16 keys and 16 rows; prefetches `next`, once. (The keys are operand a: operand b would have
  /// to be transposed.)
  void multiply_keys(Tiles& tiles, const RowTile& keys, RowTile& next, std::int64_t tile, std::int64_t column) {
    const std::uint32_t* const q = queries(tile);
    tiles.clear<0>();
    for (std::int64_t d = 0; d < scratch_.depth; ++d) {
      fetch(next, scratch_.depth, d, scratch_.depth);
      tiles.load<2>(q + d * kWords, 64);
      tiles.load_streamed<1>(keys.at(0, d), keys.stride);
      tiles.multiply<0, 1, 2>();
    }
    next = {};
    keep_scores(tiles, tile, column);
  }

  void keep_scores(const Tiles& tiles, std::int64_t tile, std::int64_t column) {
    alignas(64) Scalar of_keys[kWords];
    tiles.store<0>(of_keys, 64);
    for (int i = 0; i < 16 && tile * 16 + i < count_; i += 4) {
      for (int j = 0; j < 16; j += kWidth) {
        Vec rows[4];
        load_columns(of_keys + j * 16 + i, 16, kWidth, 4, rows);
        SACCADE_UNROLL
        for (int r = 0; r < 4; ++r) store(scores(static_cast<int>(tile) * 16 + i + r) + column + j, rows[r]);
      }
    }
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
    state(r)[decode_output_stride(p_) + 1] = sum_of_32(sums);
  }

  /// Writes the weights of some keys, and adds them to the sums over keys modulo 32.
  SACCADE_INLINE void weigh(int r, int column, Scalar m, Vec (&sums)[32 / kWidth]) {
    bool any = false;
    for (int j = column; j < column + kDrawn; j += 32) {
      if (!is_wanted(begin_ + j)) continue;
      any = true;
      SACCADE_UNROLL
      for (int i = 0; i < 32 / kWidth; ++i) {
        const Vec x = canonical_nan(sub(load(scores(r) + j + i * kWidth), broadcast(m)));
        const Vec w = exp2(mul(x, broadcast(unit_.exp_factor)));
        sums[i] = add(sums[i], w);
        store(weights(r) + j + i * kWidth, w);
      }
    }
    if (!any) return;
    if (p_.dropout_p > 0.0) drop(r, column, weights(r) + column);
    fetch_values(r, column);
  }

  /// Prefetches a part of the first 64 KiB of the head's values, if the rows are few: no other memory is read
  /// while scores become weights. At 131072 keys in memory 1.06 times as fast (Granite Rapids).
  SACCADE_INLINE void fetch_values(int r, int column) const {
    const std::int64_t lines = scratch_.width, of_part = 1024 * kDrawn / kDecodeSplit / (lines * count_);
    const std::int64_t first = begin_ + (r * (kDecodeSplit / kDrawn) + column / kDrawn) * of_part;
    if (of_part == 0 || !is_wanted(first) || first < readable_.begin || first + of_part > readable_.end) return;
    const KvRows<bfloat16> all = values_of(kv_head_);
    for (std::int64_t key = first; key < first + of_part; ++key)
      for (std::int64_t d = 0; d < lines; ++d) prefetch_line<2>(all[key], 64 * d);
  }

  void drop(int r, int column, Scalar* weight) {
    dropout_.apply(weight, 0, kDrawn, p_.dropout_head(rows_.batch, head(r)), p_.dropout_row(token(r)),
                   begin_ + column);
  }

  // ---- O += P V

  /// Up to kValueTiles times 16 keys: their columns of scores, their values, and what to prefetch.
  struct ValueGroup {
    int count = 0;
    std::array<std::int64_t, kValueTiles> column;
    std::array<RowTile, kValueTiles> rows, next;
  };

  /// The next keys from `key` on whose values are added.
  ValueGroup group_at(const KvRows<bfloat16>& all, const Step& step, std::int64_t& key) const {
    ValueGroup group{.count = 0, .column = {}, .rows = {}, .next = {}};
    for (; key < step.end && group.count < kValueTiles; key += 16) {
      if (!is_wanted(key)) continue;
      const auto n = static_cast<std::size_t>(group.count);
      group.column[n] = key - begin_;
      group.rows[n] = tile_of(all, key, p_.head_dim_v, group.count++);
      group.next[n] = next_tile<&AmxDecodeHead::values_of>(all, step, key, p_.head_dim_v);
    }
    return group;
  }

  void add_all(Tiles& tiles, const Step& step) {
    const KvRows<bfloat16> all = values_of(kv_head_);
    const std::int64_t row_tiles = (count_ + 7) / 8;
    std::int64_t key = step.begin;
    for (ValueGroup group = group_at(all, step, key); group.count > 0; group = group_at(all, step, key)) {
      for (int n = 0; n < group.count; ++n)
        for (int r = 0; r < count_; ++r)
          put_halves(weights(r) + group.column[static_cast<std::size_t>(n)], words(n, r));
      std::int64_t t = 0;
      for (; t + 2 <= row_tiles; t += 2) add_group<2>(tiles, group, t);
      if (t < row_tiles) add_group<1>(tiles, group, t);
    }
  }

  template <int kTiles>
  void add_group(Tiles& tiles, const ValueGroup& group, std::int64_t tile) {
    constexpr std::int64_t kColumns = 4 / kTiles;  // tiles of 32
    std::int64_t w = 0;
    for (; w + kColumns <= scratch_.width; w += kColumns) multiply_values<kTiles, kColumns>(tiles, group, tile, w);
    if constexpr (kTiles == 1)
      if (w + 2 <= scratch_.width) multiply_values<1, 2>(tiles, group, tile, std::exchange(w, w + 2));
    if (w < scratch_.width) multiply_values<kTiles, 1>(tiles, group, tile, w);
  }

  /// The tiles of o in registers 0 to 3.
  template <int kTiles, int kColumns>
  void multiply_values(Tiles& tiles, const ValueGroup& group, std::int64_t tile, std::int64_t w) {
    each_output<kTiles, kColumns>([&](auto i) __attribute__((always_inline)) {
      tiles.load<i>(outputs(tile + i % kTiles, w + i / kTiles), 64);
    });
    const bool fetches = tile == 0 && w == 0;
    for (int n = 0; n < group.count; ++n) {
      const auto at = static_cast<std::size_t>(n);
      const RowTile& v = group.rows[at];
      const std::uint32_t* const p = words(n, tile * 8);
      tiles.load<4>(p, 64);
      if constexpr (kTiles == 2) tiles.load<5>(p + kWords, 64);
      each_output<kTiles, kColumns>([&](auto i) __attribute__((always_inline)) {
        constexpr int kValues = 6 + i / kTiles % 2;
        if (fetches) fetch(group.next[at], scratch_.width, i, kTiles * kColumns);
        if constexpr (i % kTiles == 0) tiles.load_streamed<kValues>(v.at(0, w + i / kTiles), v.stride);
        tiles.multiply<i, 4 + i % kTiles, kValues>();
      });
    }
    each_output<kTiles, kColumns>([&](auto i) __attribute__((always_inline)) {
      tiles.store<i>(outputs(tile + i % kTiles, w + i / kTiles), 64);
    });
  }
  template <int kTiles, int kColumns, class F>
  static SACCADE_INLINE void each_output(const F& f) {
    f(std::integral_constant<int, 0>{});
    if constexpr (kTiles * kColumns > 1) f(std::integral_constant<int, 1>{});
    if constexpr (kTiles * kColumns > 2) f(std::integral_constant<int, 2>{}), f(std::integral_constant<int, 3>{});
  }

  /// Like add_all(), row by row, with zeros for the values of keys whose score is -inf and for one column of each
  /// word. All rows of its tiles are equal: loaded from one row of memory, and stored to one.
  __attribute__((noinline)) void add_visible(Tiles& tiles, std::int64_t key, std::int64_t end) {
    const KvRows<bfloat16> all = values_of(kv_head_);
    for (; key < end; key += 16) {
      if (!is_wanted(key)) continue;
      for (int r = 0; r < count_; ++r) {
        const Scalar* const line = scores(r) + (key - begin_);
        const RowTile v = copy_tile(all, key, p_.head_dim_v, 0, [&](std::int64_t at) {
          return at >= readable_.begin && at < readable_.end && line[at - key] != -kInfinity;
        });
        put_halves(weights(r) + (key - begin_), words(0, r));
        for (std::int64_t w = 0; w < scratch_.width; ++w)
          for (int odd = 0; odd < 2; ++odd)
            add_halves(tiles, v, w, odd, words(0, r) + odd * 16, outputs(r / 8, w) + (r % 8 * 2 + odd) * 16);
      }
    }
  }
  void add_halves(Tiles& tiles, const RowTile& v, std::int64_t w, int odd, const std::uint32_t* p, Scalar* o) {
    alignas(64) std::uint32_t halves[kWords];
    for (int i = 0; i < 16; ++i) std::memcpy(halves + i * 16, v.at(i, w), 64);
    for (std::uint32_t& word : halves) word &= odd ? 0xffff0000U : 0x0000ffffU;
    tiles.load<0>(o, 0);
    tiles.load<4>(p, 0);
    tiles.load<6>(halves, 64);
    tiles.multiply<0, 4, 6>();
    tiles.store<0>(o, 0);
  }
};

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
