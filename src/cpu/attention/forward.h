// Attention of one block of query rows: FlashAttention-2's order (arXiv:2307.08691) on two nested levels of tiles.
//
//   for each key block that a row of the query block can see        (K packed transposed, V in place or packed)
//     for each tile of kTileRows query rows
//       which subtiles of 32 keys does some row see?                plan
//       S = Q K^T                      score_tiles, 32 keys at a time, with the exponentials of the previous tile
//       softcap, biases, masks         finish_scores, only where a score needs them
//       m, alpha                       RowState::raise
//       P = exp(S - m), l += P         finish_subtile, or inside the next score_tiles
//       O = alpha O + P V              value_product
//   o = O / l,  lse = m + ln l
//
// With states of rows (row_states.h), O, m and l come from an earlier call and are kept for a later one.
#pragma once

#include "cpu/attention/output.h"
#include "cpu/attention/row_states.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

// ---- Packed blocks -------------------------------------------------------------------------------------------

/// Whether values are read in place: where they need no conversion and are not paged.
inline bool values_in_place(const AttentionParams& p) {
  return is_in_place({.dtype = p.v.dtype, .pages = p.block_table});
}

/// Whether packed keys or values have scales of their own: as pairs of bf16, quantized numbers are exact, and
/// their products with scales are not.
inline bool packs_scales(const AttentionParams& p) {
  return kPairs && !kAmx && (is_quantized(p.k.dtype) || is_quantized(p.v.dtype));
}

/// Size of one packed key block, in numbers: its keys, followed by its values unless these are read in place, and
/// by the scales of both.
inline std::int64_t packed_block_size(const AttentionParams& p) {
  const std::int64_t values = values_in_place(p) ? 0 : packed_value_size(p.head_dim_v);
  return packed_key_size(p.head_dim) + values + (packs_scales(p) ? 2 * kBlockK : 0);
}

/// The scales of a packed block, [kBlockK] each; nullptr: none.
inline const Scalar* packed_key_scales(const AttentionParams& p, const Scalar* block) {
  return block && packs_scales(p) ? block + packed_block_size(p) - 2 * kBlockK : nullptr;
}
inline const Scalar* packed_value_scales(const AttentionParams& p, const Scalar* block) {
  return block && packs_scales(p) ? block + packed_block_size(p) - kBlockK : nullptr;
}

/// Calls f(rows) with the rows of a source as they are packed.
template <class F>
void with_packed_elements(const AttentionParams& p, const KvSource& source, const F& f) {
  if constexpr (kPairs && !kAmx)
    if (packs_scales(p) && is_quantized(source.dtype)) return with_stored_elements(source, f);
  with_elements(source, f);
}

/// The scales of the block at `first_key`; 1 where there is none.
inline void pack_scales(const KvSource& source, std::int64_t first_key, KeyRange readable, Scalar* scales) {
  std::fill_n(scales, kBlockK, Scalar{1});
  const std::int64_t end = std::min<std::int64_t>(readable.end, first_key + kBlockK);
  for (std::int64_t key = std::max(readable.begin, first_key); key < end; ++key)
    scales[key - first_key] = scale_of(source, key);
}

/// Packs the block at `first_key`. Reads only keys and values in `readable`; those next to it become zeros.
inline void pack_block(const AttentionParams& p, std::int64_t batch, std::int64_t kv_head, std::int64_t first_key,
                       KeyRange readable, Scalar* packed) {
  const KvSource keys = p.key_source(batch, kv_head), values = p.value_source(batch, kv_head);
  if (packs_scales(p)) {
    Scalar* const scales = packed + packed_block_size(p) - 2 * kBlockK;
    pack_scales(keys, first_key, readable, scales);
    pack_scales(values, first_key, readable, scales + kBlockK);
  }
  with_packed_elements(p, keys,
                       [&](const auto& k) { pack_key_block(k, first_key, readable, p.head_dim, packed); });
  if (values_in_place(p)) return;
  with_packed_elements(p, values, [&](const auto& v) {
    pack_values(v, first_key, readable, p.head_dim_v, packed + packed_key_size(p.head_dim));
  });
}

// ---- One block of query rows ---------------------------------------------------------------------------------

