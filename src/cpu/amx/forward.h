// Attention of one block of query rows on AMX tiles, for q, k and v of one type: bf16, or the two or three bf16
// parts of f16 or f32 (amx/bf16_split.h). With TDPFP16PS, q and k of f16 are one part. Its weights and v stay two:
// f16 has too little range for weights. 32 rows meet 32 keys at a time:
//
//   for every step of kStepTiles<T> * 32 keys
//     for every 32 rows of the block
//       for each 32 keys that some row sees
//         S = Q K^T                   32 x 32 scores in four tiles; between the products, the weights of
//                                     the keys two tiles before, in parts (amx/tiles.h)
//         softcap, biases, masks      ScoreFinisher, only where a score needs them
//       O += P V, l += P 1            for bf16, l sums the rounded P by a tile of ones
//   o = O / l
//
// Quantized k and v beside q of bf16 are packed as bf16 too, with scales that are applied to scores and weights
// (ScalesOfTile).
//
// There is no running maximum: a row's weights are relative to a whole exponent above its first visible keys, with
// headroom for scores 30 binades larger. Neither O nor l is rescaled between key blocks; only a row that needs
// more headroom is scaled down, by a power of two.
//
// All numbers in tiles are finite and large enough. Other keys and values are packed as zeros, and rows that see
// such a key, or a score too large for the weights' arithmetic, are fallback rows: the f32 kernels recompute them.
// What a row does not see changes none of its bits.
#pragma once

#include "cpu/amx/forward_rows.h"
#include "cpu/amx/score_changes.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

// ---- One block of query rows ---------------------------------------------------------------------------------

/// kScoreParts: the parts of q and k.
template <class T, int kScoreParts>
class AmxBlock : public AmxRows<T, kScoreParts> {
 public:
  AmxBlock(const AttentionParams& params, const QueryRows& work, const PackedKeys& packed, void* memory,
           const AmxStates& states = {})
      : AmxRows<T, kScoreParts>(params, work, memory, states),
        packed_(packed),
        has_scales_(Tile<std::byte>::has_scales(params)),
        changer_(params, visibility_, work.batch, work.head) {}

  void run() {
    this->begin();
    for (int g = 0; g < groups_; ++g)
      is_short_[g] = !states_ && this->short_rows(g) == this->all_of(~std::uint32_t{0}, g);
    KeyRange range = visibility_.visible(row_, rows_);
    if (p_.saves_hidden()) range = finisher_.all_keys();
    for (TileRange tiles = step_of(range.begin / 32, range); tiles.begin < tiles.end;
         tiles = step_of(tiles.end, range)) {
      if (!packed_.blocks) pack_step(tiles, range);
      for (int g = 0; g < groups_; ++g) {
        if (poll_progress()) tiles_.configure();
        if (is_short_[g]) continue;
        if (kRounds && wants_exact_sums_)
          step<true>(g, tiles);
        else
          step<!kRounds>(g, tiles);
      }
    }
    states_ ? this->store_states() : this->end();
  }

 private:
  using Rows = AmxRows<T, kScoreParts>;
  using Rows::group_rows, Rows::group_row, Rows::outputs, Rows::sums, Rows::rounded_sums, Rows::offsets,
      Rows::limit, Rows::offset_for, Rows::distance_to, Rows::find_fallback_rows, Rows::scale_numbers,
      Rows::scale_words;
  using Rows::kParts, Rows::kRounds, Rows::kWords, Rows::kScoreWords;
  using Rows::largest_query_, Rows::fallback_rows_;
  using Rows::p_, Rows::batch_, Rows::head_, Rows::kv_head_, Rows::row_, Rows::rows_, Rows::groups_;
  using Rows::scratch_, Rows::states_, Rows::tiles_, Rows::started_, Rows::unseen_, Rows::low_;
  using Rows::visibility_, Rows::finisher_, Rows::dropout_, Rows::unit_, Rows::wants_exact_sums_;
  static constexpr const auto& kOfScores = PairsOf<T, kScoreParts>::kExact;
  static constexpr const auto& kOfValues = PairsOf<T>::kRounded;
  static constexpr bool kScales = kParts != 3;  // queries of f32 are scaled

