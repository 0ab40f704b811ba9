// The gradients of attention on AMX tiles, for tensors of one type: bf16, or the two or three bf16 parts of f16 or
// f32 (amx/bf16_split.h). The steps are those of backward.h, for 32 rows and 32 keys at a time:
//
//   for every 32 rows of the block
//     for each 32 keys that some row sees
//       S = Q K^T                           between the products, P of the previous tile
//       softcap, biases, masks              ScoreFinisher, only where a score needs them
//       dP = dO V^T                         between the products, dS of the previous tile
//   for every 32 keys                       sums over all rows of the block
//     dV^T += dO^T P,  dK^T += Q^T dS
//   for every 32 rows                       sums over all keys of the block
//     dQ += dS K
//
// P and dS are split into bf16 parts as they are computed: both as pairs of rows, dS also as rows, so that neither
// is transposed. Where something else reads dS too (the gradients of a mask, of slopes or of a score modifier),
// they stay in f32 and are split later.
//
// Except in P and dS, all numbers in tiles are finite and of moderate size: other rows and keys are packed as
// zeros, and their pairs are computed one by one, without tiles. A row's bits do not depend on keys that it does
// not see, nor a key's bits on rows that do not see it.
#pragma once

#include "cpu/amx/backward_state.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// One block of keys and one block of rows of a query head.
template <class T>
class AmxBackwardBlock {
 public:
  AmxBackwardBlock(const BackwardParams& params, const KeyBlock& keys, const QueryRows& rows, void* memory)
      : b_(params),
        p_(params.attention),
        batch_(keys.batch),
        kv_head_(keys.kv_head),
        head_(rows.head),
        block_key_(keys.block * kKeysOfAmx),
        row_(rows.row),
        rows_(static_cast<int>(std::min(rows.rows, p_.rows(batch_) - rows.row))),
        scale_(static_cast<float>(std::clamp(p_.scale, -0x1p127, 0x1p127))),
        keep_scale_(static_cast<float>(1.0 / (1.0 - p_.dropout_p))),
        readable_(readable_keys(p_, batch_)),
        visibility_(p_, batch_),
        finisher_(p_, visibility_, batch_, head_, true),
        of_logits_(b_, visibility_, finisher_, batch_, head_),
        k_(p_.key_source(batch_, kv_head_)),
        v_(p_.value_source(batch_, kv_head_)),
        scratch_(params, memory),
        stats_(*scratch_.stats) {}

  /// Packs the keys and values of the block and sets their gradients to 0.
  void begin() {
    for (int t = 0; t < kTiles; ++t) {
      stats_.bad_keys[t] = 0;
      if (first_key(t) < readable_.end && first_key(t) + 32 > readable_.begin) pack_keys_of(t);
    }
    const std::int64_t keys = std::min(kKeysOfAmx, p_.keys(batch_) - block_key_);
    if (b_.wants_keys()) scratch_.clear_gradients((keys + 31) / 32);
  }

  /// Computes P and dS, the gradients of the logits. Returns whether there are any.
  bool find_logits(const float* statistics, double& dslope) {
    const bool any = p_.dropout_p > 0.0 ? find<true>(statistics) : find<false>(statistics);
    if (any && b_.dslopes.data) {
      double sum = 0.0;
      for_each_block([&](int g, int t) {
        of_logits_.add_to_slope(group_row(g), group_rows(g), columns(t), block(scratch_.gradients, g, t), sum);
      });
      dslope += sum;
    }
    return any;
  }

  void add_to_mask() {
    for_each_block([&](int g, int t) {
      of_logits_.add_to_mask(group_row(g), group_rows(g), columns(t), block(scratch_.gradients, g, t));
    });
  }

