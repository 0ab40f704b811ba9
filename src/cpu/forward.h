// Attention of one block of query rows: FlashAttention-2's order (arXiv:2307.08691) on two nested levels of tiles.
//
//   for each key block that a row of the query block can see        (K packed transposed, V in place)
//     for each tile of kTileRows query rows
//       S = Q K^T                      score_tile, 32 keys at a time, with the exponentials of the tile before
//       softcap, biases, masks         finish_scores, only where a score needs them
//       m, alpha                       RowState::raise
//       P = exp2(S - m), l += P        exp_tile, or inside the next score_tile
//       O = alpha O + P V              value_product
//   o = O / l,  lse = m ln2 + ln l
#pragma once

#include "cpu/dropout.h"
#include "cpu/mask.h"
#include "cpu/softmax.h"
#include "cpu/tile.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// One tile of query rows against a range of one key block.
struct TileStep {
  int tile = 0;
  std::int64_t first_key = 0;          // of the block
  int begin = 0, end = 0;              // columns of the block, multiples of kTileColumns
  int value_begin = 0, value_end = 0;  // columns that some row of the tile can see
  const float* keys = nullptr;         // the packed block
};

/// The memory of one thread's work on a query block.
class ForwardScratch {
 public:
  static std::size_t floats(const AttentionParams& p) {
    return static_cast<std::size_t>(kTiles * packed_query_floats(p.head_dim) + kBlockQ * output_stride(p) +
                                    3 * kTileRows * kBlockK + kBlockK + packed_key_floats(p.head_dim)) +
           kTiles * sizeof(RowState) / sizeof(float);
  }

  ForwardScratch(const AttentionParams& p, float* memory)
      : query_floats_(packed_query_floats(p.head_dim)), o_stride_(output_stride(p)) {
    const auto take = [&memory](std::int64_t n) { return std::exchange(memory, memory + n); };
    queries_ = take(kTiles * query_floats_);
    o_ = take(kBlockQ * o_stride_);
    scores_[0] = take(kTileRows * kBlockK);
    scores_[1] = take(kTileRows * kBlockK);
    probabilities = take(kTileRows * kBlockK);
    mask_row = take(kBlockK);
    packed_block = take(packed_key_floats(p.head_dim));
    states_ = reinterpret_cast<RowState*>(memory);
  }

  static constexpr int kTiles = kBlockQ / kTileRows;

  float* queries(int tile) { return queries_ + tile * query_floats_; }
  float* o(int tile) { return o_ + tile * kTileRows * o_stride_; }
  std::int64_t o_stride() const { return o_stride_; }
  float* scores(int parity) { return scores_[parity]; }
  RowState& state(int tile) { return states_[tile]; }

  float* probabilities;  // [kTileRows][kBlockK]
  float* mask_row;       // [kBlockK]
  float* packed_block;   // one key block, when the caller has none packed

 private:
  static std::int64_t output_stride(const AttentionParams& p) { return round_up(p.head_dim_v, 16); }

  std::int64_t query_floats_, o_stride_;
  float* queries_;
  float* o_;
  float* scores_[2];
  RowState* states_;
};

/// `kCareful` computes a single row and keeps the values of hidden keys out of every product.
template <bool kCareful>
class QueryBlock {
 public:
  QueryBlock(const AttentionParams& params, std::int64_t batch, std::int64_t head, std::int64_t row,
             const float* packed_keys, float* memory)
      : p_(params),
        batch_(batch),
        head_(head),
        kv_head_(head / (params.num_heads / params.num_kv_heads)),
        row_(row),
        rows_(static_cast<int>(std::min<std::int64_t>(kCareful ? 1 : kBlockQ, params.seqlen_q - row))),
        tiles_((rows_ + kTileRows - 1) / kTileRows),
        packed_keys_(packed_keys),
        visibility_(params, batch),
        touches_all_(changes_every_score(params) || params.weights.data != nullptr),
        dropout_(params),
        scratch_(params, memory) {}

  void run() {
    begin();
    const KeyRange first = visibility_.visible(row_), last = visibility_.visible(row_ + rows_ - 1);
    std::int64_t from = std::max<std::int64_t>(first.begin, 0), to = last.end;
    if (p_.weights.data) from = 0, to = p_.seqlen_k;  // every weight is written, the zeros too
    for (std::int64_t first_key = from / kBlockK * kBlockK; first_key < to; first_key += kBlockK) {
      const float* keys = packed_block(first_key);
      for (int tile = 0; tile < tiles_; ++tile) {
        TileStep step = plan(tile, first_key);
        step.keys = keys;
        if (step.begin < step.end) advance(step);
      }
    }
    if (pending_) finish_pending(TileStep{}, nullptr);
    end();
  }

 private:
  int tile_rows(int tile) const { return std::min(kTileRows, rows_ - tile * kTileRows); }
  std::int64_t tile_row(int tile) const { return row_ + tile * kTileRows; }