/// The work of a tile of query rows on one key block.
struct TileStep {
  int tile = 0;
  std::int64_t first_key = 0;          // of the block
  Subtiles subtiles;                   // computed
  int value_begin = 0, value_end = 0;  // columns that a row of the tile can see
  const Scalar* block = nullptr;       // packed
};

/// The memory of one thread's work on a query block of `tiles` tiles.
class ForwardScratch {
 public:
  static std::int64_t size(const AttentionParams& p, std::int64_t tiles) {
    return tiles * (packed_query_size(steps_of(p.head_dim)) + kTileRows * output_stride(p) +
                    static_cast<std::int64_t>(sizeof(RowState) / sizeof(Scalar))) +
           kTileRows * output_stride(p) + 4 * kTileRows * kBlockK +
           (values_in_place(p) ? 1 : 2) * packed_block_size(p);
  }

  ForwardScratch(const AttentionParams& p, std::int64_t tiles, Scalar* memory)
      : query_size_(packed_query_size(steps_of(p.head_dim))), o_stride_(output_stride(p)) {
    const auto take = [&memory](std::int64_t n) { return std::exchange(memory, memory + n); };
    scores_[0] = take(kTileRows * kBlockK);
    scores_[1] = take(kTileRows * kBlockK);
    probabilities = take(kTileRows * kBlockK);
    mask = take(kTileRows * kBlockK);
    sums = take(kTileRows * o_stride_);
    queries_ = take(tiles * query_size_);
    o_ = take(tiles * kTileRows * o_stride_);
    states_ =
        reinterpret_cast<RowState*>(take(tiles * static_cast<std::int64_t>(sizeof(RowState) / sizeof(Scalar))));
    packed_blocks_[0] = memory;
    packed_blocks_[1] = memory + (values_in_place(p) ? 0 : packed_block_size(p));
  }

  /// Memory for a block that the caller has not packed. The previous block is kept: its values may still be
  /// needed.
  Scalar* next_packed_block() {
    std::swap(packed_blocks_[0], packed_blocks_[1]);
    return packed_blocks_[0];
  }

  Scalar* queries(int tile) { return queries_ + tile * query_size_; }
  Scalar* o(int tile) { return o_ + tile * kTileRows * o_stride_; }
  std::int64_t o_stride() const { return o_stride_; }
  Scalar* scores(int parity) { return scores_[parity]; }
  RowState& state(int tile) { return states_[tile]; }

  Scalar* probabilities;  // [kTileRows][kBlockK]
  Scalar* mask;           // [kTileRows][kBlockK]
  Scalar* sums;           // of a block with gaps, in the order of o

 private:
  static std::int64_t output_stride(const AttentionParams& p) { return round_up(p.head_dim_v, kTileColumns); }

  std::int64_t query_size_, o_stride_;
  Scalar* queries_;
  Scalar* o_;
  Scalar* scores_[2];
  Scalar* packed_blocks_[2];
  RowState* states_;
};

/// `masked_safe` computes a single row and keeps the values of hidden keys out of every product.
class QueryBlock {
 public:
  QueryBlock(const AttentionParams& params, const QueryRows& work, const PackedKeys& packed, bool masked_safe,
             Scalar* memory, const RowStates& states = {})
      : p_(params),
        batch_(work.batch),
        head_(work.head),
        kv_head_(work.head / (params.num_heads / params.num_kv_heads)),
        row_(work.row),
        rows_(static_cast<int>(std::min(work.rows, params.rows(work.batch) - work.row))),
        tiles_((rows_ + kTileRows - 1) / kTileRows),
        packed_(packed),
        values_(params.value_source(work.batch, kv_head_)),
        masked_safe_(masked_safe),
        visibility_(params, work.batch),
        finisher_(params, visibility_, work.batch, work.head),
        dropout_(params),
        unit_(score_unit(params)),
        scratch_(params, tiles_, memory),
        states_(states) {}

  void run() {
    begin();
    KeyRange range = visibility_.visible(row_, rows_);
    if (p_.saves_hidden()) range = finisher_.all_keys();
    for (std::int64_t first_key = range.begin / kBlockK * kBlockK; first_key < range.end; first_key += kBlockK) {
      const Scalar* block = nullptr;
      for (int tile = 0; tile < tiles_; ++tile) {
        poll_progress();
        TileStep step = plan(tile, first_key);
        if (step.subtiles.count == 0) continue;
        if (!block) block = packed_block(first_key, range);
        step.block = block;
        advance(step);
      }
    }
    if (pending_) finish_pending(TileStep{}, nullptr);
    states_ ? store_states() : end();
  }

