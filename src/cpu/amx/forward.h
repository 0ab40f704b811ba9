// Attention of one block of query rows on AMX tiles, for q, k and v of one type: bf16, or the two or three bf16
// parts of f16 or f32 (amx/bf16_split.h). 32 rows meet 32 keys at a time:
//
//   for every kStepTiles<T> * 32 keys
//     for every 32 rows of the block
//       for each 32 keys that some row sees
//         S = Q K^T                   32 x 32 scores in four tiles; between the products, the weights of
//                                     the keys two tiles before, in parts (amx/tiles.h)
//         softcap, biases, masks      ScoreFinisher, only where a score needs them
//       O += P V, l += P 1            for bf16, l sums the rounded P by a tile of ones
//   o = O / l
//
// There is no running maximum: a row's weights are relative to a whole exponent above its first visible keys, with
// headroom for scores 30 binades larger. Neither O nor l is rescaled between key blocks; only a row that needs
// more headroom is scaled down, by a power of two.
//
// All numbers in tiles are finite and large enough. Other keys and values are packed as zeros, and rows that see
// such a key, or a score too large for the weights' arithmetic, are fallback rows: the f32 kernels recompute them.
// What a row does not see changes none of its bits.
#pragma once

#include "cpu/amx/forward_state.h"
#include "cpu/attention/output.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

// ---- One block of query rows ---------------------------------------------------------------------------------

template <class T>
class AmxBlock {
 public:
  AmxBlock(const AttentionParams& params, const QueryRows& work, const PackedKeys& packed, void* memory,
           const AmxStates& states = {})
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
        wants_exact_sums_(params.lse.data || params.saves_scores() || states),
        scratch_(params, groups_, memory),
        states_(states) {}

  void run() {
    begin();
    KeyRange range = visibility_.visible(row_, rows_);
    if (p_.saves_hidden()) range = finisher_.all_keys();
    for (std::int64_t tile = range.begin / 32 / kStepTiles<T> * kStepTiles<T>; tile * 32 < range.end;
         tile += kStepTiles<T>) {
      if (!packed_.blocks) pack_step(tile, range);
      for (int g = 0; g < groups_; ++g) {
        if (poll_progress()) tiles_.configure();
        step(g, tile, range);
      }
    }
    states_ ? store_states() : end();
  }

  /// Writes the results of rows that have seen all keys.
  void finish() {
    for (int g = 0; g < groups_; ++g) begin(g);
    end();
    for (int g = 0; g < groups_; ++g) hand_over(g, scratch_.group(g), fallback_rows(g) & left_[g]);
  }

  /// Whether any row sees a key by its position.
  bool sees_keys() const {
    const KeyRange range = visibility_.visible(row_, rows_);
    return range.begin < range.end;
  }

  /// Fallback rows of a group, which other kernels must compute, one bit each.
  std::uint32_t fallback_rows(int g) const {
    return fallback_rows_[g] & static_cast<std::uint32_t>((std::uint64_t{1} << group_rows(g)) - 1);
  }
  /// After a call with states: rows whose keys other kernels must process too, and have processed so far.
  std::uint32_t also_fallback_rows(int g) const { return also_[g]; }
  int groups() const { return groups_; }

 private:
  using Scratch = AmxScratch<T>;
  static constexpr int kParts = kPartsOf<T>;
  static constexpr const auto& kOfScores = SplitPairs<kParts>::kExact;
  static constexpr const auto& kOfValues = SplitPairs<kParts>::kRounded;
  static constexpr std::int64_t kWords = Scratch::kWords;
  /// Whether weights are rounded; then the sums of the rounded weights are products.
  static constexpr bool kRounds = kParts == 1;

