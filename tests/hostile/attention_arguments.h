// The arguments of attention and of calls like it, right or wrong.
#pragma once

#include <cstdint>

#include "hostile/wrong_arguments.h"
#include "saccade/attention.h"
#include "saccade/attention_options.h"

namespace saccade::test {

/// Sizes of a problem: two sequences, six rows, nine keys, four query heads that share two heads of keys.
inline const Shape kQ{2, 4, 6, 16}, kK{2, 2, 9, 16}, kV{2, 2, 9, 8}, kO{2, 4, 6, 8}, kLse{2, 4, 6},
    kWeights{2, 4, 6, 9};

/// A score modifier that changes nothing.
inline void keep_scores(void*, const ScoreTile&) {}
inline BlockEffect keep_block(void*, const ScoreBlock&) { return BlockEffect::full; }

/// Sets options that contradict each other or the problem.
inline void contradict(Arguments& a, AttentionOptions& options) {
  static const std::int64_t kOffsets[] = {1, 2, 3};
  static const std::int32_t kPages[] = {0, 1, 2, 3};
  static const float kScales[] = {1.0F};
  for (const AttentionOption& option : kAttentionOptions) a.name(option.name);
  switch (a.below(8)) {
    case 0:
      options.query_offset = 1;
      options.query_offsets = TensorView(kOffsets, {2});
      break;
    case 1:
      options.cu_seqlens_q = TensorView(kOffsets, {3});
      break;
    case 2:
      options.cu_seqlens_q = options.cu_seqlens_k = TensorView(kOffsets, {3});
      break;
    case 3:
      options.block_table = TensorView(kPages, {2, 2});
      break;
    case 4:
      options.score_modifier = nullptr;
      options.score_block_effect = &keep_block;
      break;
    case 5:
      options.k_scale = TensorView(kScales, {1});
      break;
    case 6:
      options.origin.key = 4096;
      options.block_table = TensorView(kPages, {2, 2});
      break;
    default:
      options.k_rotated = true;
      options.v_multipliers = TensorView(kOffsets, {3});
  }
}

/// Options of scores and visibility for a problem of these sizes, each given or not.
inline void draw_options(Arguments& a, AttentionOptions& options) {
  const auto is_given = [&] { return a.below(6) == 0; };
  if (is_given()) options.scale = a.real("scale", 0.5);
  if (is_given()) options.softcap = a.real("softcap", 5.0);
  if (is_given()) options.causal = a.choice("causal", {Causal::top_left, Causal::none});
  if (is_given())
    options.query_offset = a.number("query_offset", 3);
  else if (is_given())
    options.query_offsets = a.view_of("query_offsets", Tensor::of<std::int64_t>({3, -1}));
  if (is_given()) options.window_left = a.number("window_left", 3);
  if (is_given()) options.window_right = a.number("window_right", 2);
  if (is_given()) options.mask = a.tensor("mask", a.one_of<Shape>({{9}, {6, 9}, {2, 1, 6, 9}}));
  if (is_given()) {
    options.block_mask_q = a.number("block_mask_q", 3);
    options.block_mask_k = a.number("block_mask_k", 4);
    options.block_mask = a.view_of("block_mask", Tensor(DType::boolean, {2, 3}));
  }
  if (is_given()) options.kv_lengths = a.view_of("kv_lengths", Tensor::of<std::int64_t>({9, 4}));
  if (is_given()) options.kv_starts = a.view_of("kv_starts", Tensor::of<std::int32_t>({0, 2}));
  if (is_given()) options.alibi_slopes = a.tensor("alibi_slopes", {4});
  if (is_given()) options.sinks = a.tensor("sinks", {4});
  if (is_given()) options.dropout_p = a.real("dropout_p", 0.1);
  if (is_given()) options.score_modifier = &keep_scores;
  if (is_given()) {
    options.origin.row = a.number("origin", 0);
    options.origin.head = a.number("origin", 0);
    options.origin.batch = a.number("origin", 0);
    options.origin.num_heads = a.number("origin", 0);
    options.origin.key = a.number("origin", 0);
  }
  if (is_given()) options.num_threads = a.small_number("num_threads", 2);
  if (a.below(4) == 0 && a.is_wrong("options")) contradict(a, options);
}

/// What attention() reports on the way, if asked.
inline void draw_reports(Arguments& a, AttentionOptions& options) {
  if (a.below(4) == 0) options.lse = a.result("lse", kLse);
  if (a.below(6) == 0) options.weights = a.result("weights", kWeights);
  if (a.below(6) == 0) {
    options.scores = a.result("scores", kWeights);
    options.score_stage = a.choice("score_stage", {ScoreStage::raw, ScoreStage::softcapped, ScoreStage::biased});
  }
}

}  // namespace saccade::test
