// Attention of one block of query rows on AMX tiles, for q, k and v in bf16. 32 rows meet 32 keys at a time:
//
//   for every kStepTiles * 32 keys
//     for every 32 rows of the block
//       for each 32 keys that some row sees
//         S = Q K^T                   32 x 32 scores in four tiles; between the products, the weights of
//                                     the keys two tiles before, in 16-bit fixed point (simd_amx.h)
//         softcap, biases, masks      ScoreFinisher, only where a score needs them
//       O += P V, l += P 1            P as it was rounded; l by a tile of ones
//   o = O / l
//
// There is no running maximum: a row's weights are relative to a whole exponent above its first visible keys, with
// room for scores 30 binades larger. Neither O nor l is scaled from one key block to the next; only a row that
// needs more room is scaled down, by a power of two.
//
// All numbers in tiles are finite and large enough: keys and values that are not are packed as zeros, and rows
// that see such a key, or a score that is too large for fixed point, are "others": the f32 kernels compute them
// again. What a row does not see changes none of its bits.
#pragma once

#include "cpu/output.h"
#include "cpu/packing_amx.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

inline constexpr int kStepTiles = 8;  // 256 keys: their weights for 32 rows, 16 KiB, stay in the L1 cache
inline constexpr int kLag = 2;        // how many tiles of keys the weights follow the scores
inline constexpr int kGroups = static_cast<int>(kBlockQAlone) / kTileRows;

// ---- One block of query rows ---------------------------------------------------------------------------------

/// The memory of one thread's work on a query block of `groups` groups of 32 rows.
class AmxScratch : public ScratchPieces {
 public:
  AmxScratch(const AttentionParams& p, std::int64_t groups, void* memory) : ScratchPieces(memory) {
    depth = depth_tiles(p.head_dim), width = depth_tiles(p.head_dim_v);
    scores = take<float>(kLag * 1024);
    weights = take<bfloat16>(kStepTiles * 1024);
    queries = take<std::uint32_t>(groups * depth * 512);
    outputs = take<float>(groups * width * 1024);
    sums = take<float>(groups * 512);
    exact_sums = take<float>(groups * 512);
    maxima = take<float>(groups * 32);
    offsets = take<float>(groups * 32);
    mask = take<float>(1024);
    packed = take<std::byte>(kStepTiles * PackedTile<std::byte>::size(p));
  }

  std::int64_t depth, width;  // in tiles
  float* scores;              // [kLag][32][32]
  bfloat16* weights;          // [kStepTiles][32][32]
  std::uint32_t* queries;     // [group][depth][32][16 pairs]
  float* outputs;             // [group][width][32][32]
  float* sums;                // [group][32][16], of the rounded weights; the 16 columns are equal
  float* exact_sums;          // [group][32][16], of the weights themselves, over keys modulo 16
  float* maxima;              // [group][32], of the scores; the exact sums are relative to them
  float* offsets;             // [group][32] of Weights::of_row; -inf: the row has not seen a key
  float* mask;                // [32][32], of ScoreFinisher
  std::byte* packed;
};

/// The f32 kernels of the same level, for others.
const ForwardKernels& kernels_of_other_rows();

class AmxBlock {
 public:
  AmxBlock(const AttentionParams& params, const QueryRows& work, const PackedKeys& packed, void* memory)
      : p_(params),
        batch_(work.batch),
        head_(work.head),
        kv_head_(work.head / (params.num_heads / params.num_kv_heads)),
        row_(work.row),
        rows_(static_cast<int>(std::min(work.rows, params.rows(work.batch) - work.row))),
        groups_((rows_ + 31) / 32),
        packed_(packed),
        visibility_(params, work.batch),
        finisher_(params, visibility_, work.batch, work.head),
        dropout_(params),
        unit_(score_unit(params)),
        drops_(params.dropout_p > 0.0),
        wants_exact_sums_(params.lse.data || params.saves_scores()),
        scratch_(params, groups_, memory) {}

  void run() {
    begin();
    KeyRange range = visibility_.visible(row_, rows_);
    if (p_.saves_hidden()) range = finisher_.all_keys();
    for (std::int64_t tile = range.begin / 32 / kStepTiles * kStepTiles; tile * 32 < range.end;
         tile += kStepTiles) {
      if (!packed_.blocks) pack_step(tile, range);
      for (int g = 0; g < groups_; ++g) step(g, tile, range);
    }
    end();
  }