  bool drops() const { return p_.dropout_p > 0.0; }
  float* scores(int place) { return scratch_.scores + place % kLag * 1024; }
  std::uint32_t* weights(int place) { return scratch_.weights + place * kWords; }

  // ---- Keys

  struct TileRange {
    std::int64_t begin, end;
  };
  /// What is left of a step from a tile on. Where a step ends decides which weights make_room() scales as words
  /// and which as sums, and words underflow earlier. So steps begin anew at every multiple of kOriginAlignment:
  /// parts of a problem have the bits of the whole.
  static TileRange step_of(std::int64_t tile, KeyRange range) {
    constexpr std::int64_t kTiles = kOriginAlignment / 32;
    const std::int64_t origin = tile / kTiles * kTiles;
    const std::int64_t end = origin + ((tile - origin) / kStepTiles<T> + 1) * kStepTiles<T>;
    return {tile, std::min({end, origin + kTiles, (range.end + 31) / 32})};
  }

  template <class Byte>
  using Tile = PackedTile<T, Byte, kScoreParts>;

  Tile<const std::byte> tile_at(std::int64_t tile) const {
    const std::int64_t size = Tile<std::byte>::size(p_);
    if (!packed_.blocks) return {p_, scratch_.packed + tile % kStepTiles<T> * size};
    return {p_, static_cast<const std::byte*>(packed_.blocks) + (tile - packed_.first_block) * size};
  }

  void pack_step(const TileRange& tiles, KeyRange range) {
    const KvSource k = p_.key_source(batch_, kv_head_), v = p_.value_source(batch_, kv_head_);
    for (std::int64_t t = tiles.begin; t < tiles.end; ++t)
      pack_tile<T, kScoreParts>(p_, k, v, t * 32, range,
                                {p_, scratch_.packed + t % kStepTiles<T> * Tile<std::byte>::size(p_)});
  }

  // ---- The stream of products

  /// A local variable of step(), into which all of its users are inlined, so that it stays in registers. kSums:
  /// the unrounded weights are summed too. kHasScales: keys and values have ScalesOfTile.
  template <bool kSums, bool kHasScales, ScoreChange kChange>
  struct Stream {
    using Keys = std::conditional_t<kHasScales, KeyScales, NoKeyScales>;
    static constexpr bool kHasSums = kSums, kScaled = kHasScales;
    static constexpr ScoreChange kChanges = kChange;
    static_assert(!kHasScales || kChange == ScoreChange::none);
    /// Whether scores stay as they are and the conversion of weights leaves out hidden ones: a boolean mask takes
    /// 0.95 of the time that it takes to hide scores (Granite Rapids).
    static constexpr bool kHidesWeights = kRounds && !kSums && ScoreChanger::kHides<kChange>;
    TileStream tiles;
    WeightsOf<T, kSums, Keys> weights;
    Mask fit;  // no changed score of these lanes is too large
    Keys keys;
  };

  /// Weights whose computation overlaps products: rows of one place of the step.
  struct Overlap {
    float* scores = nullptr;
    const float* offsets = nullptr;
    std::uint32_t* weights = nullptr;
    float* sums = nullptr;
    bool is_changed = false;  // here: else the scores are final
    ChangedTile changed;
  };
  template <int kFirst, int kRows, class S>
  SACCADE_INLINE void weigh(S& s, const Overlap& b) {
    if constexpr (S::kHidesWeights) {
      if (b.is_changed) return weigh_visible<kFirst, kRows>(s, b);
    } else if constexpr (S::kChanges != ScoreChange::none) {
      if (b.is_changed) {
        SACCADE_UNROLL
        for (int i = kFirst; i < kFirst + kRows; ++i)
          changer_.template apply<S::kChanges, kScales>(b.changed, i, b.scores + i * 32, broadcast(limit()),
                                                        s.fit);
      }
    }
    SACCADE_UNROLL
    for (int i = kFirst; i < kFirst + kRows; ++i)
      s.weights.of_row(b.scores + i * 32, b.offsets[i], s.keys, b.weights + i * 16, b.sums + i * 16);
  }

  template <int kFirst, int kRows, class S>
  SACCADE_INLINE void weigh_visible(S& s, const Overlap& b) {
    constexpr bool kIsScaled = kScales && S::kChanges == ScoreChange::boolean_mask;
    SACCADE_UNROLL
    for (int i = kFirst; i < kFirst + kRows; ++i)
      s.weights.template of_visible<kIsScaled>(b.scores + i * 32, changer_.scale(),
                                               changer_.template visible_of_row<S::kChanges>(b.changed, i),
                                               b.offsets[i], b.weights + i * 16);
  }