  int group_rows(int g) const { return std::min(32, rows_ - g * 32); }
  std::int64_t group_row(int g) const { return row_ + g * 32; }
  float* scores(int place) { return scratch_.scores + place % kLag * 1024; }
  std::uint32_t* weights(int place) { return scratch_.weights + place * kWords; }
  float* outputs(int g, std::int64_t d) { return scratch_.outputs + (g * scratch_.width + d) * 1024; }
  float* sums(int g) { return scratch_.sums + g * 512; }
  float* rounded_sums(int g) { return scratch_.rounded_sums + g * 512; }
  float* offsets(int g) { return scratch_.offsets + g * 32; }

  void begin() {
    for (int g = 0; g < groups_; ++g) {
      begin(g);
      pack_queries_of(g);
      for (int i = 0; i < group_rows(g) && p_.saves_scores(); ++i) {
        if (poll_progress()) tiles_.configure();
        finisher_.clear_saved(group_row(g) + i, 0, p_.seqlen_k);
      }
    }
    for (auto& one : ones_) one = bfloat16(1.0F);
  }

  void begin(int g) {
    fallback_rows_[g] = low_[g] = left_[g] = 0;
    unseen_[g] = true;
    started_[g] = states_ && states_.has(group_row(g));
    if (started_[g]) return load_state(g);
    std::fill_n(offsets(g), 32, kUnseen);
    std::fill_n(sums(g), 512, 0.0F);
    std::fill_n(scratch_.maxima + g * 32, 32, kNoMaximum);
  }

  void pack_queries_of(int g) {
    const QueryTileStats stats = pack_query_tile<T>(p_, {batch_, head_, group_row(g), group_rows(g)},
                                                    factor_of_queries<T>(unit_.query_factor),
                                                    scratch_.queries + g * scratch_.depth * kWords);
    largest_query_[g] = stats.largest;
    fallback_rows_[g] |=
        256 * unit_.exp_factor <= std::numeric_limits<float>::max() ? stats.bad : ~std::uint32_t{0};
  }

  // ---- Keys

  PackedTile<T, const std::byte> tile_at(std::int64_t tile) const {
    const std::int64_t size = PackedTile<T, std::byte>::size(p_);
    if (!packed_.blocks) return {p_, scratch_.packed + tile % kStepTiles<T> * size};
    return {p_, static_cast<const std::byte*>(packed_.blocks) + (tile - packed_.first_block) * size};
  }

  void pack_step(std::int64_t tile, KeyRange range) {
    const KvRows<T> k(p_.key_source(batch_, kv_head_));
    const KvRows<T> v(p_.value_source(batch_, kv_head_));
    for (std::int64_t t = std::max(tile, range.begin / 32); t < tile + kStepTiles<T> && t * 32 < range.end; ++t)
      pack_tile<T>(p_, k, v, t * 32, range,
                   {p_, scratch_.packed + t % kStepTiles<T> * PackedTile<T, std::byte>::size(p_)});
  }

  // ---- The stream of products

  /// A local variable of step(), into which all of its users are inlined, so that it stays in registers.
  struct Stream {
    TileStream tiles;
    WeightsOf<T> weights;
  };

  /// Weights whose computation overlaps products: rows of one place of the step.
  struct Overlap {
    const float* scores = nullptr;
    const float* offsets = nullptr;
    std::uint32_t* weights = nullptr;
    float* sums = nullptr;
  };
  template <int kFirst, int kRows>
  SACCADE_INLINE void weigh(Stream& s, const Overlap& b) {
    SACCADE_UNROLL
    for (int i = kFirst; i < kFirst + kRows; ++i)
      s.weights.of_row(b.scores + i * 32, b.offsets[i], b.weights + i * 16, kPartWords, b.sums + i * 16);
  }