  /// Rows of a group that other kernels must compute, one bit each.
  std::uint32_t others(int g) const {
    return others_[g] & static_cast<std::uint32_t>((std::uint64_t{1} << group_rows(g)) - 1);
  }
  int groups() const { return groups_; }

 private:
  static constexpr float kUnseen = -std::numeric_limits<float>::infinity();
  static constexpr std::int64_t kScoreStride = 128, kWeightStride = 64, kTileBytes = 64;

  int group_rows(int g) const { return std::min(32, rows_ - g * 32); }
  std::int64_t group_row(int g) const { return row_ + g * 32; }
  float* scores(int place) { return scratch_.scores + place % kLag * 1024; }
  bfloat16* weights(int place) { return scratch_.weights + place * 1024; }
  float* outputs(int g, std::int64_t d) { return scratch_.outputs + (g * scratch_.width + d) * 1024; }
  float* sums(int g) { return scratch_.sums + g * 512; }
  float* offsets(int g) { return scratch_.offsets + g * 32; }

  void begin() {
    for (int g = 0; g < groups_; ++g) {
      pack_queries_of(g);
      std::fill_n(offsets(g), 32, kUnseen);
      std::fill_n(scratch_.exact_sums + g * 512, 512, 0.0F);
      std::fill_n(scratch_.maxima + g * 32, 32, kNoMaximum);
      unseen_[g] = true;
      started_[g] = false;
      for (int i = 0; i < group_rows(g) && p_.saves_scores(); ++i)
        finisher_.clear_saved(group_row(g) + i, 0, p_.seqlen_k);
    }
    for (auto& one : ones_) one = bfloat16(1.0F);
  }

  void pack_queries_of(int g) {
    std::uint32_t* const to = scratch_.queries + g * scratch_.depth * 512;
    unsigned largest = 0;
    others_[g] = low_[g] = 0;
    if (!(256 * unit_.exp_factor <= std::numeric_limits<float>::max())) others_[g] = ~std::uint32_t{0};
    for (int i = 0; i < 32; ++i) {
      const bfloat16* row =
          i < group_rows(g) ? p_.row_of<bfloat16>(p_.q, batch_, head_, group_row(g) + i) : nullptr;
      if (row) {
        const unsigned of_row = largest_magnitude(row, p_.head_dim);
        if (of_row >= kNotFinite) {
          others_[g] |= std::uint32_t{1} << i;
          row = nullptr;
        } else {
          largest = std::max(largest, of_row);
        }
      }
      for (std::int64_t d = 0; d < scratch_.depth; ++d) {
        std::uint32_t* const words = to + d * 512 + i * 16;
        copy_32(row, d * 32, p_.head_dim, words);
        if (unit_.query_factor < 0)  // the queries carry the sign of the scale
          for (int w = 0; w < 16; ++w) words[w] ^= 0x80008000U;
      }
    }
    largest_query_[g] = from_magnitude(largest);
  }

  // ---- Keys

  PackedTile<const std::byte> tile_at(std::int64_t tile) const {
    const std::int64_t size = PackedTile<std::byte>::size(p_);
    if (!packed_.blocks) return {p_, scratch_.packed + tile % kStepTiles * size};
    return {p_, static_cast<const std::byte*>(packed_.blocks) + (tile - packed_.first_block) * size};
  }

  void pack_step(std::int64_t tile, KeyRange range) {
    const KeyRows<bfloat16> k = p_.key_rows<bfloat16>(p_.k, batch_, kv_head_);
    const KeyRows<bfloat16> v = p_.key_rows<bfloat16>(p_.v, batch_, kv_head_);
    for (std::int64_t t = std::max(tile, range.begin / 32); t < tile + kStepTiles && t * 32 < range.end; ++t)
      pack_tile(p_, k, v, t * 32, range, {p_, scratch_.packed + t % kStepTiles * PackedTile<std::byte>::size(p_)});
  }

  // ---- The stream of products