  /// Turns the gradients of the logits into those of the products, and adds to dk and dv if they are requested.
  void add_to_keys() {
    for_each_block([&](int g, int t) {
      if (!stats_.keeps_all[g]) return;
      if (scratch_.softcapped)
        of_logits_.differentiate(group_row(g), group_rows(g), columns(t), stats_.subtiles[g][t].is_modified(0),
                                 block(scratch_.softcapped, g, t), block(scratch_.probabilities, g, t),
                                 block(scratch_.gradients, g, t));
      put_parts(g, t);
    });
    if (!b_.wants_keys()) return;
    Tiles tiles;
    TileStream stream(tiles);
    for (int t = 0; t < kTiles; ++t) {
      for (std::int64_t d = 0; d < scratch_.width; ++d)
        add_rows_to(stream, t, scratch_.dout_pairs + d * kWords, scratch_.width, scratch_.weights,
                    scratch_.dv + (t * scratch_.width + d) * 1024);
      for (std::int64_t d = 0; d < scratch_.depth; ++d)
        add_rows_to(stream, t, scratch_.query_pairs + d * kWords, scratch_.depth, scratch_.pair_gradients,
                    scratch_.dk + (t * scratch_.depth + d) * 1024);
    }
    stream.leave_all();
    for_each_bad_pair([&](int g, int t, int i, int j) {
      const float kept = keep(g, t, i, j) != 0 ? probability(g, t, i, j) : 0;
      const float gradient = logit_gradient(g, t, i, j);
      add_multiple(kept, dout_of(g, i), p_.head_dim_v, scratch_.dv + t * scratch_.width * 1024 + j, 32);
      add_multiple(gradient, query_of(g, i), p_.head_dim, scratch_.dk + t * scratch_.depth * 1024 + j, 32);
    });
  }

  /// dq += dS K, where dq is [group][depth][32][32].
  void add_to_rows(float* dq) {
    Tiles tiles;
    TileStream stream(tiles);
    for (int g = 0; g < groups(); ++g) {
      for (std::int64_t d = 0; d < scratch_.depth; ++d) {
        float* const to = dq + (g * scratch_.depth + d) * 1024;
        bool is_new = true;
        for (int t = 0; t < kTiles; ++t) {
          if (!meet(g, t)) continue;
          add_product(stream, is_new, block(scratch_.row_gradients, g, t),
                      scratch_.key_pairs + (t * scratch_.depth + d) * kWords, to);
          is_new = false;
        }
      }
    }
    stream.leave_all();
    for_each_bad_pair([&](int g, int t, int i, int j) {
      const T* const key = k_[first_key(t) + j];
      const float gradient = logit_gradient(g, t, i, j);
      for (std::int64_t d = 0; d < p_.head_dim; d += 32)
        add_multiple(gradient, key + d, std::min<std::int64_t>(32, p_.head_dim - d),
                     dq + (g * scratch_.depth + d / 32) * 1024 + i * 32, 1);
    });
  }

  /// Copies what add_to_rows() reads to the beginning of other scratch memory. Returns false if tiles cannot hold
  /// some pairs, for which it would read more.
  bool park(void* memory) const {
    const Scratch to(b_, memory);
    *to.stats = stats_;
    bool all_fit = true;
    for_each_block([&](int g, int t) {
      all_fit = all_fit && (stats_.bad_rows[g] | stats_.bad_keys[t]) == 0;
      std::copy_n(block(scratch_.row_gradients, g, t), kWords, block(to.row_gradients, g, t));
    });
    std::copy_n(scratch_.key_pairs, kTiles * scratch_.depth * kWords, to.key_pairs);
    return all_fit;
  }

 private:
  using Scratch = AmxBackwardScratch<T>;
  static constexpr int kParts = kPartsOf<T>, kTiles = kKeyTilesOfAmx;
  static constexpr const auto& kOfScores = PairsOf<T>::kExact;
  static constexpr const auto& kOfGradients = PairsOf<T>::kRounded;
  static constexpr std::int64_t kWords = kWordsOf<T>;