  /// Products of 32 x 32 numbers, 32 deep: see TileStream. kRows rows of weights are spread over the first of
  /// them.
  template <const auto& kPairs, SplitProducts kPart, bool kNew, int kFirst, int kRows>
  SACCADE_INLINE void products(Stream& s, const std::uint32_t* a, const std::uint32_t* b, const float* from,
                               float* to, const Overlap& overlap) {
    constexpr int kSpread = kParts == 1 ? 4 : kParts == 2 ? 8 : 16;  // products
    constexpr int kAtOnce = std::max(1, kRows / kSpread);
    s.tiles.template multiply<kPairs, kPart, kNew>(
        a, b, from, to, [&](auto n) __attribute__((always_inline)) {
          constexpr int kRow = decltype(n)::value * kAtOnce;
          if constexpr (kRow < kRows) weigh<kFirst + kRow, kAtOnce>(s, overlap);
        });
  }
  template <const auto& kPairs, SplitProducts kPart, bool kNew>
  SACCADE_INLINE void products(Stream& s, const std::uint32_t* a, const std::uint32_t* b,
                               const float* from = nullptr, float* to = nullptr) {
    products<kPairs, kPart, kNew, 0, 0>(s, a, b, from, to, {});
  }

  /// The scores of 32 keys, with the 32 rows of weights of `beside` spread over the first products. The small
  /// parts of all dimensions come before the large ones: they lose least while the sum is small.
  template <bool kWeighs>
  SACCADE_INLINE void score_tile(Stream& s, const std::uint32_t* q, const std::uint32_t* k, float* to,
                                 const Overlap& overlap) {
    constexpr SplitProducts kPart = kParts == 1 ? SplitProducts::all : SplitProducts::small;
    constexpr int kHalf = kWeighs ? 16 : 0, kQuarter = kWeighs ? 8 : 0;
    std::int64_t d = 1;
    if (scratch_.depth == 1) {
      products<kOfScores, kPart, true, 0, 2 * kHalf>(s, q, k, nullptr, to, overlap);
    } else if (scratch_.depth < 4) {
      products<kOfScores, kPart, true, 0, kHalf>(s, q, k, nullptr, to, overlap);
      products<kOfScores, kPart, false, kHalf, kHalf>(s, q + kWords, k + kWords, nullptr, nullptr, overlap);
      d = 2;
    } else {
      products<kOfScores, kPart, true, 0, kQuarter>(s, q, k, nullptr, to, overlap);
      products<kOfScores, kPart, false, kQuarter, kQuarter>(s, q + kWords, k + kWords, nullptr, nullptr, overlap);
      products<kOfScores, kPart, false, 2 * kQuarter, kQuarter>(s, q + 2 * kWords, k + 2 * kWords, nullptr,
                                                                nullptr, overlap);
      products<kOfScores, kPart, false, 3 * kQuarter, kQuarter>(s, q + 3 * kWords, k + 3 * kWords, nullptr,
                                                                nullptr, overlap);
      d = 4;
    }
    for (; d < scratch_.depth; ++d) products<kOfScores, kPart, false>(s, q + d * kWords, k + d * kWords);
    if constexpr (kParts > 1)
      for (d = 0; d < scratch_.depth; ++d)
        products<kOfScores, SplitProducts::large, false>(s, q + d * kWords, k + d * kWords);
  }

  // ---- One group of rows and the keys of one step

  struct Step {
    int group = 0, count = 0;                      // of computed tiles of keys
    std::array<std::int64_t, kStepTiles<T>> tile;  // of all keys
  };

  void step(int g, std::int64_t first_tile, KeyRange range) {
    Stream stream{.tiles = TileStream(tiles_), .weights = WeightsOf<T>(WeightsOf<T>::kUnit * unit_.exp_factor)};
    Step s{.group = g, .count = 0, .tile = {}};
    const std::uint32_t* const q = scratch_.queries + g * scratch_.depth * kWords;
    for (std::int64_t t = std::max(first_tile, range.begin / 32);
         t < first_tile + kStepTiles<T> && t * 32 < range.end; ++t)
      add_scores(stream, s, t, q);
    if (s.count == 0) return stream.tiles.leave_all();
    add_values(stream, s);
    started_[g] = true;
  }