  /// The tiles that the last products left in registers 0 to 3, and where they belong: each is stored right before
  /// its register is needed again, between products. Four stores in a row would take as long as the products.
  /// A local variable of step(), into which all of its users are inlined: so it stays in registers.
  struct Stream {
    Tiles& tiles;
    Weights weights;
    float* low = nullptr;   // registers 0 and 1; nullptr: nowhere
    float* high = nullptr;  // registers 2 and 3
  };

  template <int kTile>
  SACCADE_INLINE void leave(Stream& s) {
    if (float* const to = kTile < 2 ? s.low : s.high) s.tiles.store<kTile>(to + kTile % 2 * 16, kScoreStride);
  }
  SACCADE_INLINE void leave_all(Stream& s) {
    leave<0>(s), leave<1>(s), leave<2>(s), leave<3>(s);
    s.low = s.high = nullptr;
  }
  template <int kTile>
  SACCADE_INLINE void enter(Stream& s, const float* from) {
    leave<kTile>(s);
    if (from)
      s.tiles.load<kTile>(from + (kTile >> 1) * 512 + (kTile & 1) * 16, kScoreStride);
    else
      s.tiles.clear<kTile>();
  }

  /// Weights that are computed beside products: rows of one place of the step.
  struct Beside {
    const float* scores = nullptr;
    const float* offsets = nullptr;
    bfloat16* weights = nullptr;
  };
  template <int kFirst, int kRows>
  SACCADE_INLINE void weigh(Stream& s, const Beside& b) {
    SACCADE_UNROLL
    for (int i = kFirst; i < kFirst + kRows; ++i)
      s.weights.of_row(b.scores + i * 32, b.offsets[i], b.weights + i * 32);
  }

  /// Four products: 32 x 32 results, 32 deep, from a pair of tiles of `a` and one of `b`, with kRows rows of
  /// weights after each. kNew: of new accumulators, which begin as `from` (nullptr: as 0) and belong to `to`.
  template <bool kNew, int kFirst, int kRows>
  SACCADE_INLINE void products(Stream& s, const void* a, const void* b, const float* from, float* to,
                               const Beside& beside) {
    const std::byte* const a_rows = static_cast<const std::byte*>(a);
    const std::byte* const b_rows = static_cast<const std::byte*>(b);
    if constexpr (kNew) enter<0>(s, from);
    s.tiles.load<6>(b_rows, kTileBytes);
    s.tiles.load<4>(a_rows, kWeightStride);
    s.tiles.multiply<0, 4, 6>();
    weigh<kFirst, kRows>(s, beside);
    if constexpr (kNew) enter<2>(s, from);
    s.tiles.load<5>(a_rows + 1024, kWeightStride);
    s.tiles.multiply<2, 5, 6>();
    weigh<kFirst + kRows, kRows>(s, beside);
    if constexpr (kNew) enter<1>(s, from);
    s.tiles.load<7>(b_rows + 1024, kTileBytes);
    s.tiles.multiply<1, 4, 7>();
    weigh<kFirst + 2 * kRows, kRows>(s, beside);
    if constexpr (kNew) enter<3>(s, from);
    s.tiles.multiply<3, 5, 7>();
    weigh<kFirst + 3 * kRows, kRows>(s, beside);
    if constexpr (kNew) s.low = to, s.high = to + 512;
  }

  /// The scores of 32 keys, with the 32 rows of weights of `beside` spread over the first products.
  template <bool kWeighs>
  SACCADE_INLINE void score_tile(Stream& s, const std::uint32_t* q, const std::uint32_t* k, float* to,
                                 const Beside& beside) {
    constexpr int kFour = kWeighs ? 4 : 0, kTwo = kWeighs ? 2 : 0, kEight = kWeighs ? 8 : 0;
    std::int64_t d = 1;
    if (scratch_.depth == 1) {
      products<true, 0, kEight>(s, q, k, nullptr, to, beside);
    } else if (scratch_.depth < 4) {
      products<true, 0, kFour>(s, q, k, nullptr, to, beside);
      products<false, kWeighs ? 16 : 0, kFour>(s, q + 512, k + 512, nullptr, nullptr, beside);
      d = 2;
    } else {
      products<true, 0, kTwo>(s, q, k, nullptr, to, beside);
      products<false, kWeighs ? 8 : 0, kTwo>(s, q + 512, k + 512, nullptr, nullptr, beside);
      products<false, kWeighs ? 16 : 0, kTwo>(s, q + 1024, k + 1024, nullptr, nullptr, beside);
      products<false, kWeighs ? 24 : 0, kTwo>(s, q + 1536, k + 1536, nullptr, nullptr, beside);
      d = 4;
    }
    for (; d < scratch_.depth; ++d) products<false, 0, 0>(s, q + d * 512, k + d * 512, nullptr, nullptr, beside);
  }

