// From the product to the softmax, for one tile: which keys to compute, how their scores change, and where they
// are reported.
#pragma once

#include "cpu/attention/mask.h"
#include "cpu/attention/packing.h"
#include "cpu/elementwise/dropout.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// The subtiles of a block of kBlock keys (kKeySubtile columns each) that a tile of query rows computes, in
/// ascending order.
template <int kBlock>
struct SubtilesOf {
  int count = 0;
  std::array<int, kBlock / kKeySubtile> index = {};  // their indices in the block
  unsigned partial = 0;                              // bit n: scores of index[n] change after the product
  unsigned modified = 0;                             // bit n: the score modifier is called for index[n]

  bool is_partial(int n) const { return partial >> n & 1u; }
  bool is_modified(int n) const { return modified >> n & 1u; }
  /// Bit g is set if subtile g of the block is included.
  unsigned set() const {
    unsigned bits = 0;
    for (int n = 0; n < count; ++n) bits |= 1u << index[static_cast<std::size_t>(n)];
    return bits;
  }

  /// Whether there are no gaps between them.
  bool is_one_run() const {
    return count == 0 || index[static_cast<std::size_t>(count - 1)] - index[0] == count - 1;
  }

  /// Calls f(n, begin, end) for each run of adjacent subtiles: n is the first one's index in `index`, [begin, end)
  /// are the run's columns. With `alike(n, first)`, a run also ends before a subtile that is not like its first
  /// one.
  template <class F, class Alike>
  SACCADE_INLINE void for_each_run(const F& f, const Alike& alike) const {
    const auto at = [this](int n) { return index[static_cast<std::size_t>(n)]; };
    for (int first = 0, last; first < count; first = last) {
      for (last = first + 1; last < count && at(last) == at(last - 1) + 1 && alike(last, first);) ++last;
      f(first, at(first) * kKeySubtile, (at(last - 1) + 1) * kKeySubtile);
    }
  }
  template <class F>
  SACCADE_INLINE void for_each_run(const F& f) const {
    for_each_run(f, [](int, int) { return true; });
  }
};
using Subtiles = SubtilesOf<kBlockK>;

/// The unit of scores. Queries are multiplied by query_factor; a score times exp_factor is in base 2, times
/// `natural` a natural logit. Where no option uses the scores, queries are scaled by scale * log2(e): scores are
/// in base 2, and their exponential needs only one subtraction. Where biases are added, base 2 would have up to
/// twice the rounding error; there queries are scaled by the scale, and scores are natural logits.
struct ScoreUnit {
  Scalar query_factor, exp_factor, natural;
};

/// Whether scores stay natural logits at the cost of one more multiplication: if the caller sees them, or if q has
/// so few bits that its products are exact and multiplying q by log2(e) would be the largest error.
inline bool keeps_natural_scores(const AttentionParams& p) {
  const auto has_few_bits = [](DType dtype) { return dtype == DType::bf16 || dtype == DType::f16; };
  return p.changes_every_score() || has_few_bits(p.q.dtype) || has_few_bits(p.given_q);
}

/// Whether queries enter products unscaled except for the sign of the scale: scaling would round them. (Tiles that
/// multiply parts of f32, or in decode() bytes, scale their sums.) kBlock: see ScoreFinisherOf.
template <int kBlock = kBlockK>
bool keeps_queries(const AttentionParams& p) {
  const bool has_bytes = kBlock == kDecodeBlock && is_quantized(p.k.dtype);
  return kPairs && !(kAmx && (p.q.dtype == DType::f32 || has_bytes));
}

template <int kBlock = kBlockK>
ScoreUnit score_unit(const AttentionParams& p) {
  const Scalar scale = static_cast<Scalar>(p.scale);
  if (keeps_queries<kBlock>(p)) {
    // The queries carry the sign, so that a larger score is a larger logit.
    const Scalar natural = p.changes_every_score() ? Scalar{1} : std::abs(scale);
    return {scale, natural * kLog2E, natural};
  }
  if (keeps_natural_scores(p)) return {scale, kLog2E, 1};
  return {static_cast<Scalar>(p.scale * 1.4426950408889634074), 1, kLn2};
}

/// A key block that is computed as a whole.
template <int kBlock>
SubtilesOf<kBlock> all_subtiles() {
  static constexpr SubtilesOf<kBlock> kAll = [] {
    SubtilesOf<kBlock> all;
    all.count = kBlock / kKeySubtile;
    for (int n = 0; n < all.count; ++n) all.index[static_cast<std::size_t>(n)] = n;
    return all;
  }();
  return kAll;
}

