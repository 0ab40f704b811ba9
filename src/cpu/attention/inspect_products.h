// The scores of inspection (inspect.h) by multiply-adds or by products of bf16 pairs.
#pragma once

#include "cpu/attention/forward.h"
#include "cpu/attention/inspect.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

class ProductScores {
 public:
  class Scratch : public ScratchSlices {
   public:
    Scratch(const AttentionParams& p, std::int64_t tiles, void* memory) : ScratchSlices(memory) {
      query_size = packed_query_size(steps_of(p.head_dim));
      queries = take<Scalar>(tiles * query_size);
      packed_block = take<Scalar>(packed_block_size(p));
      mask = take<Scalar>(kTileRows * kBlockK);
    }

    std::int64_t query_size;
    Scalar* queries;       // [tiles][query_size]
    Scalar* packed_block;  // where the caller has packed none
    Scalar* mask;          // [kTileRows][kBlockK]
  };

  ProductScores(const AttentionParams& p, const QueryRows& work, const PackedKeys& packed,
                const Visibility& visibility, const Scratch& scratch)
      : p_(p),
        batch_(work.batch),
        head_(work.head),
        kv_head_(work.head / (p.num_heads / p.num_kv_heads)),
        packed_(packed),
        finisher_(p, visibility, work.batch, work.head),
        scratch_(scratch) {}

  void pack_queries(int tile, std::int64_t row, int rows) {
    with_input(p_.q.dtype, [&]<class T>(T) {
      cpu::SACCADE_ISA_NAMESPACE::pack_queries(p_.row_of<T>(p_.q, batch_, head_, row), p_.q.row_stride, rows,
                                               p_.head_dim, score_unit(p_).query_factor, queries(tile));
    });
  }

  /// Computes the scores of a step's keys, as far as its rows see them and `range` allows reading them. Returns a
  /// bit for each subtile with scores; raises row_max [kTileRows][kWidth] to them, to all of them if
  /// `with_maxima`.
  unsigned compute(const InspectStep& step, KeyRange range, Scalar* scores, Scalar* row_max, bool with_maxima) {
    poll_progress();
    const Subtiles subtiles = finisher_.plan(step.row, step.rows, step.first_key, scratch_.mask);
    if (subtiles.count == 0) return 0;
    score_tiles_of_rows(step.rows,
                        {.queries = queries(step.tile),
                         .keys = block_at(step.first_key, range),
                         .steps = steps_of(p_.head_dim),
                         .subtiles = subtiles.index.data(),
                         .partial = subtiles.partial,
                         .scores = scores,
                         .row_max = with_maxima ? row_max : nullptr},
                        0, subtiles.count * kTilesOfASubtile);
    finisher_.finish(step.row, step.rows, step.first_key, subtiles, scratch_.mask, scores, row_max);
    return subtiles.set();
  }

 private:
  Scalar* queries(int tile) const { return scratch_.queries + tile * scratch_.query_size; }

  const Scalar* block_at(std::int64_t first_key, KeyRange range) {
    if (packed_.blocks)
      return static_cast<const Scalar*>(packed_.blocks) +
             (first_key / kBlockK - packed_.first_block) * packed_block_size(p_);
    if (first_key != packed_key_) pack_block(p_, batch_, kv_head_, first_key, range, scratch_.packed_block);
    packed_key_ = first_key;
    return scratch_.packed_block;
  }

  const AttentionParams& p_;
  std::int64_t batch_, head_, kv_head_;
  PackedKeys packed_;
  ScoreFinisher finisher_;
  const Scratch& scratch_;
  std::int64_t packed_key_ = -1;  // the first key of scratch_.packed_block
};

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