  void begin() {
    const float factor =
        p_.softcap != 0.0f ? p_.scale / p_.softcap : static_cast<float>(double{p_.scale} * 1.4426950408889634);
    for (int tile = 0; tile < tiles_; ++tile) {
      pack_queries(p_.q.row(batch_, head_, tile_row(tile)), p_.q.row_stride, tile_rows(tile), p_.head_dim, factor,
                   scratch_.queries(tile));
      scratch_.state(tile).reset();
    }
    std::fill_n(scratch_.o(0), tiles_ * kTileRows * scratch_.o_stride(), 0.0f);
  }

  const float* packed_block(std::int64_t first_key) {
    if (packed_keys_) return packed_keys_ + first_key / kBlockK * packed_key_floats(p_.head_dim);
    pack_key_block(p_.k.row(batch_, kv_head_, first_key), p_.k.row_stride,
                   std::min<std::int64_t>(kBlockK, p_.seqlen_k - first_key), p_.head_dim, scratch_.packed_block);
    return scratch_.packed_block;
  }

  TileStep plan(int tile, std::int64_t first_key) const {
    const KeyRange first = visibility_.visible(tile_row(tile));
    const KeyRange last = visibility_.visible(tile_row(tile) + tile_rows(tile) - 1);
    const std::int64_t length = std::min<std::int64_t>(kBlockK, p_.seqlen_k - first_key);
    TileStep step;
    step.tile = tile;
    step.first_key = first_key;
    step.value_begin = static_cast<int>(std::clamp<std::int64_t>(first.begin - first_key, 0, length));
    step.value_end = static_cast<int>(std::clamp<std::int64_t>(last.end - first_key, 0, length));
    step.begin = step.value_begin / kTileColumns * kTileColumns;
    step.end =
        step.value_begin < step.value_end ? static_cast<int>(round_up(step.value_end, kTileColumns)) : step.begin;
    if (p_.weights.data) {
      step.begin = 0;
      step.end = static_cast<int>(round_up(length, kTileColumns));
    }
    return step;
  }

  /// Computes the scores of `step` while the exponentials of the step before run, then finishes that one.
  void advance(const TileStep& step) {
    alignas(64) float row_max[kTileRows * kWidth];
    for (int i = 0; i < kTileRows * kWidth; i += kWidth) store(row_max + i, broadcast(-kInfinity));
    finish_pending(step, row_max);
    finish_scores_of(step, row_max);
    scratch_.state(step.tile).raise(row_max, alpha_);
    pending_ = true;
    pending_step_ = step;
  }

  /// The score tiles of `next` (if any), paired with the exponential tiles of the pending step (if any); then the
  /// pending step's product with V.
  void finish_pending(const TileStep& next, float* row_max) {
    parity_ ^= 1;
    const TileStep& last = pending_step_;
    RowState& state = scratch_.state(last.tile);
    const bool overlap = kCanOverlap && p_.head_dim >= kOverlapMinHeadDim;
    float* scores = scratch_.scores(parity_);
    const float* last_scores = scratch_.scores(parity_ ^ 1);
    const float* queries = scratch_.queries(next.tile);
    const auto pending_exp = [&](int column) {
      return PendingExp{last_scores + column, scratch_.probabilities + column, state.m, state.l};
    };
    int column = next.begin, exp_column = pending_ ? last.begin : last.end;
    if constexpr (kCanOverlap) {
      if (overlap)
        for (; column < next.end && exp_column < last.end; column += kTileColumns, exp_column += kTileColumns)
          score_tile<true>(queries, next.keys + column, p_.head_dim, scores + column, row_max,
                           pending_exp(exp_column));
    }
    for (; exp_column < last.end; exp_column += kTileColumns) exp_tile(pending_exp(exp_column));
    for (; column < next.end; column += kTileColumns)
      score_tile<false>(queries, next.keys + column, p_.head_dim, scores + column, row_max, PendingExp{});
    if (pending_) add_values(last, last_scores);
  }

  void finish_scores_of(const TileStep& step, float* row_max) {
    const std::int64_t row = tile_row(step.tile);
    const int rows = tile_rows(step.tile);
    const KeyRange first = visibility_.visible(row), last = visibility_.visible(row + rows - 1);
    const bool all_visible = last.begin <= step.first_key + step.begin && first.end >= step.first_key + step.end;
    if (all_visible && !touches_all_) return;
    float* scores = scratch_.scores(parity_);
    for (int i = 0; i < rows; ++i)
      store(row_max + i * kWidth, finish_scores(p_, visibility_, batch_, head_, row + i, step.first_key,
                                                step.begin, step.end, scores + i * kBlockK, scratch_.mask_row));
    if (p_.weights.data) save_scores(step, scores);
  }

  void add_values(const TileStep& step, const float* scores) {
    if (p_.dropout_p > 0.0)
      for (int i = 0; i < tile_rows(step.tile); ++i)
        dropout_.apply(scratch_.probabilities + i * kBlockK, step.value_begin, step.value_end, batch_head(),
                       static_cast<std::uint32_t>(tile_row(step.tile) + i), step.first_key);
    const int from = step.value_begin;
    const std::int64_t keys = step.value_end - from;
    if (keys <= 0) return;
    const float* v = p_.v.row(batch_, kv_head_, step.first_key + from);
    float* o = scratch_.o(step.tile);
    if constexpr (kCareful)
      value_product_of_visible(scores + from, scratch_.probabilities + from, v, p_.v.row_stride, keys,
                               p_.head_dim_v, alpha_[0], o);
    else
      value_product(scratch_.probabilities + from, v, p_.v.row_stride, keys, p_.head_dim_v, alpha_, o,
                    scratch_.o_stride());
  }