  /// Writes the results of rows that have seen all keys.
  void finish() {
    for (int tile = 0; tile < tiles_; ++tile) load_state(tile);
    end();
  }

  /// Whether any row sees a key by its position.
  bool sees_keys() const {
    const KeyRange range = visibility_.visible(row_, rows_);
    return range.begin < range.end;
  }

  /// Rows whose output was not finite: a weight of 0 may have met a hidden NaN. States keep these rows unchanged.
  bool is_finite(int i) const { return !(not_finite_[i / kTileRows] >> (i % kTileRows) & 1u); }
  int rows() const { return rows_; }

 private:
  int tile_rows(int tile) const { return std::min(kTileRows, rows_ - tile * kTileRows); }
  std::int64_t tile_row(int tile) const { return row_ + tile * kTileRows; }
  std::int64_t keys() const { return p_.keys(batch_); }

  void begin() {
    for (int tile = 0; tile < tiles_; ++tile) {
      with_input(p_.q.dtype, [&]<class T>(T) {
        pack_queries(p_.row_of<T>(p_.q, batch_, head_, tile_row(tile)), p_.q.row_stride, tile_rows(tile),
                     p_.head_dim, unit_.query_factor, scratch_.queries(tile));
      });
      load_state(tile);
    }
    for (int i = 0; i < rows_ && p_.saves_scores(); ++i) {
      poll_progress();
      finisher_.clear_saved(row_ + i, 0, p_.seqlen_k);
    }
    if (masked_safe_ && !has_output_[0]) clear_output(0);
  }

  void load_state(int tile) {
    scratch_.state(tile).reset();
    has_output_[tile] = states_ && states_.has(tile_row(tile));
    if (!has_output_[tile]) return;
    if (tile_rows(tile) < kTileRows) clear_output(tile);
    for (int i = 0; i < tile_rows(tile); ++i)
      states_.load(tile_row(tile) + i, i, scratch_.state(tile), scratch_.o(tile));
  }

  void store_states() {
    for (int tile = 0; tile < tiles_; ++tile) {
      not_finite_[tile] = 0;
      for (int i = 0; i < tile_rows(tile) && has_output_[tile]; ++i) {
        if (masked_safe_ || states_.is_finite(i, scratch_.o(tile)))
          states_.store(tile_row(tile) + i, i, scratch_.state(tile), scratch_.o(tile));
        else
          not_finite_[tile] |= 1U << i;
      }
    }
  }

  void clear_output(int tile) {
    std::fill_n(scratch_.o(tile), kTileRows * scratch_.o_stride(), Scalar{0});
    has_output_[tile] = true;
  }

  /// `range` may begin or end within the block.
  const Scalar* packed_block(std::int64_t first_key, KeyRange range) {
    if (packed_.blocks)
      return static_cast<const Scalar*>(packed_.blocks) +
             (first_key / kBlockK - packed_.first_block) * packed_block_size(p_);
    Scalar* const block = scratch_.next_packed_block();
    pack_block(p_, batch_, kv_head_, first_key, range, block);
    return block;
  }

  TileStep plan(int tile, std::int64_t first_key) {
    TileStep step;
    step.tile = tile;
    step.first_key = first_key;
    const std::int64_t row = tile_row(tile), rows = tile_rows(tile);
    const KeyRange range = visibility_.visible(row, rows);
    const std::int64_t length = std::min<std::int64_t>(kBlockK, keys() - first_key);
    step.value_begin = static_cast<int>(std::clamp<std::int64_t>(range.begin - first_key, 0, length));
    step.value_end = static_cast<int>(std::clamp<std::int64_t>(range.end - first_key, 0, length));
    step.subtiles = finisher_.plan(row, rows, first_key, scratch_.mask);
    return step;
  }

  /// Computes the scores of `step` while the exponentials of the previous step run, then finishes the previous
  /// step.
  void advance(const TileStep& step) {
    alignas(64) Scalar row_max[kTileRows * kWidth];
    for (int i = 0; i < kTileRows * kWidth; i += kWidth) store(row_max + i, broadcast(-kInfinity));
    finish_pending(step, row_max);
    finisher_.finish(tile_row(step.tile), tile_rows(step.tile), step.first_key, step.subtiles, scratch_.mask,
                     scratch_.scores(parity_), row_max);
    scratch_.state(step.tile).raise(row_max, unit_.exp_factor, alpha_);
    pending_ = true;
    pending_step_ = step;
  }

