// Masks, ALiBi, softcap and the edges of windows for 32 scores at a time, applied between products, right before
// the weights of the scores are computed (amx/forward.h). Masks and edges have the same bits as those of
// ScoreFinisher (attention/scores.h), which does all the rest: several changes at once, causal masks alone, the
// caller's functions, saved scores, the last keys of a mask.
#pragma once

#include "cpu/amx/packing.h"
#include "cpu/attention/scores.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

enum class ScoreChange : std::uint8_t { none, position, boolean_mask, float_mask, alibi, softcap };

/// The only change of the scores of a query head; `none` if there are none, several, or others. What position
/// hides is a change in windows, where many tiles of keys are at an edge: a window of 257 keys takes 0.94 of the
/// time that it takes with ScoreFinisher, one of 513 keys 0.97. A causal mask alone is not: 2048 keys would
/// take 1.03 (Granite Rapids).
inline ScoreChange only_change(const AttentionParams& p, std::int64_t batch, std::int64_t head) {
  if (p.score_modifier || p.saves_scores() || p.block_mask.data) return ScoreChange::none;
  const bool has_mask = p.mask.type != MaskType::none, has_alibi = p.alibi_slopes.data,
             has_softcap = p.softcap != 0;
  const bool has_window = p.window_left >= 0 || p.window_right >= 0;
  if (has_mask + has_alibi + has_softcap == 0 && has_window) return ScoreChange::position;
  if (has_mask + has_alibi + has_softcap != 1) return ScoreChange::none;
  if (has_softcap) return ScoreChange::softcap;
  // A slope below 0 raises scores.
  if (has_alibi) return p.alibi_slopes.at(batch, head) > 0 ? ScoreChange::alibi : ScoreChange::none;
  if (p.mask.column_stride != 1 || p.mask.type == MaskType::f64) return ScoreChange::none;
  return p.mask.type == MaskType::boolean ? ScoreChange::boolean_mask : ScoreChange::float_mask;
}

/// tanh(x / cap) with factor = 2 log2(e) / cap, as (e^2x - 1) / (e^2x + 1): a relative error of 2.6e-7 at all
/// magnitudes (by 16 million random x). Without a division, and with fewer instructions than tanh(), because the
/// port of multiply-adds is what there is least of beside products.
SACCADE_INLINE Vec tanh_of_cap(Vec x, Vec factor) {
  const Vec y = max(broadcast(-30), min(broadcast(30), mul(x, factor)));
  const Vec rounded = add(y, broadcast(0x1.8p23F)), f = sub(y, sub(rounded, broadcast(0x1.8p23F)));
  constexpr float kCoefficients[] = {1.540353039e-04F, 1.339075590e-03F, 9.618129108e-03F,
                                     5.550357244e-02F, 2.402265070e-01F, 6.931471880e-01F};
  Vec p = broadcast(kCoefficients[0]);  // (2^f - 1) / f
  SACCADE_UNROLL
  for (int i = 1; i < 6; ++i) p = fma(p, f, broadcast(kCoefficients[i]));
  const Vec power = scale_by_exponent(broadcast(1), rounded);
  const Vec e = fma(mul(p, f), power, sub(power, broadcast(1))), divisor = add(e, broadcast(2));
  const Vec minus = sub(zero(), divisor), guess = reciprocal_guess(divisor);
  const Vec wrong = fma(minus, guess, broadcast(1));
  const Vec inverse = fma(guess, fma(wrong, wrong, wrong), guess);
  const Vec quotient = mul(e, inverse);
  return fma(fma(quotient, minus, e), inverse, quotient);
}

/// 32 keys and the first of 32 rows whose scores are changed.
struct ChangedTile {
  const void* mask = nullptr;  // of row 0 and key 0
  float distance = 0;          // the position of row 0 less key 0
  std::int64_t row = 0, key = 0;
};

class ScoreChanger {
 public:
  ScoreChanger(const AttentionParams& p, const Visibility& visibility, std::int64_t batch, std::int64_t head)
      : p_(p),
        batch_(batch),
        head_(head),
        visibility_(visibility),
        change_(only_change(p, batch, head)),
        scale_(keeps_queries(p) && p.changes_every_score() ? std::abs(static_cast<float>(p.scale)) : 1),
        slope_(change_ == ScoreChange::alibi ? static_cast<float>(p.alibi_slopes.at(batch, head)) : 0),
        softcap_(static_cast<float>(p.softcap)),
        cap_factor_(static_cast<float>(2 * 1.4426950408889634 / p.softcap)) {}

  ScoreChange change() const { return change_; }
  float scale() const { return scale_; }
  float slope() const { return slope_; }

  ChangedTile tile(std::int64_t row, std::int64_t key) const {
    ChangedTile tile{
        .mask = nullptr, .distance = static_cast<float>(row + visibility_.offset - key), .row = row, .key = key};
    if (change_ == ScoreChange::boolean_mask) tile.mask = mask_at<std::uint8_t>(row, key);
    if (change_ == ScoreChange::float_mask) tile.mask = mask_at<float>(row, key);
    return tile;
  }