  std::uint32_t batch_head() const { return static_cast<std::uint32_t>(batch_ * p_.num_heads + head_); }

  /// Keeps the finished scores where the weights will stand, until m and l are final.
  void save_scores(const TileStep& step, const float* scores) {
    const std::size_t columns =
        static_cast<std::size_t>(std::min<std::int64_t>(step.end, p_.seqlen_k - step.first_key));
    for (int i = 0; i < tile_rows(step.tile); ++i)
      std::memcpy(p_.weights.row(batch_, head_, tile_row(step.tile) + i) + step.first_key, scores + i * kBlockK,
                  columns * sizeof(float));
  }

  void end() {
    for (int tile = 0; tile < tiles_; ++tile)
      for (int i = 0; i < tile_rows(tile); ++i) end_row(tile, i);
  }

  void end_row(int tile, int i) {
    const std::int64_t row = tile_row(tile) + i;
    const RowState& state = scratch_.state(tile);
    const RowResult result = finish_row(state.m[i], state.sum(i), p_.sinks ? p_.sinks[head_] : -kInfinity);
    if (p_.lse.data) p_.lse.head(batch_, head_)[row * p_.lse.row_stride] = result.lse;
    if (p_.weights.data) write_weights(row, state.m[i], result.scale);
    const float keep_scale = static_cast<float>(1.0 / (1.0 - p_.dropout_p));
    const bool finite = write_output(scratch_.o(tile) + i * scratch_.o_stride(), result.scale * keep_scale,
                                     p_.o.row(batch_, head_, row));
    if (!finite && !kCareful) not_finite_[tile] |= 1u << i;
  }

  bool write_output(const float* from, float scale, float* to) const {
    const Vec factor = broadcast(scale);
    Vec finite = zero();  // stays 0 unless something is NaN or infinite
    for (std::int64_t d = 0; d < p_.head_dim_v; d += kWidth) {
      const int n = static_cast<int>(std::min<std::int64_t>(kWidth, p_.head_dim_v - d));
      const Vec x = mul(factor, load(from + d));
      finite = fma(x, zero(), finite);
      __builtin_prefetch(to + d + 8 * p_.o.row_stride, 1);
      store_first(to + d, n, x);
    }
    return !any(is_nan(finite));
  }

  void write_weights(std::int64_t row, float m, float scale) {
    float* weights = p_.weights.row(batch_, head_, row);
    const float keep_scale = p_.weights_after_dropout ? static_cast<float>(1.0 / (1.0 - p_.dropout_p)) : 1.0f;
    const Vec maximum = broadcast(m), factor = broadcast(scale * keep_scale);
    alignas(64) float block[kBlockK];
    for (std::int64_t first_key = 0; first_key < p_.seqlen_k; first_key += kBlockK) {
      const int n = static_cast<int>(std::min<std::int64_t>(kBlockK, p_.seqlen_k - first_key));
      for (int j = 0; j < n; j += kWidth) {
        const Vec s = load_first(weights + first_key + j, n - j);
        const Vec w = mul(exp2(sub(s, maximum)), factor);
        store(block + j, select(equal(s, broadcast(-kInfinity)), zero(), w));
      }
      if (p_.weights_after_dropout && p_.dropout_p > 0.0)
        dropout_.apply(block, 0, n, batch_head(), static_cast<std::uint32_t>(row), first_key);
      std::memcpy(weights + first_key, block, static_cast<std::size_t>(n) * sizeof(float));
    }
  }

 public:
  /// Rows whose output was not finite: a weight of 0 may have met a hidden NaN.
  bool is_finite(int i) const { return !(not_finite_[i / kTileRows] >> (i % kTileRows) & 1u); }
  int rows() const { return rows_; }

 private:
  const AttentionParams& p_;
  std::int64_t batch_, head_, kv_head_, row_;
  int rows_, tiles_;
  const float* packed_keys_;
  Visibility visibility_;
  bool touches_all_;
  Dropout dropout_;
  ForwardScratch scratch_;

  int parity_ = 0;
  bool pending_ = false;
  TileStep pending_step_;
  alignas(64) float alpha_[kTileRowsPadded];  // of the pending step
  unsigned not_finite_[ForwardScratch::kTiles] = {};
};

inline void forward(const AttentionParams& params, std::int64_t batch, std::int64_t head, std::int64_t row,
                    const float* packed_keys, float* scratch) {
  QueryBlock<false> block(params, batch, head, row, packed_keys, scratch);
  block.run();
  for (int i = 0; i < block.rows(); ++i)
    if (!block.is_finite(i)) QueryBlock<true>(params, batch, head, row + i, packed_keys, scratch).run();
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