  /// The scores of a tile of keys, unless no row sees any of it, and the weights of the tile computed kLag
  /// earlier. Both use the same memory: the old scores are read before the registers with the new ones are stored.
  SACCADE_INLINE void add_scores(Stream& stream, Step& s, std::int64_t tile, const std::uint32_t* q) {
    const std::int64_t row = group_row(s.group), first_key = tile * 32;
    const int rows = group_rows(s.group);
    const PackedTile<T, const std::byte> keys = tile_at(tile);
    Subtiles subtiles;
    const bool plain = finisher_.takes_all(row, rows, first_key) && keys.stats->bad == 0 &&
                       fits(largest_query_[s.group] * keys.stats->largest * static_cast<float>(p_.head_dim));
    if (!plain) {
      subtiles = finisher_.plan(row, rows, first_key, scratch_.mask);
      if (p_.score_modifier) tiles_.configure();  // the caller's functions may use tiles; ours are stored
      if (subtiles.count == 0) return;
    }
    const int place = s.count++;
    s.tile[static_cast<std::size_t>(place)] = tile;
    if (place < kLag) {
      score_tile<false>(stream, q, keys.keys, scores(place), {});
    } else {
      score_tile<true>(stream, q, keys.keys, scores(place), overlap(s, place - kLag));
      after_weights(stream, s, place - kLag, nullptr);
    }
    if (!plain) {
      stream.tiles.leave_all();
      finish(s, first_key, subtiles, keys.stats->bad, scores(place));
      if (p_.score_modifier) tiles_.configure();
    }
    if (unseen_[s.group]) {
      stream.tiles.leave_all();
      find_offsets(s, scores(place));
    }
  }

  /// The largest score that needs no fallback: 2^21 binades.
  float limit() const { return 0x1p29F / (256 * unit_.exp_factor); }
  /// Whether scores up to `largest` in magnitude are safe in the weights' arithmetic.
  bool fits(float largest) const { return largest < 1e30F && largest * unit_.exp_factor < 1e6F; }

  Overlap overlap(const Step& s, int place) {
    return {scores(place), offsets(s.group), weights(place), scratch_.tile_sums};
  }
  /// The offset of a row whose weights must be able to hold a score of `top`.
  float offset_for(float top) const {
    return WeightsOf<T>::kFirst - WeightsOf<T>::kUnit * std::ceil(top * unit_.exp_factor);
  }