  /// Products of 32 x 32 numbers, 32 deep: see TileStream. kRows rows of weights are spread over the first of
  /// them.
  template <const auto& kPairs, SplitProducts kPart, bool kNew, int kFirst, int kRows, class S>
  SACCADE_INLINE void products(S& s, const std::uint32_t* a, const std::uint32_t* b, const float* from, float* to,
                               const Overlap& overlap) {
    constexpr int kSpread = kPairs.size() == 1 ? 4 : kPairs.size() < 6 ? 8 : 16;  // products
    constexpr int kAtOnce = std::max(1, kRows / kSpread);
    s.tiles.template multiply<kPairs, kPart, kNew>(
        a, b, from, to, [&](auto n) __attribute__((always_inline)) {
          constexpr int kRow = decltype(n)::value * kAtOnce;
          if constexpr (kRow < kRows) weigh<kFirst + kRow, kAtOnce>(s, overlap);
        });
  }
  template <const auto& kPairs, SplitProducts kPart, bool kNew, class S>
  SACCADE_INLINE void products(S& s, const std::uint32_t* a, const std::uint32_t* b, const float* from = nullptr,
                               float* to = nullptr) {
    products<kPairs, kPart, kNew, 0, 0>(s, a, b, from, to, {});
  }

  /// The scores of 32 keys, with the 32 rows of weights of `beside` spread over the first products. The small
  /// parts of all dimensions come before the large ones: they lose least while the sum is small.
  template <bool kWeighs, class S>
  SACCADE_INLINE void score_tile(S& s, const std::uint32_t* q, const std::uint32_t* k, float* to,
                                 const Overlap& overlap) {
    constexpr SplitProducts kPart = kScoreParts == 1 ? SplitProducts::all : SplitProducts::small;
    constexpr int kHalf = kWeighs ? 16 : 0, kQuarter = kWeighs ? 8 : 0;
    std::int64_t d = 1;
    if (scratch_.depth == 1) {
      products<kOfScores, kPart, true, 0, 2 * kHalf>(s, q, k, nullptr, to, overlap);
    } else if (scratch_.depth < 4) {
      products<kOfScores, kPart, true, 0, kHalf>(s, q, k, nullptr, to, overlap);
      products<kOfScores, kPart, false, kHalf, kHalf>(s, q + kScoreWords, k + kScoreWords, nullptr, nullptr,
                                                      overlap);
      d = 2;
    } else {
      products<kOfScores, kPart, true, 0, kQuarter>(s, q, k, nullptr, to, overlap);
      products<kOfScores, kPart, false, kQuarter, kQuarter>(s, q + kScoreWords, k + kScoreWords, nullptr, nullptr,
                                                            overlap);
      products<kOfScores, kPart, false, 2 * kQuarter, kQuarter>(s, q + 2 * kScoreWords, k + 2 * kScoreWords,
                                                                nullptr, nullptr, overlap);
      products<kOfScores, kPart, false, 3 * kQuarter, kQuarter>(s, q + 3 * kScoreWords, k + 3 * kScoreWords,
                                                                nullptr, nullptr, overlap);
      d = 4;
    }
    for (; d < scratch_.depth; ++d) products<kOfScores, kPart, false>(s, q + d * kScoreWords, k + d * kScoreWords);
    if constexpr (kScoreParts > 1)
      for (d = 0; d < scratch_.depth; ++d)
        products<kOfScores, SplitProducts::large, false>(s, q + d * kScoreWords, k + d * kScoreWords);
  }

  // ---- One group of rows and the keys of one step

  struct Step {
    int group = 0, count = 0;                      // of computed tiles of keys
    std::array<std::int64_t, kStepTiles<T>> tile;  // of all keys
    std::array<bool, kStepTiles<T>> is_changed;    // together with the computation of weights
    std::array<bool, kStepTiles<T>> is_scaled;     // scores in memory, by the scales of keys
  };