  // ---- One group of rows and the keys of one step

  struct Step {
    int group = 0, count = 0;                   // of computed tiles of keys
    std::array<std::int64_t, kStepTiles> tile;  // of all keys
  };

  void step(int g, std::int64_t first_tile, KeyRange range) {
    Stream stream{.tiles = tiles_, .weights = Weights(256 * unit_.exp_factor)};
    Step s{.group = g, .count = 0, .tile = {}};
    const std::uint32_t* const q = scratch_.queries + g * scratch_.depth * 512;
    for (std::int64_t t = std::max(first_tile, range.begin / 32);
         t < first_tile + kStepTiles && t * 32 < range.end; ++t)
      add_scores(stream, s, t, q);
    if (s.count == 0) return leave_all(stream);
    add_values(stream, s);
    started_[g] = true;
  }

  /// The scores of a tile of keys, unless no row sees any of it, and the weights of the computed one kLag before.
  /// They share a place in memory: the weights are read before the registers with the new scores are stored.
  SACCADE_INLINE void add_scores(Stream& stream, Step& s, std::int64_t tile, const std::uint32_t* q) {
    const std::int64_t row = group_row(s.group), first_key = tile * 32;
    const int rows = group_rows(s.group);
    const PackedTile<const std::byte> keys = tile_at(tile);
    Granules granules;
    const bool plain = finisher_.takes_all(row, rows, first_key) && keys.facts->bad == 0 &&
                       fits(largest_query_[s.group] * keys.facts->largest * static_cast<float>(p_.head_dim));
    if (!plain) {
      granules = finisher_.plan(row, rows, first_key, scratch_.mask);
      if (p_.score_modifier) stream.tiles.configure();  // the caller's functions may use tiles; ours are stored
      if (granules.count == 0) return;
    }
    const int place = s.count++;
    s.tile[static_cast<std::size_t>(place)] = tile;
    if (place < kLag) {
      score_tile<false>(stream, q, keys.keys, scores(place), {});
    } else {
      score_tile<true>(stream, q, keys.keys, scores(place), beside(s, place - kLag));
      after_weights(stream, s, place - kLag, nullptr);
    }
    if (!plain) {
      leave_all(stream);
      finish(s, first_key, granules, keys.facts->bad, scores(place));
      if (p_.score_modifier) stream.tiles.configure();
    }
    if (unseen_[s.group]) {
      leave_all(stream);
      find_offsets(s, scores(place));
    }
  }

  /// The largest score that others need not compute: of 2^21 binades.
  float limit() const { return 0x1p29F / (256 * unit_.exp_factor); }
  /// Whether scores up to `largest` in magnitude, before their scale, are safe in fixed point.
  bool fits(float largest) const {
    return largest < 1e30F && largest * std::abs(static_cast<float>(p_.scale)) < 1e6F;
  }

  Beside beside(const Step& s, int place) { return {scores(place), offsets(s.group), weights(place)}; }

  /// Softcap, biases and masks; then finds the rows that other kernels have to compute.
  __attribute__((noinline)) void finish(const Step& s, std::int64_t first_key, const Granules& granules,
                                        std::uint32_t bad, float* block) {
    alignas(64) Scalar row_max[kTileRows * kWidth];
    std::fill_n(row_max, kTileRows * kWidth, -kInfinity);
    finisher_.finish(group_row(s.group), group_rows(s.group), first_key, granules, scratch_.mask, block, row_max);
    const Vec most = broadcast(limit()), least = broadcast(-limit() / 2), hidden = broadcast(-kInfinity);
    for (int i = 0; i < group_rows(s.group); ++i) {
      bool other = bad != 0 && p_.saves_hidden();
      unsigned low = 0;
      for (int j = 0; j < 32; j += kWidth) {
        const Vec x = load(block + i * 32 + j);
        constexpr unsigned kAll = (1U << kWidth) - 1U;
        const unsigned visible = bits(equal(x, hidden)) ^ kAll;
        other = other || bits(less(x, most)) != kAll || (visible & bad >> j & kAll) != 0;
        low |= bits(less(x, least)) & visible;
      }
      if (low != 0) low_[s.group] |= std::uint32_t{1} << i;
      if (!other) continue;
      others_[s.group] |= std::uint32_t{1} << i;
      std::fill_n(block + i * 32, 32, -kInfinity);  // none of it matters, and nothing must overflow
    }
  }