/// Finishes the scores of one query head and blocks of kBlock keys: kBlockK, or kDecodeBlock in decode().
template <int kBlock>
class ScoreFinisherOf {
 public:
  /// `are_natural`: the scores have been scaled.
  ScoreFinisherOf(const AttentionParams& params, const Visibility& visibility, std::int64_t batch,
                  std::int64_t head, bool are_natural = false)
      : p_(params),
        visibility_(visibility),
        batch_(batch),
        head_(head),
        block_mask_(params, batch, head),
        unit_(score_unit<kBlock>(params)),
        touches_all_(params.changes_every_score()),
        applies_scale_(keeps_queries<kBlock>(params) && touches_all_ && !are_natural),
        finishes_all_(applies_scale_ || params.ScoreChanges::any() || params.saves_scores()),
        keys_(params.keys(batch)) {}

  /// The keys that may be read.
  KeyRange all_keys() const { return {0, p_.block_table ? visibility_.length : keys_}; }

  /// The keys that all of rows [row, row + rows) see, with unchanged scores.
  KeyRange taken_by_all(std::int64_t row, std::int64_t rows) const {
    if (finishes_all_ || block_mask_ || p_.score_modifier) return {};
    return visibility_.visible_to_all(row, rows);
  }
  /// Whether rows [row, row + rows) need all of the key block at `first_key`, with unchanged scores.
  bool takes_all(std::int64_t row, std::int64_t rows, std::int64_t first_key) const {
    const KeyRange all = taken_by_all(row, rows);
    return all.begin <= first_key && all.end >= first_key + kBlock;
  }

  /// The subtiles of the key block at `first_key` that rows [row, row + rows) must compute. Writes the mask's
  /// numbers to mask[rows][kBlock].
  SubtilesOf<kBlock> plan(std::int64_t row, std::int64_t rows, std::int64_t first_key, Scalar* mask) const {
    // A fast path for the usual case: saves 1% of a forward at head_dim 64 (Zen 5).
    if (takes_all(row, rows, first_key)) return all_subtiles<kBlock>();
    SubtilesOf<kBlock> result;
    const bool saves = p_.saves_hidden();
    const KeyRange some = saves ? all_keys() : visibility_.visible(row, rows);
    const KeyRange all = visibility_.visible_to_all(row, rows);
    const std::int64_t begin = std::max(some.begin, first_key);
    const std::int64_t end = std::min<std::int64_t>(some.end, first_key + kBlock);
    if (begin >= end) return result;
    const BlockEffect effect = saves ? BlockEffect::partial : effect_on(row, rows, begin, end);
    if (effect == BlockEffect::skip) return result;
    for (std::int64_t from = begin, to; from < end; from = to) {
      const auto index = static_cast<int>((from - first_key) / kKeySubtile);
      to = std::min<std::int64_t>(first_key + (index + 1) * kKeySubtile, end);
      bool partial = finishes_all_ || all.begin > first_key + index * kKeySubtile ||
                     all.end < first_key + (index + 1) * kKeySubtile;
      bool modified = p_.score_modifier && effect == BlockEffect::partial;
      if (block_mask_ && !saves) {
        const BlockMask::Cover cover = block_mask_.cover(row, rows, from, to - from);
        if (cover == BlockMask::Cover::none) continue;
        partial |= cover == BlockMask::Cover::some;
      }
      if (modified && !saves) {
        const BlockEffect here = effect_on(row, rows, from, to);
        if (here == BlockEffect::skip) continue;
        modified = here == BlockEffect::partial;
      }
      const Columns columns{first_key, index * kKeySubtile, (index + 1) * kKeySubtile};
      if (p_.mask.type != MaskType::none && !read_mask(row, rows, columns, mask) && !saves) continue;
      result.partial |= static_cast<unsigned>(partial || modified || saves) << result.count;
      result.modified |= static_cast<unsigned>(modified) << result.count;
      result.index[static_cast<std::size_t>(result.count++)] = index;
    }
    return result;
  }

