// What a block of query rows on AMX tiles (amx/forward.h) begins with, accumulates and ends with.
#pragma once

#include "cpu/amx/forward_state.h"
#include "cpu/attention/output.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// The rows of a block, in groups of 32, and their results.
template <class T, int kScoreParts>
class AmxRows {
 public:
  AmxRows(const AttentionParams& params, const QueryRows& work, void* memory, const AmxStates& states)
      : p_(params),
        batch_(work.batch),
        head_(work.head),
        kv_head_(work.head / (params.num_heads / params.num_kv_heads)),
        row_(work.row),
        rows_(static_cast<int>(std::min(work.rows, params.rows(work.batch) - work.row))),
        groups_((rows_ + 31) / 32),
        visibility_(params, work.batch),
        finisher_(params, visibility_, work.batch, work.head),
        dropout_(params),
        unit_(score_unit(params)),
        wants_exact_sums_(params.lse.data || params.saves_scores() || states),
        scratch_(params, groups_, memory),
        states_(states) {}

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
  std::uint32_t fallback_rows(int g) const { return all_of(fallback_rows_[g], g); }
  /// After a call with states: rows whose keys other kernels must process too, and have processed so far.
  std::uint32_t also_fallback_rows(int g) const { return also_[g]; }
  /// Rows of which other kernels must compute only lse, so that o does not depend on whether it is requested.
  std::uint32_t rows_of_lse(int g) const { return all_of(rows_of_lse_[g], g) & ~fallback_rows_[g]; }
  int groups() const { return groups_; }

 protected:
  /// Without those of missing rows.
  std::uint32_t all_of(std::uint32_t rows, int g) const {
    return rows & static_cast<std::uint32_t>((std::uint64_t{1} << group_rows(g)) - 1);
  }

  using Scratch = AmxScratch<T, kScoreParts>;
  static constexpr int kParts = kPartsOf<T>;
  static constexpr std::int64_t kWords = Scratch::kWords, kScoreWords = Scratch::kScoreWords;
  /// Whether weights are rounded; then the sums of the rounded weights are products.
  static constexpr bool kRounds = kParts == 1;

  int group_rows(int g) const { return std::min(32, rows_ - g * 32); }
  std::int64_t group_row(int g) const { return row_ + g * 32; }
  float* outputs(int g, std::int64_t d) { return scratch_.outputs + (g * scratch_.width + d) * 1024; }
  float* sums(int g) { return scratch_.sums + g * 512; }
  float* rounded_sums(int g) { return scratch_.rounded_sums + g * 512; }
  float* offsets(int g) { return scratch_.offsets + g * 32; }

  void begin() {
    for (int g = 0; g < groups_; ++g) {
      begin(g);
      count_keys(g);
      pack_queries_of(g);
      for (int i = 0; i < group_rows(g) && p_.saves_scores(); ++i) {
        if (poll_progress()) tiles_.configure();
        finisher_.clear_saved(group_row(g) + i, 0, p_.seqlen_k);
      }
    }
  }

  /// Adds the keys of this call to those that the rows of a group see.
  void count_keys(int g) {
    for (int i = 0; i < group_rows(g); ++i) {
      const KeyRange seen = visibility_.visible(group_row(g) + i);
      const std::int64_t all = seen_[g][i] + std::max<std::int64_t>(seen.end - seen.begin, 0);
      seen_[g][i] = static_cast<std::uint8_t>(std::min<std::int64_t>(all, 255));
    }
  }
  /// Rows that see few keys, for which other kernels are faster.
  std::uint32_t short_rows(int g) const {
    const std::int64_t keys = p_.hides_by_position() ? kShortRow<T>.keys_of_causal : kShortRow<T>.keys;
    std::uint32_t rows = 0;
    for (int i = 0; i < group_rows(g); ++i) rows |= std::uint32_t{seen_[g][i] > 0 && seen_[g][i] <= keys} << i;
    return rows;
  }

  void begin(int g) {
    fallback_rows_[g] = low_[g] = left_[g] = 0;
    unseen_[g] = true;
    std::fill_n(seen_[g], 32, std::uint8_t{0});
    started_[g] = states_ && states_.has(group_row(g));
    if (started_[g]) return load_state(g);
    std::fill_n(offsets(g), 32, kUnseen);
    std::fill_n(sums(g), 512, 0.0F);
  }