  int groups() const { return (rows_ + 31) / 32; }
  int group_rows(int g) const { return std::min(32, rows_ - g * 32); }
  std::int64_t group_row(int g) const { return row_ + g * 32; }
  std::int64_t first_key(int t) const { return block_key_ + t * 32; }
  Columns columns(int t) const { return {first_key(t), 0, 32}; }
  static float* block(float* blocks, int g, int t) { return blocks + (g * kTiles + t) * 1024; }
  static std::uint32_t* block(std::uint32_t* blocks, int g, int t) { return blocks + (g * kTiles + t) * kWords; }
  const T* query_of(int g, int i) const { return p_.template row_of<T>(p_.q, batch_, head_, group_row(g) + i); }
  const T* dout_of(int g, int i) const { return p_.template row_of<T>(b_.dout, batch_, head_, group_row(g) + i); }
  /// For each weight of a row, 1 if dropout keeps it, else 0.
  float* keeps(int g, int t, int i) const {
    return scratch_.keeps + g * Scratch::kKeepsOfGroup + i * kKeysOfAmx + t * 32;
  }

  /// Whether some row of the group sees a key of the tile.
  bool meet(int g, int t) const { return stats_.subtiles[g][t].count > 0; }
  template <class F>
  void for_each_block(const F& f) const {
    for (int g = 0; g < groups(); ++g)
      for (int t = 0; t < kTiles; ++t)
        if (meet(g, t)) f(g, t);
  }

  // ---- Packing

  void pack_keys_of(int t) {
    Rows32<T> keys(p_.key_source(batch_, kv_head_), first_key(t), readable_, p_.head_dim);
    Rows32<T> values(p_.value_source(batch_, kv_head_), first_key(t), readable_, p_.head_dim_v);
    BackwardScan<T> scan;
    stats_.bad_keys[t] = pack_fitting(
        keys, values, scan, true, [](int) { return true; },
        [&] {
          pack_columns(keys, scratch_.keys + t * scratch_.depth * kWords, scan.scores);
          pack_columns(values, scratch_.values + t * scratch_.width * kWords, scan.values);
        });
    if (b_.wants_rows())
      pack_pairs<key_of_gradient>(keys, scratch_.key_pairs + t * scratch_.depth * kWords, scan.scores);
  }

  /// Rows whose statistics are not finite are bad too: they make P and dS NaN wherever they see a key.
  void pack_rows_of(int g, const float* lses, const float* deltas) {
    Rows32<T> queries(query_of(g, 0), p_.q.row_stride, group_rows(g), p_.head_dim);
    Rows32<T> douts(dout_of(g, 0), b_.dout.row_stride, group_rows(g), p_.head_dim_v);
    BackwardScan<T> scan;
    const auto has_statistics = [&](int i) { return lses[i] == lses[i] && deltas[i] - deltas[i] == 0; };
    bool all_have = true;
    for (int i = 0; i < group_rows(g); ++i) all_have = all_have && has_statistics(i);
    stats_.bad_rows[g] = pack_fitting(queries, douts, scan, all_have, has_statistics, [&] {
      pack_rows(queries, 1, scratch_.queries, scan.scores);
      pack_rows(douts, 1, scratch_.douts, scan.values);
    });
    if (!b_.wants_keys()) return;
    pack_query_pairs(queries, scratch_.query_pairs + g * scratch_.depth * kWords);
    pack_query_pairs(douts, scratch_.dout_pairs + g * scratch_.width * kWords);
  }

  void draw_dropout(int g) {
    const Dropout dropout(p_);
    for (int i = 0; i < 32; ++i) {
      std::fill_n(keeps(g, 0, i), kKeysOfAmx, 1.0F);
      dropout.apply(keeps(g, 0, i), 0, static_cast<int>(kKeysOfAmx), p_.dropout_head(batch_, head_),
                    p_.dropout_row(group_row(g) + i), block_key_);
    }
  }

  // ---- P and dS of a tile

