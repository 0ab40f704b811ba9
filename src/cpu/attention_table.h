// Collects the attention kernels of one instruction set and arithmetic.
#pragma once

#include "cpu/backward.h"
#include "cpu/decode.h"
#include "cpu/forward.h"
#include "cpu/inspect.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// Query rows of a unit of work that packs its keys for itself: more rows share what is packed. Seven blocks leave
/// some 2% of the time to packing where one would spend 13% on it (head_dim 64, Zen 4).
inline constexpr std::int64_t kBlockQAlone = 7 * kBlockQ;
static_assert(kBlockQAlone <= kMostTiles * kTileRows);

inline ForwardPlan plan_forward(const AttentionParams& p) {
  return with_arithmetic(p, [&](auto arithmetic) {
    using Arithmetic = decltype(arithmetic);
    const auto bytes = [](std::int64_t numbers) { return static_cast<std::size_t>(numbers) * sizeof(Scalar); };
    return ForwardPlan{.tile_q = kTileRows,
                       .block_q = kBlockQ,
                       .block_q_alone = kBlockQAlone,
                       .block_k = kBlockK,
                       .packed_block = bytes(packed_block_size<Arithmetic>(p)),
                       .scratch = bytes(ForwardScratch<Arithmetic>::size(p, kBlockQ / kTileRows)),
                       .scratch_alone = bytes(ForwardScratch<Arithmetic>::size(p, kBlockQAlone / kTileRows))};
  });
}

inline void pack_block_of(const AttentionParams& p, std::int64_t batch, std::int64_t kv_head, std::int64_t block,
                          KeyRange readable, void* packed) {
  with_arithmetic(p, [&](auto arithmetic) {
    pack_block<decltype(arithmetic)>(p, batch, kv_head, block * kBlockK, readable, static_cast<Scalar*>(packed));
  });
}

inline DecodePlan plan_decode(const AttentionParams& p) {
  return {
      .piece = kDecodePiece,
      .state = static_cast<std::size_t>(decode_state_size(p)) * sizeof(Scalar),
      .scratch =
          static_cast<std::size_t>(with_arithmetic(
              p, [&](auto arithmetic) { return DecodeScratch<decltype(arithmetic)>::size(p, kDecodeMostRows); })) *
          sizeof(Scalar)};
}

constexpr AttentionKernels attention_table() {
  return {.plan_forward = plan_forward,
          .pack_block = pack_block_of,
          .forward = forward,
          .plan_decode = plan_decode,
          .decode_piece = decode_piece,
          .merge_pieces = merge_pieces,
          .plan_backward = plan_backward,
          .backward_statistics = backward_statistics,
          .backward_begin = backward_begin,
          .backward_logits = backward_logits,
          .backward_mask = backward_mask,
          .backward_keys = backward_keys,
          .backward_rows = backward_rows,
          .backward_end = backward_end,
          .backward_write = backward_write,
          .inspect = inspect,
          .inspect_scratch = inspect_scratch};
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