  /// Whether the mask leaves any key of the tile visible to some of its rows.
  __attribute__((noinline)) bool lets_through(const ChangedTile& tile, int rows) const {
    for (int i = 0; i < rows; ++i) {
      if (change_ == ScoreChange::boolean_mask) {
        if (bits_of_32(row_of<std::uint8_t>(tile, i)) != 0) return true;
        continue;
      }
      const float* const mask = row_of<float>(tile, i);
      for (int j = 0; j < 32; j += kWidth)
        if (bits(equal(loadu(mask + j), broadcast(-kInfinity))) != kAll) return true;
    }
    return false;
  }

  /// Hides keys of a whole tile.
  template <ScoreChange kChange, bool kScales>
  __attribute__((noinline)) void hide(const ChangedTile& tile, float* block) const {
    Mask fit = equal(zero(), zero());
    for (int i = 0; i < 32; ++i) apply<kChange, kScales>(tile, i, block + i * 32, zero(), fit);
  }

  /// Changes all rows of a tile, unless it has a mask. Returns whether it has.
  __attribute__((noinline)) bool apply_unmasked(const ChangedTile& tile, int rows, float* block) const {
    if (change_ != ScoreChange::alibi && change_ != ScoreChange::softcap) return false;
    const bool scales = scale_ != 1;
    Mask fit = equal(zero(), zero());
    for (int i = 0; i < rows; ++i) {
      float* const row = block + i * 32;
      if (change_ == ScoreChange::alibi)
        scales ? apply<ScoreChange::alibi, true>(tile, i, row, zero(), fit)
               : apply<ScoreChange::alibi, false>(tile, i, row, zero(), fit);
      else
        scales ? apply<ScoreChange::softcap, true>(tile, i, row, zero(), fit)
               : apply<ScoreChange::softcap, false>(tile, i, row, zero(), fit);
    }
    return true;
  }

  /// Changes that only hide keys.
  template <ScoreChange kChange>
  static constexpr bool kHides = kChange == ScoreChange::boolean_mask || kChange == ScoreChange::position;

  /// A bit for each of 32 keys that row i of a tile sees.
  template <ScoreChange kChange>
  SACCADE_INLINE std::uint32_t visible_of_row(const ChangedTile& tile, int i) const {
    if constexpr (kChange == ScoreChange::boolean_mask)
      return bits_of_32(row_of<std::uint8_t>(tile, i));
    else
      return visible_of_32(tile.row + i, tile.key);
  }

  /// Changes the scores of row i of a tile. Where they may grow, clears lanes of `fit` whose score is not less
  /// than `limit`.
  template <ScoreChange kChange, bool kScales>
  SACCADE_INLINE void apply(const ChangedTile& tile, int i, float* scores, Vec limit, Mask& fit) const {
    std::uint32_t visible = 0;
    if constexpr (kHides<kChange>) visible = visible_of_row<kChange>(tile, i);
    SACCADE_UNROLL
    for (int j = 0; j < 32; j += kWidth) {
      Vec x = load(scores + j);
      if constexpr (kScales && kChange != ScoreChange::position) x = mul(x, broadcast_from(&scale_));
      if constexpr (kHides<kChange>) x = select(mask_of_bits(visible >> j & kAll), x, broadcast(-kInfinity));
      if constexpr (kChange == ScoreChange::float_mask) {
        // In a register of its own: compilers would fuse the product and the sum, and ScoreFinisher does not. -inf
        // hides x, which is finite.
        x = add(loadu(row_of<float>(tile, i) + j), in_register(x));
        fit = both(fit, less(x, limit));
      }
      if constexpr (kChange == ScoreChange::alibi) {
        const Vec distance = abs(sub(broadcast(tile.distance + static_cast<float>(i - j)), lane_index()));
        x = fma(broadcast(-slope_), distance, x);
      }
      if constexpr (kChange == ScoreChange::softcap)
        x = mul(broadcast(softcap_), tanh_of_cap(x, broadcast(cap_factor_)));
      store(scores + j, x);
    }
  }

 private:
  static constexpr unsigned kAll = (1U << kWidth) - 1U;

  /// A bit for each of the 32 keys from `key` on that the row sees.
  SACCADE_INLINE std::uint32_t visible_of_32(std::int64_t row, std::int64_t key) const {
    const KeyRange range = visibility_.visible(row);
    const auto below = [&](std::int64_t end) {  // the keys before `end`
      return static_cast<std::uint32_t>((std::uint64_t{1} << std::clamp<std::int64_t>(end - key, 0, 32)) - 1);
    };
    return below(range.end) & ~below(range.begin);
  }

  template <class T>
  const T* mask_at(std::int64_t row, std::int64_t key) const {
    return static_cast<const T*>(p_.mask.data) + p_.mask.row(batch_, head_, row) + key;
  }
  template <class T>
  SACCADE_INLINE const T* row_of(const ChangedTile& tile, int i) const {
    return static_cast<const T*>(tile.mask) + i * p_.mask.row_stride;
  }

  const AttentionParams& p_;
  std::int64_t batch_, head_;
  const Visibility& visibility_;
  ScoreChange change_;
  float scale_, slope_, softcap_, cap_factor_;
};

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