  /// A tile whose scores, and then dP, have been computed.
  struct Pending {
    float* scores = nullptr;     // [32][32], then P
    float* gradients = nullptr;  // of P, then of the logits
    const float* lses = nullptr;
    const float* deltas = nullptr;
    const float* keeps = nullptr;      // row stride kKeysOfAmx
    float factor = 1;                  // turns scores into logits
    std::uint32_t* weights = nullptr;  // as in AmxBackwardScratch
    std::uint32_t* row_gradients = nullptr;
    std::uint32_t* pair_gradients = nullptr;
    float keep_scale = 1;  // 1 / (1 - dropout_p)
  };
  Pending pending_of(int g, int t, const float* lses, const float* deltas, float* memory) const {
    return {.scores = memory,
            .gradients = memory + 1024,
            .lses = lses,
            .deltas = deltas,
            .keeps = scratch_.keeps ? keeps(g, t, 0) : nullptr,
            .factor = scale_,
            .weights = block(scratch_.weights, g, t),
            .row_gradients = block(scratch_.row_gradients, g, t),
            .pair_gradients = block(scratch_.pair_gradients, g, t),
            .keep_scale = keep_scale_};
  }

  /// Rounds scaled scores, as for ScoreFinisher: a row's bits must not depend on whether another row needs it.
  static SACCADE_INLINE Vec weight_of(Vec score, Vec factor, Vec lse) {
    return exp2(mul(sub(in_register(mul(score, factor)), lse), broadcast(kLog2E)));
  }
  static SACCADE_INLINE Vec dropped(Vec keep, Vec x) { return select(equal(keep, zero()), zero(), x); }

  /// P of rows 2 pair and 2 pair + 1, and its parts. Not inlined, like differentiate(): 16 copies in each of the
  /// loops of products would fill the L1 instruction cache (by size; not measured).
  template <bool kDrops>
  static __attribute__((noinline)) void weigh(const Bf16Split<kParts>& parts, const Pending& given, int pair) {
    const Pending of = given;  // which no store changes
    alignas(64) float kept[64];
    SACCADE_UNROLL
    for (int r = 0; r < 2; ++r) {
      const int row = 2 * pair + r;
      SACCADE_UNROLL
      for (int j = 0; j < 32; j += kWidth) {
        float* const at = of.scores + row * 32 + j;
        const Vec p = weight_of(load(at), broadcast_from(&of.factor), broadcast_from(of.lses + row));
        store(at, p);
        if constexpr (kDrops) store(kept + r * 32 + j, dropped(load(of.keeps + row * kKeysOfAmx + j), p));
      }
    }
    put_pair(parts, kDrops ? kept : of.scores + pair * 64, of.weights + pair * 16);
  }
  static SACCADE_INLINE void put_pair(const Bf16Split<kParts>& parts, const float* rows, std::uint32_t* to) {
    parts.split(rows, rows + 32, to, kPartWords);
    parts.split(rows + 16, rows + 48, to + 256, kPartWords);
  }

  template <bool kDrops>
  static SACCADE_INLINE Vec gradient_of(const Pending& of, int row, int j) {
    Vec x = load(of.gradients + row * 32 + j);
    if constexpr (kDrops)
      x = dropped(load(of.keeps + row * kKeysOfAmx + j), mul(broadcast_from(&of.keep_scale), x));
    return mul(load(of.scores + row * 32 + j), sub(x, broadcast_from(of.deltas + row)));
  }
  /// dS of the same rows, and its parts.
  template <bool kDrops>
  static __attribute__((noinline)) void differentiate(const Bf16Split<kParts>& parts, const Pending& given,
                                                      int pair) {
    const Pending of = given;  // which no store changes
    SACCADE_UNROLL
    for (int r = 0; r < 2; ++r) {
      const int row = 2 * pair + r;
      SACCADE_UNROLL
      for (int j = 0; j < 32; j += kWidth) store(of.gradients + row * 32 + j, gradient_of<kDrops>(of, row, j));
    }
    const float* const rows = of.gradients + pair * 64;
    parts.split_rows(rows, rows + 32, of.row_gradients + pair * 32, of.pair_gradients + pair * 16, kPartWords);
  }