  /// Keys whose scores are plain products for all rows of a group. Found once a step: 1.5 % (Granite Rapids).
  struct PlainKeys {
    KeyRange seen;
    float largest = 0;  // magnitudes below it keep scores safe in the weights' arithmetic
  };
  float largest_plain(int g) const {
    const float score = std::min(1e30F, 1e6F / (unit_.exp_factor * std::max(changer_.scale(), 1.0F)));
    return score / std::max(largest_query_[g] * static_cast<float>(p_.head_dim), 1e-30F);
  }

  template <bool kSums>
  void step(int g, const TileRange& tiles) {
    // ScoreFinisher changes scores then: beside the products, each change would take 0.2 MB of code.
    if constexpr (kRounds)
      if (has_scales_) return step<kSums, true, ScoreChange::none>(g, tiles);
    switch (changer_.change()) {
      case ScoreChange::none:
        return step<kSums, false, ScoreChange::none>(g, tiles);
      case ScoreChange::position:
        return step<kSums, false, ScoreChange::position>(g, tiles);
      case ScoreChange::boolean_mask:
        return step<kSums, false, ScoreChange::boolean_mask>(g, tiles);
      case ScoreChange::float_mask:
        return step<kSums, false, ScoreChange::float_mask>(g, tiles);
      case ScoreChange::alibi:
        return step<kSums, false, ScoreChange::alibi>(g, tiles);
      case ScoreChange::softcap:
        return step<kSums, false, ScoreChange::softcap>(g, tiles);
    }
  }

  template <bool kSums, bool kScaled, ScoreChange kChange>
  void step(int g, const TileRange& tiles) {
    using S = Stream<kSums, kScaled, kChange>;
    S stream{.tiles = TileStream(tiles_),
             .weights = decltype(S::weights)(WeightsOf<T>::kUnit * unit_.exp_factor),
             .fit = equal(zero(), zero()),
             .keys = {}};
    Step s{.group = g, .count = 0, .tile = {}, .is_changed = {}, .is_scaled = {}};
    const std::uint32_t* const q = scratch_.queries + g * scratch_.depth * kScoreWords;
    const KeyRange seen = kChange == ScoreChange::none ? finisher_.taken_by_all(group_row(g), group_rows(g))
                                                       : visibility_.visible_to_all(group_row(g), group_rows(g));
    const PlainKeys plain{.seen = seen, .largest = largest_plain(g)};
    for (std::int64_t t = tiles.begin; t < tiles.end; ++t) add_scores(stream, s, t, q, plain);
    if (s.count == 0) return stream.tiles.leave_all();
    add_values(stream, s);
    started_[g] = true;
  }

  /// The scores of a tile of keys, unless no row sees any of it, and the weights of the tile computed kLag
  /// earlier. Both use the same memory: the old scores are read before the registers with the new ones are stored.
  template <class S>
  SACCADE_INLINE void add_scores(S& stream, Step& s, std::int64_t tile, const std::uint32_t* q,
                                 const PlainKeys& plain_keys) {
    const std::int64_t row = group_row(s.group), first_key = tile * 32;
    const int rows = group_rows(s.group);
    const Tile<const std::byte> keys = tile_at(tile);
    Subtiles subtiles;
    const bool is_inside = plain_keys.seen.begin <= first_key && first_key + 32 <= plain_keys.seen.end;
    const bool fits = keys.stats->bad == 0 && keys.stats->largest < plain_keys.largest;
    bool plain = is_inside && fits, is_edge = false;
    ChangedTile changed;
    if constexpr (S::kChanges == ScoreChange::position) {
      is_edge = !is_inside && fits && rows == 32;
      const KeyRange some = visibility_.visible(row, rows);
      if (is_edge && (first_key + 32 <= some.begin || first_key >= some.end)) return;
      plain = plain || is_edge;
    } else if constexpr (S::kChanges != ScoreChange::none) {
      plain = plain && rows == 32 && !unseen_[s.group];
      if (plain) changed = changer_.tile(row, first_key);
      if (plain && changed.mask && !changer_.lets_through(changed, rows)) return;
    }
    if (!plain) {
      subtiles = finisher_.plan(row, rows, first_key, scratch_.mask);
      if (p_.score_modifier) tiles_.configure();  // the caller's functions may use tiles; ours are stored
      if (subtiles.count == 0) return;
    }
    const int place = s.count++;
    s.tile[static_cast<std::size_t>(place)] = tile;
    s.is_changed[static_cast<std::size_t>(place)] = S::kChanges == ScoreChange::position
                                                        ? is_edge && !unseen_[s.group]
                                                        : plain && S::kChanges != ScoreChange::none;
    s.is_scaled[static_cast<std::size_t>(place)] = !S::kScaled;
    if (place < kLag) {
      score_tile<false>(stream, q, keys.keys, scores(place), {});
    } else {
      score_tile<true>(stream, q, keys.keys, scores(place), begin_weights(stream, s, place - kLag));
      after_weights(stream, s, place - kLag, nullptr);
    }
    if (S::kScaled && (!plain || unseen_[s.group])) {
      stream.tiles.leave_all();
      scale_scores(s, place);
    }
    if (!plain) {
      stream.tiles.leave_all();
      finish_scores(s, first_key, subtiles, keys.stats->bad, scores(place));
      if (p_.score_modifier) tiles_.configure();
    }
    if (unseen_[s.group]) {
      stream.tiles.leave_all();
      if (is_edge)
        changer_.template hide<ScoreChange::position, false>(changer_.tile(row, first_key), scores(place));
      find_offsets(s, first_key, scores(place));
    }
  }