  /// Gives rows that see their first keys an offset: these keys' weights are at most 2^-kWeightHeadroom.
  __attribute__((noinline)) void find_offsets(const Step& s, const float* block) {
    unseen_[s.group] = false;
    for (int i = 0; i < 32; ++i) {
      float& offset = offsets(s.group)[i];
      if (offset != kUnseen) continue;
      Vec largest = load(block + i * 32);
      for (int j = kWidth; j < 32; j += kWidth) largest = max(largest, load(block + i * 32 + j));
      const float top = reduce_max(largest);
      if (top >= -limit() / 2)
        offset = kWeightBias - 256 * std::ceil(top * unit_.exp_factor);
      else
        unseen_[s.group] = true;
    }
  }

  /// Called when the weights of a place are complete. `o`: the accumulators that registers 0 to 3 hold, if they
  /// do.
  SACCADE_INLINE void after_weights(Stream& stream, const Step& s, int place, float* o) {
    if (stream.weights.overflowed()) [[unlikely]] {
      if (o) leave_all(stream);
      make_room(s, place, o != nullptr);
      stream.weights.reset();
      if (o) {
        enter<0>(stream, o), enter<1>(stream, o), enter<2>(stream, o), enter<3>(stream, o);
        stream.low = o, stream.high = o + 512;
      }
    }
    if (wants_exact_sums_) add_exact_sums(s.group, scores(place));
  }

  /// Rare: rows with a score more than 31 binades above their first keys get a new offset, and all that they have
  /// so far is scaled down. `has_first_columns`: so are the first columns of this step's output.
  __attribute__((noinline)) void make_room(const Step& s, int place, bool has_first_columns) {
    Weights again(256 * unit_.exp_factor);
    for (int i = 0; i < 32; ++i) {
      const float* const row = scores(place) + i * 32;
      float top = -kInfinity;
      for (int j = 0; j < 32; ++j) top = std::max(top, row[j]);
      alignas(64) bfloat16 before[32];
      again.reset();
      again.of_row(row, offsets(s.group)[i], before);
      if (!again.overflowed()) continue;
      const float offset = kWeightBias - 256 * std::ceil(top * unit_.exp_factor);
      const float factor = static_cast<float>(std::exp2((offset - offsets(s.group)[i]) / 256));
      offsets(s.group)[i] = offset;
      if (started_[s.group])
        for (int j = 0; j < 16; ++j) sums(s.group)[i * 16 + j] *= factor;
      for (std::int64_t d = 0; d < scratch_.width; ++d)
        if (started_[s.group] || (has_first_columns && d == 0))
          for (int j = 0; j < 32; ++j) outputs(s.group, d)[i * 32 + j] *= factor;
      for (int earlier = 0; earlier < place; ++earlier)
        for (int j = 0; j < 32; ++j) {
          bfloat16& weight = weights(earlier)[i * 32 + j];
          weight = bfloat16(static_cast<float>(weight) * factor);
        }
      again.of_row(row, offset, weights(place) + i * 32);
    }
  }

  /// Adds the weights themselves, for lse and reported weights: what rounds them to bf16 would show there. With a
  /// running maximum, for the headroom would cost digits.
  __attribute__((noinline)) void add_exact_sums(int g, const float* block) {
    const Vec factor = broadcast(unit_.exp_factor);
    for (int i = 0; i < group_rows(g); ++i) {
      const float* const row = block + i * 32;
      float* const sums = scratch_.exact_sums + g * 512 + i * 16;
      float& maximum = scratch_.maxima[g * 32 + i];
      Vec largest = broadcast(maximum);
      for (int j = 0; j < 32; j += kWidth) largest = max(largest, load(row + j));
      const Vec top = broadcast(reduce_max(largest));
      const Vec shrink = exp2(mul(sub(broadcast(maximum), top), factor));
      for (int j = 0; j < 16; j += kWidth) {
        const Vec low = exp2(mul(sub(load(row + j), top), factor));
        const Vec high = exp2(mul(sub(load(row + 16 + j), top), factor));
        store(sums + j, fma(shrink, load(sums + j), add(low, high)));
      }
      store_first(&maximum, 1, top);
    }
  }