  SACCADE_INLINE const std::uint32_t* keys(int t) const { return scratch_.keys + t * scratch_.depth * kWords; }
  SACCADE_INLINE const std::uint32_t* values(int t) const { return scratch_.values + t * scratch_.width * kWords; }

  // ---- The gradients of the logits

  template <bool kDrops>
  bool find(const float* statistics) {
    Tiles tiles;
    TileStream stream(tiles);
    const Bf16Split<kParts> parts;
    Pending before;
    bool any = false;
    int number = 0;
    for (int g = 0; g < groups(); ++g) {
      const KeyRange seen = tiles_of(g);
      for (Subtiles& subtiles : stats_.subtiles[g]) subtiles.count = 0;
      stats_.keeps_all[g] = false;
      if (seen.begin >= seen.end) continue;
      const float* const lses = statistics + g * 32;
      const float* const deltas = lses + 32 * Scratch::kGroups;
      pack_rows_of(g, lses, deltas);
      if constexpr (kDrops) draw_dropout(g);
      if (keeps_all(g)) {
        any |= find_all<kDrops>(stream, g, seen, lses, deltas);
        continue;
      }
      for (int t = static_cast<int>(seen.begin); t < static_cast<int>(seen.end); ++t) {
        const Subtiles subtiles = plan(g, t);
        if (subtiles.count == 0) continue;
        Pending now = pending_of(g, t, lses, deltas, scratch_.ring + number * 2048);
        multiply_rows<kOfScores>(
            stream, scratch_.queries, keys(t), scratch_.depth,
            now.scores, [&](int i) __attribute__((always_inline)) {
              if (before.scores) weigh<kDrops>(parts, before, i);
            });
        if (subtiles.partial != 0) {
          stream.leave_all();
          finish(g, t, subtiles, now.scores);
          now.factor = 1;
        }
        multiply_rows<kOfGradients>(
            stream, scratch_.douts, values(t), scratch_.width,
            now.gradients, [&](int i) __attribute__((always_inline)) {
              if (before.scores) differentiate<kDrops>(parts, before, i);
            });
        before = now;
        any = true;
        number = (number + 1) % Scratch::kRing;
      }
    }
    stream.leave_all();
    for (int i = 0; before.scores && i < 16; ++i) {
      weigh<kDrops>(parts, before, i);
      differentiate<kDrops>(parts, before, i);
    }
    return any;
  }

  /// The tiles of the block that a group of rows sees by position.
  KeyRange tiles_of(int g) const {
    const KeyRange seen = visibility_.visible(group_row(g), group_rows(g));
    const std::int64_t begin = std::max<std::int64_t>(seen.begin - block_key_, 0);
    const std::int64_t end = std::min(seen.end - block_key_, kKeysOfAmx);
    return begin < end ? KeyRange{begin / 32, (end + 31) / 32} : KeyRange{};
  }

  Subtiles plan(int g, int t) {
    Subtiles& subtiles = stats_.subtiles[g][t];
    subtiles = finisher_.takes_all(group_row(g), group_rows(g), first_key(t))
                   ? Subtiles{.count = 1, .index = {0}, .partial = 0, .modified = 0}
                   : finisher_.plan(group_row(g), group_rows(g), first_key(t), scratch_.mask);
    return subtiles;
  }

  /// Whether something besides the products reads a group's P and dS, or some of them are computed without tiles.
  bool keeps_all(int g) {
    std::uint32_t bad = stats_.bad_rows[g];
    for (const std::uint32_t of_tile : stats_.bad_keys) bad |= of_tile;
    return stats_.keeps_all[g] =
               bad != 0 || p_.score_modifier || scratch_.softcapped || b_.dmask_data || b_.dslopes.data;
  }