  Overlap overlap(const Step& s, int place) {
    const auto p = static_cast<std::size_t>(place);
    Overlap overlap{scores(place), offsets(s.group), weights(place), scratch_.tile_sums, s.is_changed[p], {}};
    if (s.is_changed[p]) overlap.changed = changer_.tile(group_row(s.group), s.tile[p] * 32);
    return overlap;
  }
  /// The next weights that are computed are those of a place.
  template <class S>
  SACCADE_INLINE Overlap begin_weights(S& stream, const Step& s, int place) {
    stream.keys = keys_of<typename S::Keys>(s, place);
    return overlap(s, place);
  }

  const ScalesOfTile& scales_of(const Step& s, int place) const {
    return *tile_at(s.tile[static_cast<std::size_t>(place)]).scales;
  }
  template <class Keys>
  SACCADE_INLINE Keys keys_of([[maybe_unused]] const Step& s, [[maybe_unused]] int place) const {
    if constexpr (std::is_same_v<Keys, KeyScales>) {
      const bool is_scaled = s.is_scaled[static_cast<std::size_t>(place)];
      return {is_scaled ? kOnesOfKeys.data() : scales_of(s, place).keys, scales_of(s, place).shifts};
    } else {
      return {};
    }
  }

  /// Multiplies the scores of a place by the scales of keys, before other code than Weights reads them. It has the
  /// same bits with them as with the scores of the products.
  __attribute__((noinline)) void scale_scores(Step& s, int place) {
    if (std::exchange(s.is_scaled[static_cast<std::size_t>(place)], true)) return;
    const float* const scales = scales_of(s, place).keys;
    for (int i = 0; i < 1024; i += kWidth)
      store(scores(place) + i, mul(load(scores(place) + i), load(scales + i % 32)));
  }

  /// Softcap, biases and masks; then finds the rows that other kernels have to compute.
  __attribute__((noinline)) void finish_scores(const Step& s, std::int64_t first_key, const Subtiles& subtiles,
                                               std::uint32_t bad, float* block) {
    const std::int64_t row = group_row(s.group);
    const int rows = group_rows(s.group);
    if (changer_.apply_unmasked(changer_.tile(row, first_key), rows, block)) {
      for (int i = 0; i < rows; ++i) apply_range(block + i * 32, {first_key, 0, 32}, visibility_.visible(row + i));
    } else {
      alignas(64) Scalar row_max[kTileRows * kWidth];
      std::fill_n(row_max, kTileRows * kWidth, -kInfinity);
      finisher_.finish(row, rows, first_key, subtiles, scratch_.mask, block, row_max);
    }
    find_fallback_rows(s.group, bad, block);
  }