  /// The weights of the last places, O += P V and the sums of weights.
  SACCADE_INLINE void add_values(Stream& stream, const Step& s) {
    const int n = s.count;
    std::int64_t d = 0;
    if (n >= 5 && !drops_) {  // the last kLag places' weights beside the first columns of values
      float* const o = outputs(s.group, 0);
      const float* const from = started_[s.group] ? o : nullptr;
      const Beside first = beside(s, n - 2), second = beside(s, n - 1);
      products<true, 0, 4>(stream, weights(0), values(s, 0, 0), from, o, first);
      products<false, 16, 4>(stream, weights(1), values(s, 1, 0), nullptr, nullptr, first);
      after_weights(stream, s, n - 2, o);
      products<false, 0, 4>(stream, weights(2), values(s, 2, 0), nullptr, nullptr, second);
      products<false, 16, 4>(stream, weights(3), values(s, 3, 0), nullptr, nullptr, second);
      after_weights(stream, s, n - 1, o);
      for (int t = 4; t < n; ++t) products<false, 0, 0>(stream, weights(t), values(s, t, 0), nullptr, nullptr, {});
      d = 1;
    } else {
      leave_all(stream);
      for (int t = std::max(0, n - kLag); t < n; ++t) {
        weigh<0, 32>(stream, beside(s, t));
        after_weights(stream, s, t, nullptr);
      }
      if (drops_) {
        add_sums(stream, s);
        leave_sums(stream, s);
        drop(s);
      }
    }
    for (; d < scratch_.width; ++d) {
      float* const o = outputs(s.group, d);
      products<true, 0, 0>(stream, weights(0), values(s, 0, d), started_[s.group] ? o : nullptr, o, {});
      for (int t = 1; t < n; ++t) products<false, 0, 0>(stream, weights(t), values(s, t, d), nullptr, nullptr, {});
    }
    leave_all(stream);
    if (!drops_) {
      add_sums(stream, s);
      leave_sums(stream, s);
    }
  }

  const std::uint32_t* values(const Step& s, int place, std::int64_t d) const {
    return tile_at(s.tile[static_cast<std::size_t>(place)]).values + d * 512;
  }

  /// l += P 1: 16 equal columns.
  SACCADE_INLINE void add_sums(Stream& stream, const Step& s) {
    float* const l = sums(s.group);
    Tiles& tiles = stream.tiles;
    if (started_[s.group]) {
      tiles.load<0>(l, kTileBytes), tiles.load<1>(l + 256, kTileBytes);
    } else {
      tiles.clear<0>(), tiles.clear<1>();
    }
    tiles.load<7>(ones_, kTileBytes);
    for (int t = 0; t < s.count; ++t) {
      tiles.load<4>(weights(t), kWeightStride);
      tiles.multiply<0, 4, 7>();
      tiles.load<5>(weights(t) + 512, kWeightStride);
      tiles.multiply<1, 5, 7>();
    }
  }
  SACCADE_INLINE void leave_sums(Stream& stream, const Step& s) {
    stream.tiles.store<0>(sums(s.group), kTileBytes);
    stream.tiles.store<1>(sums(s.group) + 256, kTileBytes);
  }

  __attribute__((noinline)) void drop(const Step& s) {
    for (int t = 0; t < s.count; ++t) {
      const std::int64_t first_key = s.tile[static_cast<std::size_t>(t)] * 32;
      const int begin = static_cast<int>(first_key % 128);
      for (int i = 0; i < group_rows(s.group); ++i) {
        alignas(64) Scalar kept[128];
        std::fill_n(kept, 128, Scalar{1});
        dropout_.apply(kept, 0, 128, batch_head(), static_cast<std::uint32_t>(group_row(s.group) + i),
                       first_key - begin);
        bfloat16* const row = weights(t) + i * 32;
        for (int w = 0; w < 32; ++w)
          if (kept[begin + key_of_word(w)] == 0) row[w] = bfloat16(0.0F);
      }
    }
  }