  void pack_queries_of(int g) {
    const QueryTileStats stats = pack_query_tile<T, kScoreParts>(
        p_, {batch_, head_, group_row(g), group_rows(g)}, factor_of_queries<T>(unit_.query_factor),
        scratch_.queries + g * scratch_.depth * kScoreWords);
    largest_query_[g] = stats.largest;
    fallback_rows_[g] |=
        256 * unit_.exp_factor <= std::numeric_limits<float>::max() ? stats.bad : ~std::uint32_t{0};
  }

  /// The largest score that needs no fallback: 2^21 binades.
  float limit() const { return 0x1p29F / (256 * unit_.exp_factor); }

  // ---- Scores

  /// The offset of a row whose weights must be able to hold a score of `top`.
  float offset_for(float top) const {
    return WeightsOf<T>::kFirst - WeightsOf<T>::kUnit * std::ceil(top * unit_.exp_factor);
  }

  /// The distance of a row to the nearest of 32 keys that it sees; 0 if it sees none.
  std::int64_t distance_to(std::int64_t row, std::int64_t first_key) const {
    const KeyRange seen = visibility_.visible(row);
    const std::int64_t at = row + visibility_.offset;
    const std::int64_t begin = std::max(seen.begin, first_key), end = std::min(seen.end, first_key + 32);
    return begin < end ? std::abs(at - std::clamp(at, begin, end - 1)) : 0;
  }

  /// Finds the rows of a group that other kernels have to compute, from their scores of 32 keys, some of them bad.
  void find_fallback_rows(int g, std::uint32_t bad, float* block) {
    const Vec most = broadcast(limit()), least = broadcast(-limit() / 2), hidden = broadcast(-kInfinity);
    for (int i = 0; i < group_rows(g); ++i) {
      bool other = bad != 0 && p_.saves_hidden();
      unsigned low = 0;
      for (int j = 0; j < 32; j += kWidth) {
        const Vec x = load(block + i * 32 + j);
        constexpr unsigned kAll = (1U << kWidth) - 1U;
        const unsigned visible = bits(equal(x, hidden)) ^ kAll;
        other = other || bits(less(x, most)) != kAll || (visible & bad >> j & kAll) != 0;
        low |= bits(less(x, least)) & visible;
      }
      if (low != 0) low_[g] |= std::uint32_t{1} << i;
      if (!other) continue;
      fallback_rows_[g] |= std::uint32_t{1} << i;
      std::fill_n(block + i * 32, 32, -kInfinity);  // none of it is used, and nothing may overflow
    }
  }

  // ---- Sums and weights times a power of two

  static void scale_numbers(float* numbers, int n, float factor) {
    for (int j = 0; j < n; ++j) numbers[j] *= factor;
  }
  static void scale_words(std::uint32_t* words, float factor) {
    const auto scaled = [factor](std::uint32_t bits) -> std::uint32_t {
      return bfloat16(std::bit_cast<float>(bits << 16) * factor).bits;
    };
    for (int w = 0; w < 16; ++w) words[w] = scaled(words[w] & 0xffffU) | scaled(words[w] >> 16) << 16;
  }

  // ---- Between calls

  void load_state(int g) {
    const GroupStats stats = states_.stats(group_row(g));
    fallback_rows_[g] = stats.fallback_rows, low_[g] = stats.low, left_[g] = stats.left, unseen_[g] = stats.unseen;
    std::copy_n(stats.seen, 32, seen_[g]);
    states_.load(group_row(g), scratch_.group(g));
  }