  /// Gives rows that see their first keys an offset: these keys' weights are at most 2^-kWeightHeadroom. With
  /// ALiBi, nearer keys have larger scores: offsets have room for the bias of the nearest.
  __attribute__((noinline)) void find_offsets(const Step& s, std::int64_t first_key, const float* block) {
    unseen_[s.group] = false;
    alignas(64) float tops[32];
    maxima_of_32_rows(block, tops);
    for (int i = 0; i < group_rows(s.group) && changer_.slope() > 0; ++i)
      tops[i] += changer_.slope() * static_cast<float>(distance_to(group_row(s.group) + i, first_key));
    for (int i = 0; i < 32; i += kWidth) {
      const Vec old = load(offsets(s.group) + i), top = load(tops + i);
      const Vec exponent = ceil(mul(top, broadcast(unit_.exp_factor)));
      const Vec found = sub(broadcast(WeightsOf<T>::kFirst), mul(broadcast(WeightsOf<T>::kUnit), exponent));
      const Mask unseen = equal(old, broadcast(kUnseen)), low = less(top, broadcast(-limit() / 2));
      store(offsets(s.group) + i, select(unseen, select(low, old, found), old));
      unseen_[s.group] = unseen_[s.group] || any(both(unseen, low));
    }
  }

  /// Called when the weights of a place are complete. `o`: the accumulators that registers 0 to 3 hold, if any.
  template <class S>
  SACCADE_INLINE void after_weights(S& stream, Step& s, int place, float* o) {
    if constexpr (S::kChanges == ScoreChange::float_mask) {
      if (bits(stream.fit) != (1U << kWidth) - 1U) [[unlikely]] {
        if (o) stream.tiles.leave_all();
        leave_out_rows<S::kHasSums>(s, place);
        stream.fit = equal(zero(), zero());
        if (o) stream.tiles.enter_all(o);
      }
    }
    if (stream.weights.overflowed()) [[unlikely]] {
      if (o) stream.tiles.leave_all();
      if constexpr (S::kScaled) scale_scores(s, place);
      if constexpr (S::kHidesWeights) {
        const Overlap weighed = overlap(s, place);
        if (weighed.is_changed) changer_.template hide<S::kChanges, kScales>(weighed.changed, weighed.scores);
      }
      make_room<S::kHasSums, typename S::Keys>(s, place, o != nullptr);
      stream.weights.reset();
      if (o) stream.tiles.enter_all(o);
    }
    if constexpr (S::kHasSums) add_tile_sums(s.group);
  }

  /// Rare: a changed score is too large or NaN. Rows with such a score are left to other kernels.
  template <bool kSums>
  __attribute__((noinline)) void leave_out_rows(const Step& s, int place) {
    find_fallback_rows(s.group, 0, scores(place));
    WeightsOf<T, kSums> again(WeightsOf<T>::kUnit * unit_.exp_factor);
    for (int i = 0; i < 32; ++i)
      again.of_row(scores(place) + i * 32, offsets(s.group)[i], {}, weights(place) + i * 16,
                   scratch_.tile_sums + i * 16);
  }

  /// Rare: rows with a score more than 31 binades above their first keys get a new offset, and all that they have
  /// accumulated is scaled down, including, if `has_first_columns`, the first columns of this step's output.
  template <bool kSums, class Keys>
  __attribute__((noinline)) void make_room(const Step& s, int place, bool has_first_columns) {
    WeightsOf<T, kSums, Keys> again(WeightsOf<T>::kUnit * unit_.exp_factor);
    const Keys keys = keys_of<Keys>(s, place);
    for (int i = 0; i < 32; ++i) {
      const float* const row = scores(place) + i * 32;
      float top = -kInfinity;
      for (int j = 0; j < 32; ++j) top = std::max(top, row[j]);
      std::uint32_t* const now = weights(place) + i * 16;
      float* const now_sums = scratch_.tile_sums + i * 16;
      again.reset();
      again.of_row(row, offsets(s.group)[i], keys, now, now_sums);
      if (!again.overflowed()) continue;
      const float offset = offset_for(top);
      const float factor = static_cast<float>(std::exp2((offset - offsets(s.group)[i]) / WeightsOf<T>::kUnit));
      offsets(s.group)[i] = offset;
      scale_numbers(sums(s.group) + i * 16, 16, factor);
      if (kRounds && started_[s.group]) scale_numbers(rounded_sums(s.group) + i * 16, 16, factor);
      for (std::int64_t d = 0; d < scratch_.width; ++d)
        if (started_[s.group] || (has_first_columns && d == 0))
          scale_numbers(outputs(s.group, d) + i * 32, 32, factor);
      for (int earlier = 0; earlier < place; ++earlier)
        for (int t = 0; t < kParts; ++t) scale_words(weights(earlier) + t * kPartWords + i * 16, factor);
      again.of_row(row, offset, keys, now, now_sums);
    }
  }