  /// The score tiles of `next` (if any), paired with the exponential tiles of the pending step (if any); then the
  /// pending step's product with V.
  void finish_pending(const TileStep& next, Scalar* row_max) {
    parity_ ^= 1;
    const TileStep& last = pending_step_;
    RowState& state = scratch_.state(last.tile);
    const ScoreWork work{.queries = scratch_.queries(next.tile),
                         .keys = next.block,
                         .steps = steps_of(p_.head_dim),
                         .subtiles = next.subtiles.index.data(),
                         .partial = next.subtiles.partial,
                         .scores = scratch_.scores(parity_),
                         .row_max = row_max,
                         .scales = packed_key_scales(p_, next.block),
                         .ahead = prefetch_mask(next)};
    with_scaling(unit_.exp_factor, [&](auto scaled) {
      const PendingExp<decltype(scaled)::value> exp{.scores = scratch_.scores(parity_ ^ 1),
                                                    .probabilities = scratch_.probabilities,
                                                    .maximum = state.m,
                                                    .row_sum = state.l,
                                                    .factor = &unit_.exp_factor,
                                                    .scales = packed_value_scales(p_, last.block)};
      score_tiles_beside(tile_rows(next.tile), work, next.subtiles.count * kTilesOfASubtile, exp,
                         last.subtiles.index.data(), pending_ ? last.subtiles.count * kTilesOfASubtile : 0);
    });
    if (pending_) add_values(last);
  }

  /// The part of the mask that the tile after `step` reads, to prefetch; empty unless the mask has all of it.
  /// Without the prefetch, a float mask of 2048 x 2048 added 14% to a forward (8 heads, head_dim 64, Zen 4).
  PrefetchRows prefetch_mask(const TileStep& step) const {
    const MaskParams& mask = p_.mask;
    const bool is_last = step.tile + 1 == tiles_;
    const std::int64_t row = tile_row(is_last ? 0 : step.tile + 1), key = step.first_key + (is_last ? kBlockK : 0);
    if (mask.type == MaskType::none || mask.column_stride != 1 || row + kTileRows > p_.rows(batch_) ||
        key + kBlockK > keys())
      return {};
    const std::int64_t size = mask.type == MaskType::boolean ? 1 : mask.type == MaskType::f32 ? 4 : 8;
    return {.data = static_cast<const std::byte*>(mask.data) + (mask.row(batch_, head_, row) + key) * size,
            .stride = mask.row_stride * size,
            .bytes = kBlockK * size};
  }

  /// Whether subtiles are skipped or not, the sums have the same two chains: over the keys before kValueChain, and
  /// over those after it.
  void add_values(const TileStep& step) {
    const AccumulateMode how =
        std::exchange(has_output_[step.tile], true) ? AccumulateMode::scale : AccumulateMode::replace;
    Scalar* const o = scratch_.o(step.tile);
    if (!masked_safe_ && step.subtiles.is_one_run()) {
      const int first = step.subtiles.index[0] * kKeySubtile;
      const int begin = std::max(step.value_begin, first);
      const bool is_late = how == AccumulateMode::scale && begin >= kValueChain;
      return add_values(step, begin, first + step.subtiles.count * kKeySubtile,
                        is_late ? AccumulateMode::scale_first : how, o);
    }
    const std::int64_t size = kTileRows * scratch_.o_stride();
    for (int chain = 0; chain < kBlockK; chain += kValueChain) {
      std::fill_n(scratch_.sums, size, Scalar{0});
      step.subtiles.for_each_run([&](int, int begin, int end) {
        add_values(step, std::max({begin, chain, step.value_begin}), std::min(end, chain + kValueChain),
                   AccumulateMode::continue_chains, scratch_.sums);
      });
      accumulate_tile(scratch_.sums, size, chain == 0 ? how : AccumulateMode::add, alpha_, o);
    }
  }