  /// A row that may need other kernels in the end is computed by both from the first key on, because earlier keys
  /// will be gone. A row that turns out to need them later continues from rounded sums of the tiles.
  void store_states() {
    for (int g = 0; g < groups_; ++g) {
      also_[g] = short_rows(g);
      if (!started_[g]) clear_results(g);
      const GroupSums<T> of_rows(scratch_.group(g), unit_, true);
      for (int i = 0; i < group_rows(g); ++i) {
        const std::uint32_t bit = std::uint32_t{1} << i;
        if (!is_finite(g, i)) fallback_rows_[g] |= bit;
        if (of_rows.may_need_other_kernels(i)) also_[g] |= bit;
      }
      hand_over(g, states_.group(group_row(g)), fallback_rows(g) & left_[g]);
      left_[g] &= ~fallback_rows(g);
      also_[g] = (also_[g] | fallback_rows(g)) & ~left_[g];
      left_[g] |= ~also_[g];
      GroupStats stats{fallback_rows_[g], low_[g], left_[g], unseen_[g]};
      std::copy_n(seen_[g], 32, stats.seen);
      states_.store(group_row(g), stats, scratch_.group(g));
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

  /// What end() does for o of bf16 where nothing else is requested, with the same bits: 1.1 times as fast a call
  /// at S 128, D 64 (Granite Rapids).
  std::uint32_t end_plain(int g) {
    alignas(64) float scale[32];
    for (int i = 0; i < 32; ++i) scale[i] = rounded_sum(rounded_sums(g) + i * 16);
    const Vec keep_scale = broadcast(static_cast<float>(1.0 / (1.0 - p_.dropout_p)));
    for (int i = 0; i < 32; i += kWidth) {
      const Vec l = load(scale + i);
      store(scale + i, mul(select(equal(l, zero()), zero(), div(broadcast(1), l)), keep_scale));
    }
    bfloat16* to = p_.template row_of<bfloat16>(p_.o, batch_, head_, group_row(g));
    std::uint32_t not_finite = 0;
    for (int i = 0; i < group_rows(g); ++i, to += p_.o.row_stride) {
      Vec finite = zero();
      for (std::int64_t d = 0; d < scratch_.width; ++d) {
        __builtin_prefetch(to + 8 * p_.o.row_stride + d * 32, 1);
        finite = write_32(outputs(g, d) + i * 32, broadcast(scale[i]), to + d * 32, finite);
      }
      not_finite |= std::uint32_t{any(is_nan(finite))} << i;
    }
    return not_finite;
  }

  void clear_results(int g) {
    std::fill_n(outputs(g, 0), scratch_.width * 1024, 0.0F);
    std::fill_n(rounded_sums(g), 512, 0.0F);
  }

  void end() {
    for (int g = 0; g < groups_; ++g) {
      fallback_rows_[g] |= short_rows(g);
      if (fallback_rows(g) == all_of(~std::uint32_t{0}, g)) continue;
      if (!started_[g]) clear_results(g);
      const bool is_exact = p_.lse.data || p_.saves_scores();
      if constexpr (kRounds) {
        if (!is_exact && !p_.has_sink() && !p_.alibi_slopes.data && low_[g] == 0 && p_.o.dtype == DType::bf16 &&
            p_.head_dim_v % 32 == 0) {
          fallback_rows_[g] |= end_plain(g);
          continue;
        }
      }
      const GroupSums<T> sums(scratch_.group(g), unit_, is_exact, is_exact || p_.has_sink());
      for (int i = 0; i < 32; ++i) {
        const std::uint32_t bit = std::uint32_t{1} << i;
        if (sums.needs_fallback(i, (low_[g] & bit) != 0) || (p_.alibi_slopes.data && sums.is_small(i)))
          fallback_rows_[g] |= bit;
        else if (p_.lse.data && sums.has_rough_lse(i))
          (states_ ? fallback_rows_ : rows_of_lse_)[g] |= bit;
      }
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
  Visibility visibility_;
  ScoreFinisher finisher_;
  Dropout dropout_;
  ScoreUnit unit_;
  bool wants_exact_sums_;
  Scratch scratch_;
  AmxStates states_;
  Tiles tiles_;
  bool started_[kGroups], unseen_[kGroups];
  std::uint8_t seen_[kGroups][32];  // see GroupStats
  float largest_query_[kGroups];
  std::uint32_t fallback_rows_[kGroups];  // rows that other kernels compute
  std::uint32_t low_[kGroups];            // rows with a score below -limit() / 2, which gives no offset
  std::uint32_t left_[kGroups];           // see GroupStats
  std::uint32_t also_[kGroups];
  std::uint32_t rows_of_lse_[kGroups] = {};
};

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
