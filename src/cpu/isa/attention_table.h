// Collects the attention kernels of one instruction set and arithmetic.
#pragma once

#include "cpu/attention/decode.h"
#include "cpu/attention/forward.h"
#include "cpu/attention/inspect_products.h"
#ifndef SACCADE_BF16_PRODUCT  // these do not multiply pairs
#include "cpu/attention/backward.h"
#include "cpu/attention/merge.h"
#endif

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

inline ForwardPlan plan_forward(const AttentionParams& p) {
  const auto bytes = [](std::int64_t numbers) { return static_cast<std::size_t>(numbers) * sizeof(Scalar); };
  return {.tile_q = kTileRows,
          .block_q = kBlockQ,
          .block_q_alone = kBlockQAlone,
          .block_k = kBlockK,
          .packed_block = bytes(packed_block_size(p)),
          .scratch = bytes(ForwardScratch::size(p, kBlockQ / kTileRows)),
          .scratch_alone = bytes(ForwardScratch::size(p, kBlockQAlone / kTileRows))};
}

inline void pack_block_of(const AttentionParams& p, std::int64_t batch, std::int64_t kv_head, std::int64_t block,
                          KeyRange readable, void* packed) {
  pack_block(p, batch, kv_head, block * kBlockK, readable, static_cast<Scalar*>(packed));
}

constexpr AttentionKernels attention_table() {
  AttentionKernels kernels{.forward = {.plan = plan_forward,
                                       .pack_block = pack_block_of,
                                       .attend = forward,
                                       .state_bytes = RowStates::bytes,
                                       .resume = resume_forward,
                                       .finish = finish_forward,
                                       .put = put_row},
                           .decode = kDecodeOf<DecodeHead>,
                           .inspect = {.plan = plan_inspect<plan_forward>,
                                       .pack_block = pack_block_of,
                                       .inspect = inspect<ProductScores>,
                                       .scratch = inspect_scratch<ProductScores>}};
#ifndef SACCADE_BF16_PRODUCT
  kernels.merge = {.scratch = merge_scratch, .rows = merge_rows};
  kernels.backward = {.plan = plan_backward,
                      .statistics = backward_statistics,
                      .begin = backward_begin,
                      .logits = backward_logits,
                      .mask = backward_mask,
                      .keys = backward_keys,
                      .rows = backward_rows,
                      .park = backward_park,
                      .end = backward_end,
                      .write = backward_write};
#endif
  return kernels;
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
