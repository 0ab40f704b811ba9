// Collects the kernels of one instruction set into its KernelSet.
#pragma once

#include "cpu/forward.h"
#include "cpu/gemm.h"
#include "cpu/limits.h"
#include "cpu/small.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

inline ForwardPlan plan_forward(const AttentionParams& p) {
  return {.block_q = kBlockQ,
          .block_k = kBlockK,
          .packed_block_floats = static_cast<std::size_t>(packed_key_floats(p.head_dim)),
          .scratch_floats = ForwardScratch::floats(p)};
}

inline void pack_keys(const AttentionParams& p, std::int64_t batch, std::int64_t kv_head, std::int64_t block,
                      float* packed) {
  const std::int64_t first_key = block * kBlockK;
  pack_key_block(p.k.row(batch, kv_head, first_key), p.k.row_stride,
                 std::min<std::int64_t>(kBlockK, p.seqlen_k - first_key), p.head_dim, packed);
}

constexpr KernelSet kernel_table() {
  return {.isa = kIsa,
          .plan_forward = plan_forward,
          .pack_keys = pack_keys,
          .forward = forward,
          .is_small = is_small,
          .forward_small = forward_small,
          .linear = linear,
          .linear_block_columns = kPanelColumns,
          .is_small_linear = is_small_linear,
          .linear_small = linear_small,
          .multiply_add_chains = multiply_add_chains,
          .chain_flops = kChainFlops,
          .read_all = read_all};
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