  /// Softcap, biases and masks; then finds the rows that other kernels have to compute.
  __attribute__((noinline)) void finish(const Step& s, std::int64_t first_key, const Subtiles& subtiles,
                                        std::uint32_t bad, float* block) {
    alignas(64) Scalar row_max[kTileRows * kWidth];
    std::fill_n(row_max, kTileRows * kWidth, -kInfinity);
    finisher_.finish(group_row(s.group), group_rows(s.group), first_key, subtiles, scratch_.mask, block, row_max);
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
      fallback_rows_[s.group] |= std::uint32_t{1} << i;
      std::fill_n(block + i * 32, 32, -kInfinity);  // none of it is used, and nothing may overflow
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
        offset = offset_for(top);
      else
        unseen_[s.group] = true;
    }
  }

  /// Called when the weights of a place are complete. `o`: the accumulators that registers 0 to 3 hold, if any.
  SACCADE_INLINE void after_weights(Stream& stream, const Step& s, int place, float* o) {
    if (stream.weights.overflowed()) [[unlikely]] {
      if (o) stream.tiles.leave_all();
      make_room(s, place, o != nullptr);
      stream.weights.reset();
      if (o) stream.tiles.enter_all(o);
    }
    if constexpr (!kRounds)
      add_tile_sums(s.group);
    else if (wants_exact_sums_)
      add_exact_sums(s.group, scores(place));
  }

  /// Rare: rows with a score more than 31 binades above their first keys get a new offset, and all that they have
  /// accumulated is scaled down, including, if `has_first_columns`, the first columns of this step's output.
  __attribute__((noinline)) void make_room(const Step& s, int place, bool has_first_columns) {
    WeightsOf<T> again(WeightsOf<T>::kUnit * unit_.exp_factor);
    for (int i = 0; i < 32; ++i) {
      const float* const row = scores(place) + i * 32;
      float top = -kInfinity;
      for (int j = 0; j < 32; ++j) top = std::max(top, row[j]);
      std::uint32_t* const now = weights(place) + i * 16;
      float* const now_sums = scratch_.tile_sums + i * 16;
      again.reset();
      again.of_row(row, offsets(s.group)[i], now, kPartWords, now_sums);
      if (!again.overflowed()) continue;
      const float offset = offset_for(top);
      const float factor = static_cast<float>(std::exp2((offset - offsets(s.group)[i]) / WeightsOf<T>::kUnit));
      offsets(s.group)[i] = offset;
      if (!kRounds || started_[s.group])
        scale((kRounds ? rounded_sums(s.group) : sums(s.group)) + i * 16, 16, factor);
      for (std::int64_t d = 0; d < scratch_.width; ++d)
        if (started_[s.group] || (has_first_columns && d == 0)) scale(outputs(s.group, d) + i * 32, 32, factor);
      for (int earlier = 0; earlier < place; ++earlier)
        for (int t = 0; t < kParts; ++t) scale_words(weights(earlier) + t * kPartWords + i * 16, factor);
      again.of_row(row, offset, now, kPartWords, now_sums);
    }
  }
  static void scale(float* numbers, int n, float factor) {
    for (int j = 0; j < n; ++j) numbers[j] *= factor;
  }
  static void scale_words(std::uint32_t* words, float factor) {
    const auto scaled = [factor](std::uint32_t bits) -> std::uint32_t {
      return bfloat16(std::bit_cast<float>(bits << 16) * factor).bits;
    };
    for (int w = 0; w < 16; ++w) words[w] = scaled(words[w] & 0xffffU) | scaled(words[w] >> 16) << 16;
  }

  SACCADE_INLINE void add_tile_sums(int g) {
    for (int i = 0; i < 512; i += kWidth) store(sums(g) + i, add(load(sums(g) + i), load(scratch_.tile_sums + i)));
  }

  /// Adds the unrounded weights, for lse and reported weights, where the rounding to bf16 would show. With a
  /// running maximum, because the headroom would cost bits.
  __attribute__((noinline)) void add_exact_sums(int g, const float* block) {
    const Vec factor = broadcast(unit_.exp_factor);
    for (int i = 0; i < group_rows(g); ++i) {
      const float* const row = block + i * 32;
      float* const of_row = sums(g) + i * 16;
      float& maximum = scratch_.maxima[g * 32 + i];
      Vec largest = broadcast(maximum);
      for (int j = 0; j < 32; j += kWidth) largest = max(largest, load(row + j));
      const Vec top = broadcast(reduce_max(largest));
      const Vec shrink = exp2(mul(sub(broadcast(maximum), top), factor));
      for (int j = 0; j < 16; j += kWidth) {
        const Vec low = exp2(mul(sub(load(row + j), top), factor));
        const Vec high = exp2(mul(sub(load(row + 16 + j), top), factor));
        store(of_row + j, fma(shrink, load(of_row + j), add(low, high)));
      }
      store_first(&maximum, 1, top);
    }
  }

  /// Computes the weights of the last places, O += P V and the sums of weights.
  SACCADE_INLINE void add_values(Stream& stream, const Step& s) {
    const int n = s.count;
    std::int64_t d = 0;
    if (n >= (kRounds ? 5 : 4) && !drops_) {  // the last kLag places' weights beside the first columns of values
      float* const o = outputs(s.group, 0);
      const Overlap last[kLag] = {overlap(s, n - 2), overlap(s, n - 1)};
      int t = 0;
      add_columns<true, 0, kOverlapRows>(stream, s, t++, started_[s.group] ? o : nullptr, o, last[0]);
      if constexpr (kRounds) add_columns<false, 16, 16>(stream, s, t++, nullptr, nullptr, last[0]);
      after_weights(stream, s, n - 2, o);
      add_columns<false, 0, kOverlapRows>(stream, s, t++, nullptr, nullptr, last[1]);
      if constexpr (kRounds) add_columns<false, 16, 16>(stream, s, t++, nullptr, nullptr, last[1]);
      after_weights(stream, s, n - 1, o);
      for (; t < n; ++t) products<kOfValues, SplitProducts::all, false>(stream, weights(t), values(s, t, 0));
      d = 1;
    } else {
      stream.tiles.leave_all();
      for (int t = std::max(0, n - kLag); t < n; ++t) {
        weigh<0, 32>(stream, overlap(s, t));
        after_weights(stream, s, t, nullptr);
      }
      if (drops_) {
        if (kRounds) add_rounded_sums(s);
        drop(s);
      }
    }
    for (; d < scratch_.width; ++d) {
      float* const o = outputs(s.group, d);
      products<kOfValues, SplitProducts::all, true>(stream, weights(0), values(s, 0, d),
                                                    started_[s.group] ? o : nullptr, o);
      for (int t = 1; t < n; ++t)
        products<kOfValues, SplitProducts::all, false>(stream, weights(t), values(s, t, d));
    }
    stream.tiles.leave_all();
    if (kRounds && !drops_) add_rounded_sums(s);
  }

  /// Rows of weights that overlap the products of 32 keys with 32 columns of values: split numbers have more
  /// products.
  static constexpr int kOverlapRows = kRounds ? 16 : 32;
  template <bool kNew, int kFirst, int kRows>
  SACCADE_INLINE void add_columns(Stream& stream, const Step& s, int place, const float* from, float* to,
                                  const Overlap& b) {
    products<kOfValues, SplitProducts::all, kNew, kFirst, kRows>(stream, weights(place), values(s, place, 0), from,
                                                                 to, b);
  }

  const std::uint32_t* values(const Step& s, int place, std::int64_t d) const {
    return tile_at(s.tile[static_cast<std::size_t>(place)]).values + d * kWords;
  }

  /// l += P 1: 16 equal columns.
  SACCADE_INLINE void add_rounded_sums(const Step& s) {
    constexpr std::int64_t kStride = 64;
    float* const l = rounded_sums(s.group);
    if (started_[s.group]) {
      tiles_.load<0>(l, kStride), tiles_.load<1>(l + 256, kStride);
    } else {
      tiles_.clear<0>(), tiles_.clear<1>();
    }
    tiles_.load<7>(ones_, kStride);
    for (int t = 0; t < s.count; ++t) {
      tiles_.load<4>(weights(t), kStride);
      tiles_.multiply<0, 4, 7>();
      tiles_.load<5>(weights(t) + 256, kStride);
      tiles_.multiply<1, 5, 7>();
    }
    tiles_.store<0>(l, kStride), tiles_.store<1>(l + 256, kStride);
  }

  __attribute__((noinline)) void drop(const Step& s) {
    alignas(64) Scalar kept[128];  // what dropout draws at a time
    for (int i = 0; i < group_rows(s.group); ++i) {
      std::int64_t drawn = -1;
      for (int t = 0; t < s.count; ++t) {
        const std::int64_t first_key = s.tile[static_cast<std::size_t>(t)] * 32, begin = first_key / 128 * 128;
        if (begin != drawn) {
          std::fill_n(kept, 128, Scalar{1});
          dropout_.apply(kept, 0, 128, p_.dropout_head(batch_, head_), p_.dropout_row(group_row(s.group) + i),
                         begin);
          drawn = begin;
        }
        drop_row(kept + first_key % 128, weights(t) + i * 16);
      }
    }
  }
  static void drop_row(const Scalar* kept, std::uint32_t* words) {
    for (int w = 0; w < 16; ++w) {
      const bool low = kept[key_of_weight<T>(2 * w)] != 0, high = kept[key_of_weight<T>(2 * w + 1)] != 0;
      const std::uint32_t keep = (low ? 0xffffU : 0) | (high ? 0xffff0000U : 0);
      for (int part = 0; part < kParts; ++part) words[part * kPartWords + w] &= keep;
    }
  }

  // ---- Between calls

  void load_state(int g) {
    const GroupStats stats = states_.stats(group_row(g));
    fallback_rows_[g] = stats.fallback_rows, low_[g] = stats.low, left_[g] = stats.left, unseen_[g] = stats.unseen;
    states_.load(group_row(g), scratch_.group(g));
  }

  /// A row that may need other kernels in the end is computed by both from the first key on, because earlier keys
  /// will be gone. A row that turns out to need them later continues from rounded sums of the tiles.
  void store_states() {
    for (int g = 0; g < groups_; ++g) {
      also_[g] = 0;
      if (!started_[g]) continue;
      const GroupSums<T> of_rows(scratch_.group(g), unit_, false);
      for (int i = 0; i < group_rows(g); ++i) {
        const std::uint32_t bit = std::uint32_t{1} << i;
        if (!is_finite(g, i)) fallback_rows_[g] |= bit;
        if (of_rows.may_need_other_kernels(i)) also_[g] |= bit;
      }
      hand_over(g, states_.group(group_row(g)), fallback_rows(g) & left_[g]);
      left_[g] &= ~fallback_rows(g);
      also_[g] = (also_[g] | fallback_rows(g)) & ~left_[g];
      left_[g] |= ~also_[g];
      states_.store(group_row(g), {fallback_rows_[g], low_[g], left_[g], unseen_[g]}, scratch_.group(g));
    }
  }

  void hand_over(int g, const AmxGroup& group, std::uint32_t rows) {
    if (rows == 0) return;
    const GroupSums<T> of_rows(group, unit_, true);
    for (; rows != 0; rows &= rows - 1) {  // each bit
      const int i = std::countr_zero(rows);
      fallback_kernels().put(p_, group_row(g) + i, of_rows.row(i, group), states_.fallback_rows());
    }
  }

  bool is_finite(int g, int i) {
    Vec sum = zero();  // stays 0 unless something is NaN or infinite
    for (std::int64_t d = 0; d < scratch_.width; ++d)
      for (int j = 0; j < 32; j += kWidth) sum = fma(load(outputs(g, d) + i * 32 + j), zero(), sum);
    return !any(is_nan(sum));
  }

  // ---- Results

  void end() {
    for (int g = 0; g < groups_; ++g) {
      if (!started_[g]) {
        std::fill_n(outputs(g, 0), scratch_.width * 1024, 0.0F);
        std::fill_n(rounded_sums(g), 512, 0.0F);
      }
      const bool is_exact = p_.lse.data || p_.saves_scores();
      const GroupSums<T> sums(scratch_.group(g), unit_, is_exact);
      for (int i = 0; i < 32; ++i)
        if (sums.needs_fallback(i, (low_[g] >> i & 1U) != 0)) fallback_rows_[g] |= std::uint32_t{1} << i;
      fallback_rows_[g] |= end_rows(p_, finisher_, dropout_,
                                    {.batch = batch_,
                                     .head = head_,
                                     .row = group_row(g),
                                     .count = group_rows(g),
                                     .m = sums.m,
                                     .l = is_exact ? sums.l : sums.l_of_o,
                                     .m_of_o = sums.m_of_o,
                                     .l_of_o = sums.l_of_o,
                                     .natural = unit_.natural,
                                     .o = outputs(g, 0),
                                     .o_stride = 1024});
    }
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
  Scratch scratch_;
  AmxStates states_;
  Tiles tiles_;
  alignas(64) bfloat16 ones_[512];
  bool started_[kGroups], unseen_[kGroups];
  float largest_query_[kGroups];
  std::uint32_t fallback_rows_[kGroups];  // rows that other kernels compute
  std::uint32_t low_[kGroups];            // rows with a score below -limit() / 2, which gives no offset
  std::uint32_t left_[kGroups];           // see GroupStats
  std::uint32_t also_[kGroups];
};

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