  /// Scales the scores and applies the options to them.
  __attribute__((noinline)) void finish(int g, int t, const Subtiles& subtiles, float* scores) {
    for (int i = 0; i < 32; ++i) apply_scale(scores + i * 32, columns(t), scale_);
    for_each_bad_of(g, t, [&](int i, int j) {
      const std::int64_t key = first_key(t) + j;
      if (key < readable_.begin || key >= readable_.end) return;
      LaneSum sum;
      for (std::int64_t d = 0; d < p_.head_dim; d += kWidth) {
        const int n = static_cast<int>(std::min<std::int64_t>(kWidth, p_.head_dim - d));
        sum.add(d, mul(broadcast(scale_), load_first(query_of(g, i) + d, n)), load_first(k_[key] + d, n));
      }
      scores[i * 32 + j] = sum.total();
    });
    alignas(64) Scalar unused[kTileRows * kWidth];
    std::fill_n(unused, kTileRows * kWidth, 0.0F);
    finisher_.finish(group_row(g), group_rows(g), first_key(t), subtiles, scratch_.mask, scores, unused,
                     scratch_.softcapped ? block(scratch_.softcapped, g, t) : nullptr);
    for (int i = 0; i < group_rows(g); ++i) apply_canonical_nan(scores + i * 32, columns(t));
  }

  /// Computes all of P and dS, tile by tile.
  template <bool kDrops>
  __attribute__((noinline)) bool find_all(TileStream& stream, int g, KeyRange seen, const float* lses,
                                          const float* deltas) {
    bool any = false;
    stream.leave_all();
    for (int t = static_cast<int>(seen.begin); t < static_cast<int>(seen.end); ++t) {
      const Subtiles subtiles = plan(g, t);
      if (p_.score_modifier) stream.tiles.configure();  // the caller's functions may use tiles; ours are stored
      if (subtiles.count == 0) continue;
      any = true;
      Pending of = pending_of(g, t, lses, deltas, scratch_.ring);
      of.scores = block(scratch_.probabilities, g, t);
      of.gradients = block(scratch_.gradients, g, t);
      of.factor = 1;
      multiply_rows<kOfScores>(stream, scratch_.queries, keys(t), scratch_.depth, of.scores, NoOverlap{});
      multiply_rows<kOfGradients>(stream, scratch_.douts, values(t), scratch_.width, of.gradients, NoOverlap{});
      stream.leave_all();
      finish(g, t, subtiles, of.scores);
      if (p_.score_modifier) stream.tiles.configure();
      weigh_all<kDrops>(of);
      for_each_bad_of(g, t, [&](int i, int j) { of.gradients[i * 32 + j] = gradient_of_bad(of, g, t, i, j); });
    }
    return any;
  }

  /// Like weigh() and differentiate(), but a weight of 0 gives 0, whatever the row's numbers are.
  template <bool kDrops>
  void weigh_all(const Pending& of) const {
    for (int row = 0; row < 32; ++row) {
      for (int j = 0; j < 32; j += kWidth) {
        float* const at = of.scores + row * 32 + j;
        const Vec score = load(at), lse = canonical_nan(broadcast_from(of.lses + row));
        const Vec p = weight_of(score, broadcast_from(&of.factor), lse);
        store(at, select(equal(score, broadcast(-kInfinity)), zero(), p));
        const Vec gradient = gradient_of<kDrops>(of, row, j);
        store(of.gradients + row * 32 + j, select(equal(load(at), zero()), zero(), gradient));
      }
    }
  }

  // ---- Pairs that tiles cannot hold