  /// Finishes the partial subtiles of scores[rows][kBlock] and raises row_max[kTileRows][kWidth] to them. `mask`
  /// was written by plan(). If `softcapped` is given, softcapped[rows][kBlock] receives the scores before the
  /// score modifier.
  void finish(std::int64_t row, std::int64_t rows, std::int64_t first_key, const SubtilesOf<kBlock>& subtiles,
              const Scalar* mask, Scalar* scores, Scalar* row_max, Scalar* softcapped = nullptr) const {
    if (subtiles.partial == 0) return;
    const auto alike = [&](int n, int first) {
      return subtiles.is_partial(n) == subtiles.is_partial(first) &&
             subtiles.is_modified(n) == subtiles.is_modified(first);
    };
    subtiles.for_each_run(
        [&](int n, int begin, int end) {
          if (subtiles.is_partial(n))
            finish(row, rows, Columns{first_key, begin, end}, subtiles.is_modified(n), mask, scores, row_max,
                   softcapped);
        },
        alike);
    for (std::int64_t i = rows; i < kTileRows; ++i)  // missing rows
      store(row_max + i * kWidth, max(zero(), load(row_max + i * kWidth)));
  }

  /// Columns of scores[rows][kBlock] in the form of the caller's functions.
  ScoreTile tile_of(std::int64_t row, std::int64_t rows, Columns columns, Scalar* scores) const {
    ScoreTile tile;
    const std::int64_t keys =
        std::min<std::int64_t>(columns.end, all_keys().end - columns.first_key) - columns.begin;
    static_cast<ScoreBlock&>(tile) = block_of(row, rows, columns.first_key + columns.begin, keys);
    tile.scores = scores + columns.begin;
    tile.dtype = dtype_of<Scalar>;
    tile.stride = kBlock;
    return tile;
  }

  /// Sets columns [begin, end) of a row's saved scores and weights to -inf: some of them may not be computed.
  void clear_saved(std::int64_t row, std::int64_t begin, std::int64_t end) const {
    for (const StridedHeads<void>* matrix : {&p_.weights, &p_.scores}) {
      if (!matrix->data) continue;
      Scalar* const line = p_.row_of<Scalar>(*matrix, batch_, head_, row);
      std::fill(line + begin, line + end, -kInfinity);
    }
  }

  /// Turns a row's saved scores into the requested results, now that its maximum m and the factor `scale` of its
  /// exponentials are known.
  void write_saved(std::int64_t row, Scalar m, Scalar scale, const Dropout& dropout) const {
    if (p_.weights.data) {
      const bool drops = p_.weights_after_dropout && p_.dropout_p > 0.0;
      const Scalar keep_scale = drops ? static_cast<Scalar>(1.0 / (1.0 - p_.dropout_p)) : Scalar{1};
      write_weights(p_.row_of<Scalar>(p_.weights, batch_, head_, row), row, m, scale * keep_scale,
                    drops ? &dropout : nullptr);
    }
    if (p_.scores.data && p_.score_stage == ScoreStage::probabilities)
      write_weights(p_.row_of<Scalar>(p_.scores, batch_, head_, row), row, m, scale, nullptr);
  }

 private:
  BlockEffect effect_on(std::int64_t row, std::int64_t rows, std::int64_t begin, std::int64_t end) const {
    if (!p_.score_modifier) return BlockEffect::full;
    if (!p_.score_block_effect) return BlockEffect::partial;
    return p_.score_block_effect(p_.score_context, block_of(row, rows, begin, end - begin));
  }

  /// With the indices of the whole problem.
  ScoreBlock block_of(std::int64_t row, std::int64_t rows, std::int64_t key, std::int64_t keys) const {
    const Origin& origin = p_.origin;
    return {batch_ + origin.batch,
            head_ + origin.head,
            row + origin.row,
            key + origin.key,
            rows,
            keys,
            visibility_.offset - origin.row + origin.key};
  }

  /// Reads the mask; returns whether any key is visible to any row.
  bool read_mask(std::int64_t row, std::int64_t rows, Columns columns, Scalar* mask) const {
    bool any = false;
    for (std::int64_t i = 0; i < rows; ++i) {
      read_mask_row(p_.mask, batch_, head_, row + i, columns, keys_, mask + i * kBlock);
      any = any || lets_through(mask + i * kBlock, columns);
    }
    return any;
  }