  std::uint32_t batch_head() const { return static_cast<std::uint32_t>(batch_ * p_.num_heads + head_); }

  // ---- Results

  void end() {
    for (int g = 0; g < groups_; ++g) {
      if (!started_[g]) {
        std::fill_n(outputs(g, 0), scratch_.width * 1024, 0.0F);
        std::fill_n(sums(g), 512, 0.0F);
      }
      alignas(64) Scalar m[kTileRowsPadded], l[kTileRowsPadded], exact[kTileRowsPadded] = {};
      for (int i = 0; i < 32; ++i) {
        // As if m were the row's maximum: rounded weights are exp2((s - m) exp_factor).
        const float offset = offsets(g)[i];
        m[i] = offset == kUnseen ? kNoMaximum : (127 - (offset + kWeightShift) / 256) / unit_.exp_factor;
        l[i] = sums(g)[i * 16];
        // Low scores weigh nothing beside usual ones, but may be all that a row has.
        if (offset == kUnseen || offset > kWeightBias + 0x1p27F) others_[g] |= low_[g] & std::uint32_t{1} << i;
        if (wants_exact_sums_) exact[i] = sum_of_16(scratch_.exact_sums + g * 512 + i * 16);
      }
      others_[g] |= end_rows(p_, finisher_, dropout_,
                             {.batch = batch_,
                              .head = head_,
                              .row = group_row(g),
                              .count = group_rows(g),
                              .m = wants_exact_sums_ ? scratch_.maxima + g * 32 : m,
                              .l = wants_exact_sums_ ? exact : l,
                              .m_of_o = m,
                              .l_of_o = l,
                              .natural = unit_.natural,
                              .o = outputs(g, 0),
                              .o_stride = 1024});
    }
  }

  static float sum_of_16(const float* x) {
    float sums[8];
    for (int i = 0; i < 8; ++i) sums[i] = x[i] + x[i + 8];
    return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
  }

  const AttentionParams& p_;
  std::int64_t batch_, head_, kv_head_, row_;
  int rows_, groups_;
  PackedKeys packed_;
  Visibility visibility_;
  ScoreFinisher finisher_;
  Dropout dropout_;
  ScoreUnit unit_;
  bool drops_, wants_exact_sums_;
  AmxScratch scratch_;
  Tiles tiles_;
  alignas(64) bfloat16 ones_[512];
  bool started_[kGroups], unseen_[kGroups];
  float largest_query_[kGroups];
  std::uint32_t others_[kGroups];  // rows to be computed by other kernels
  std::uint32_t low_[kGroups];     // rows with a score below -limit() / 2, which gives no offset
};

inline void forward(const AttentionParams& params, const QueryRows& work, const PackedKeys& packed,
                    void* scratch) {
  AmxBlock block(params, work, packed, scratch);
  block.run();
  for (int g = 0; g < block.groups(); ++g)
    for (std::uint32_t others = block.others(g); others != 0; others &= others - 1)  // each bit
      kernels_of_other_rows().attend(
          params, {work.batch, work.head, work.row + g * 32 + std::countr_zero(others), 1}, {}, scratch);
}

inline void pack_block(const AttentionParams& p, std::int64_t batch, std::int64_t kv_head, std::int64_t block,
                       KeyRange readable, void* packed) {
  pack_tile(p, p.key_rows<bfloat16>(p.k, batch, kv_head), p.key_rows<bfloat16>(p.v, batch, kv_head), block * 32,
            readable, {p, static_cast<std::byte*>(packed)});
}

inline ForwardPlan plan_forward(const AttentionParams& p) {
  const std::size_t of_others = kernels_of_other_rows().plan(p).scratch;
  const auto scratch = [&](std::int64_t rows) {
    return std::max(of_others, AmxScratch(p, rows / 32, nullptr).bytes());
  };
  return {.tile_q = kTileRows,
          .block_q = kBlockQ,
          .block_q_alone = kBlockQAlone,
          .block_k = kBlockK,
          .packed_block = static_cast<std::size_t>(PackedTile<std::byte>::size(p)),
          .scratch = scratch(kBlockQ),
          .scratch_alone = scratch(kBlockQAlone)};
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