  /// Columns [begin, end) of the step's block, as far as a row can see them.
  void add_values(const TileStep& step, int begin, int end, AccumulateMode how, Scalar* o) {
    end = std::max(begin, std::min(end, step.value_end));
    if (p_.dropout_p > 0.0 && begin < end) drop(step, begin, end);
    const Scalar* p = scratch_.probabilities + begin / kStepNumbers;
    ValueRows rows;
    if (is_in_place(values_)) {
      rows.data = row_in_place(values_, step.first_key + begin);
      rows.stride = values_.row_stride;
    } else {
      rows.stride = packed_value_columns(p_.head_dim_v);
      rows.data = step.block + packed_key_size(p_.head_dim) + begin / kStepNumbers * rows.stride;
    }
    rows.steps = begin < end ? steps_of(end) - begin / kStepNumbers : 0;
    rows.first_chain = kValueChain / kStepNumbers - begin / kStepNumbers;
    rows.chain = kValueChain / kStepNumbers;
    if (masked_safe_)
      value_product_of_visible(scratch_.scores(parity_ ^ 1) + begin / kStepNumbers * kStepNumbers, p, rows,
                               p_.head_dim_v, o);
    else
      with_rows(tile_rows(step.tile), [&](auto constant) {
        value_product<FactorRows, decltype(constant)::value>(p, rows, p_.head_dim_v, how, alpha_, o);
      });
  }

  void drop(const TileStep& step, int begin, int end) {
    for (int i = 0; i < tile_rows(step.tile); ++i)
      dropout_.apply(reinterpret_cast<Weight*>(scratch_.probabilities + i * kBlockK), begin, end,
                     p_.dropout_head(batch_, head_), p_.dropout_row(tile_row(step.tile) + i), step.first_key);
  }

  void end() {
    for (int tile = 0; tile < tiles_; ++tile) {
      if (!has_output_[tile]) clear_output(tile);
      const RowState& state = scratch_.state(tile);
      alignas(64) Scalar sums[kTileRowsPadded];
      state.sums_of_rows(sums);
      not_finite_[tile] = end_rows(p_, finisher_, dropout_,
                                   {.batch = batch_,
                                    .head = head_,
                                    .row = tile_row(tile),
                                    .count = tile_rows(tile),
                                    .m = state.m,
                                    .l = sums,
                                    .natural = unit_.natural,
                                    .o = scratch_.o(tile),
                                    .o_stride = kTileRows * kTileColumns});
    }
  }

  const AttentionParams& p_;
  std::int64_t batch_, head_, kv_head_, row_;
  int rows_, tiles_;
  PackedKeys packed_;
  KvSource values_;
  bool masked_safe_;
  Visibility visibility_;
  ScoreFinisher finisher_;
  Dropout dropout_;
  ScoreUnit unit_;
  ForwardScratch scratch_;
  RowStates states_;

  int parity_ = 0;
  bool pending_ = false;
  TileStep pending_step_;
  alignas(64) Scalar alpha_[kTileRowsPadded];  // of the pending step
  bool has_output_[kMaxTiles];
  unsigned not_finite_[kMaxTiles];
};

inline void forward(const AttentionParams& params, const QueryRows& work, const PackedKeys& packed,
                    void* scratch) {
  Scalar* const memory = static_cast<Scalar*>(scratch);
  QueryBlock block(params, work, packed, false, memory);
  block.run();
  for (int i = 0; i < block.rows(); ++i)
    if (!block.is_finite(i))
      QueryBlock(params, {work.batch, work.head, work.row + i, 1}, packed, true, memory).run();
}

inline void resume_forward(const AttentionParams& params, const QueryRows& work, const PackedKeys& packed,
                           const HeadState& head, void* scratch) {
  Scalar* const memory = static_cast<Scalar*>(scratch);
  const RowStates states(params, head);
  QueryBlock block(params, work, packed, false, memory, states);
  if (!block.sees_keys()) return;
  block.run();
  for (int i = 0; i < block.rows(); ++i)
    if (!block.is_finite(i))
      QueryBlock(params, {work.batch, work.head, work.row + i, 1}, packed, true, memory, states).run();
}

inline void finish_forward(const AttentionParams& params, const QueryRows& work, const HeadState& head,
                           void* scratch) {
  QueryBlock(params, work, {}, false, static_cast<Scalar*>(scratch), RowStates(params, head)).finish();
}

inline void put_row(const AttentionParams& params, std::int64_t row, const PartialRow& part,
                    const HeadState& head) {
  RowStates(params, head).put(row, part, params.head_dim_v, score_unit(params).natural);
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