  void finish(std::int64_t row, std::int64_t rows, Columns columns, bool modified, const Scalar* mask,
              Scalar* scores, Scalar* row_max, Scalar* softcapped) const {
    if (!finishes_all_ && !modified && !block_mask_ && !softcapped)
      return hide(row, rows, columns, scores, row_max);
    for (std::int64_t i = 0; i < rows; ++i) {
      Scalar* const line = scores + i * kBlock;
      if (applies_scale_) apply_scale(line, columns, static_cast<Scalar>(std::abs(p_.scale)));
      save(ScoreStage::raw, row + i, columns, line);
      if (p_.softcap != 0.0) apply_softcap(line, columns, static_cast<Scalar>(p_.softcap));
      save(ScoreStage::softcapped, row + i, columns, line);
      if (softcapped) std::copy(line + columns.begin, line + columns.end, softcapped + i * kBlock + columns.begin);
    }
    if (modified) modify(row, rows, columns, scores);
    for (std::int64_t i = 0; i < rows; ++i) {
      Scalar* const line = scores + i * kBlock;
      if (p_.alibi_slopes.data)
        apply_alibi(line, columns, static_cast<Scalar>(p_.alibi_slopes.at(batch_, head_)),
                    row + i + visibility_.offset);
      const KeyRange visible = visibility_.visible(row + i);
      const bool has_mask = p_.mask.type != MaskType::none;
      const bool sees_all =
          visible.begin <= columns.first_key + columns.begin && visible.end >= columns.first_key + columns.end;
      Vec largest;
      if (has_mask) largest = apply_mask(line, columns, mask + i * kBlock);
      if (block_mask_) block_mask_.apply(line, columns, row + i, keys_);
      if (!has_mask || block_mask_ || !sees_all) largest = apply_range(line, columns, visible);
      store(row_max + i * kWidth, max(load(row_max + i * kWidth), largest));
      save(ScoreStage::biased, row + i, columns, line);
      if (p_.scores.data && p_.score_stage == ScoreStage::probabilities)
        save(ScoreStage::probabilities, row + i, columns, line);
      if (p_.weights.data) save_to(p_.weights, row + i, columns, line, 1);
    }
  }

  /// finish() if only positions and lengths change scores: saves 2% of a window of 256 keys at head_dim 64 (Zen
  /// 5).
  void hide(std::int64_t row, std::int64_t rows, Columns columns, Scalar* scores, Scalar* row_max) const {
    for (std::int64_t i = 0; i < rows; ++i) {
      const Vec largest = apply_range(scores + i * kBlock, columns, visibility_.visible(row + i));
      store(row_max + i * kWidth, max(load(row_max + i * kWidth), largest));
    }
  }

  void modify(std::int64_t row, std::int64_t rows, Columns columns, Scalar* scores) const {
    p_.score_modifier(p_.score_context, tile_of(row, rows, columns, scores));
    for (std::int64_t i = 0; i < rows; ++i) apply_canonical_nan(scores + i * kBlock, columns);
  }

  void save(ScoreStage stage, std::int64_t row, Columns columns, const Scalar* line) const {
    if (!p_.scores.data || p_.score_stage != stage) return;
    save_to(p_.scores, row, columns, line, stage == ScoreStage::probabilities ? Scalar{1} : unit_.natural);
  }
  void save_to(const StridedHeads<void>& matrix, std::int64_t row, Columns columns, const Scalar* line,
               Scalar factor) const {
    const std::int64_t end = std::min<std::int64_t>(columns.end, all_keys().end - columns.first_key);
    Scalar* const to = p_.row_of<Scalar>(matrix, batch_, head_, row) + columns.first_key;
    for (std::int64_t j = columns.begin; j < end; ++j) to[j] = factor * line[j];
  }

  /// Turns logits into weights, in place.
  void write_weights(Scalar* weights, std::int64_t row, Scalar m, Scalar scale, const Dropout* dropout) const {
    const Vec maximum = broadcast(m), factor = broadcast(scale), hidden = broadcast(-kInfinity);
    constexpr int kColumns = 256;  // a multiple of what dropout draws at a time
    alignas(64) Scalar block[kColumns];
    for (std::int64_t first_key = 0; first_key < p_.seqlen_k; first_key += kColumns) {
      const int n = static_cast<int>(std::min<std::int64_t>(kColumns, p_.seqlen_k - first_key));
      for (int j = 0; j < n; j += kWidth) {
        const Vec s = load_first(weights + first_key + j, n - j);
        const Vec w = mul(exp2(mul(sub(s, maximum), broadcast(unit_.exp_factor))), factor);
        store(block + j, select(equal(s, hidden), zero(), w));
      }
      if (dropout) dropout->apply(block, 0, n, p_.dropout_head(batch_, head_), p_.dropout_row(row), first_key);
      std::copy_n(block, n, weights + first_key);
    }
  }

  const AttentionParams& p_;
  const Visibility& visibility_;
  std::int64_t batch_, head_;
  BlockMask block_mask_;
  ScoreUnit unit_;
  bool touches_all_, applies_scale_, finishes_all_;
  std::int64_t keys_;
};
using ScoreFinisher = ScoreFinisherOf<kBlockK>;

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