  std::uint32_t bad_of(int g, int t, int i) const {
    return (stats_.bad_rows[g] >> i & 1U) != 0 ? ~std::uint32_t{0} : stats_.bad_keys[t];
  }
  template <class F>
  void for_each_bad_of(int g, int t, const F& f) const {
    if ((stats_.bad_rows[g] | stats_.bad_keys[t]) == 0) return;
    for (int i = 0; i < group_rows(g); ++i)
      for (std::uint32_t left = bad_of(g, t, i); left != 0; left &= left - 1) f(i, std::countr_zero(left));
  }
  /// Calls f for the pairs that have a weight.
  template <class F>
  void for_each_bad_pair(const F& f) const {
    for_each_block([&](int g, int t) {
      for_each_bad_of(g, t, [&](int i, int j) {
        if (probability(g, t, i, j) != 0) f(g, t, i, j);
      });
    });
  }
  float probability(int g, int t, int i, int j) const { return block(scratch_.probabilities, g, t)[i * 32 + j]; }
  float logit_gradient(int g, int t, int i, int j) const { return block(scratch_.gradients, g, t)[i * 32 + j]; }
  float keep(int g, int t, int i, int j) const { return scratch_.keeps ? keeps(g, t, i)[j] : 1.0F; }

  float gradient_of_bad(const Pending& of, int g, int t, int i, int j) const {
    const float p = of.scores[i * 32 + j];
    if (p == 0) return 0;
    float x = 0;
    if (keep(g, t, i, j) != 0) x = of.keep_scale * dot(dout_of(g, i), v_[first_key(t) + j], p_.head_dim_v);
    return p * (x - of.deltas[i]);
  }

  /// to[d * stride] += factor * x[d]
  static void add_multiple(float factor, const T* x, std::int64_t dim, float* to, std::int64_t stride) {
    for (std::int64_t d = 0; d < dim; ++d)
      to[d * stride] = __builtin_fmaf(factor, static_cast<float>(x[d]), to[d * stride]);
  }

  /// Writes the parts of a tile's P and dS, with zeros for the pairs that are computed without tiles.
  void put_parts(int g, int t) {
    const Bf16Split<kParts> parts;
    for (int pair = 0; pair < 16; ++pair) {
      alignas(64) float p[64], gradients[64];
      for (int r = 0; r < 2; ++r) {
        const int i = 2 * pair + r;
        const std::uint32_t bad = bad_of(g, t, i);
        for (int j = 0; j < 32; ++j) {
          const bool is_bad = (bad >> j & 1U) != 0;
          p[r * 32 + j] = is_bad || keep(g, t, i, j) == 0 ? 0 : probability(g, t, i, j);
          gradients[r * 32 + j] = is_bad ? 0 : logit_gradient(g, t, i, j);
        }
      }
      put_pair(parts, p, block(scratch_.weights, g, t) + pair * 16);
      parts.split_rows(gradients, gradients + 32, block(scratch_.row_gradients, g, t) + pair * 32,
                       block(scratch_.pair_gradients, g, t) + pair * 16, kPartWords);
    }
  }

  // ---- Products along rows and keys

  static SACCADE_INLINE void add_product(TileStream& stream, bool is_new, const std::uint32_t* a,
                                         const std::uint32_t* b, float* to) {
    if (is_new)
      stream.multiply<kOfGradients, SplitProducts::all, true>(a, b, to, to);
    else
      stream.multiply<kOfGradients, SplitProducts::all, false>(a, b);
  }

  /// Adds the products of all rows that meet the tile to 32 columns of the gradients of its keys.
  SACCADE_INLINE void add_rows_to(TileStream& stream, int t, const std::uint32_t* pairs, std::int64_t tiles_of_row,
                                  std::uint32_t* factors, float* to) {
    bool is_new = true;
    for (int g = 0; g < groups(); ++g) {
      if (!meet(g, t)) continue;
      add_product(stream, is_new, pairs + g * tiles_of_row * kWords, block(factors, g, t), to);
      is_new = false;
    }
  }

  const BackwardParams& b_;
  const AttentionParams& p_;
  std::int64_t batch_, kv_head_, head_, block_key_, row_;
  int rows_;
  float scale_, keep_scale_;
  KeyRange readable_;
  Visibility visibility_;
  ScoreFinisher finisher_;
  LogitGradients of_logits_;
  KvRows<T> k_, v_;
  Scratch scratch_;
  BackwardTileStats& stats_;
};

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