  SACCADE_INLINE void add_tile_sums(int g) {
    for (int i = 0; i < 512; i += kWidth) store(sums(g) + i, add(load(sums(g) + i), load(scratch_.tile_sums + i)));
  }

  /// Computes the weights of the last places, O += P V and the sums of weights.
  template <class S>
  SACCADE_INLINE void add_values(S& stream, Step& s) {
    const int n = s.count;
    std::int64_t d = 0;
    if (n >= (kRounds ? 5 : 4) && !drops()) {  // the last kLag places' weights beside the first columns of values
      float* const o = outputs(s.group, 0);
      int t = 0;
      const Overlap first = begin_weights(stream, s, n - 2);
      add_columns<true, 0, kOverlapRows>(stream, s, t++, started_[s.group] ? o : nullptr, o, first);
      if constexpr (kRounds) add_columns<false, 16, 16>(stream, s, t++, nullptr, nullptr, first);
      after_weights(stream, s, n - 2, o);
      const Overlap last = begin_weights(stream, s, n - 1);
      add_columns<false, 0, kOverlapRows>(stream, s, t++, nullptr, nullptr, last);
      if constexpr (kRounds) add_columns<false, 16, 16>(stream, s, t++, nullptr, nullptr, last);
      after_weights(stream, s, n - 1, o);
      for (; t < n; ++t) products<kOfValues, SplitProducts::all, false>(stream, weights(t), values(s, t, 0));
      d = 1;
    } else {
      stream.tiles.leave_all();
      for (int t = std::max(0, n - kLag); t < n; ++t) {
        weigh<0, 32>(stream, begin_weights(stream, s, t));
        after_weights(stream, s, t, nullptr);
      }
      if (drops()) {
        if (kRounds) add_rounded_sums<S::kScaled>(s);
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
    if (kRounds && !drops()) add_rounded_sums<S::kScaled>(s);
  }

  /// Rows of weights that overlap the products of 32 keys with 32 columns of values: split numbers have more
  /// products.
  static constexpr int kOverlapRows = kRounds ? 16 : 32;
  template <bool kNew, int kFirst, int kRows, class S>
  SACCADE_INLINE void add_columns(S& stream, const Step& s, int place, const float* from, float* to,
                                  const Overlap& b) {
    products<kOfValues, SplitProducts::all, kNew, kFirst, kRows>(stream, weights(place), values(s, place, 0), from,
                                                                 to, b);
  }

  const std::uint32_t* values(const Step& s, int place, std::int64_t d) const {
    return tile_at(s.tile[static_cast<std::size_t>(place)]).values + d * kWords;
  }

  /// l += P 1, or P times the reciprocals of the scales of values.
  template <bool kScaled>
  SACCADE_INLINE void add_rounded_sums(const Step& s) {
    constexpr std::int64_t kStride = 64;
    float* const l = rounded_sums(s.group);
    if (started_[s.group]) {
      tiles_.template load<0>(l, kStride), tiles_.template load<1>(l + 256, kStride);
    } else {
      tiles_.template clear<0>(), tiles_.template clear<1>();
    }
    tiles_.template load<7>(kOnesTile.words, kStride);
    for (int t = 0; t < s.count; ++t) {
      if constexpr (kScaled)
        tiles_.template load<7>(tile_at(s.tile[static_cast<std::size_t>(t)]).scales->sums, kStride);
      tiles_.template load<4>(weights(t), kStride);
      tiles_.template multiply<0, 4, 7>();
      tiles_.template load<5>(weights(t) + 256, kStride);
      tiles_.template multiply<1, 5, 7>();
    }
    tiles_.template store<0>(l, kStride), tiles_.template store<1>(l + 256, kStride);
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

  alignas(64) static constexpr std::array<float, 32> kOnesOfKeys = [] {
    std::array<float, 32> ones{};
    ones.fill(1);
    return ones;
  }();

  PackedKeys packed_;
  bool has_scales_;  // of keys and values, in ScalesOfTile
  ScoreChanger changer_;
  bool is_short_[kGroups];  // groups of short rows only, which need no tiles
};

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
