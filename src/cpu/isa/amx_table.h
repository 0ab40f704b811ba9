// Collects the kernels on AMX tiles, or on their twin.
#pragma once

#include "cpu/amx/backward_kernels.h"
#include "cpu/amx/decode.h"
#include "cpu/amx/forward_kernels.h"
#include "cpu/amx/inspect.h"
#include "cpu/amx/limits.h"
#include "cpu/amx/product.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

template <class T>
inline constexpr AmxAttention kAmxAttentionOf{.short_row = kShortRow<T>.keys,
                                              .short_causal_row = kShortRow<T>.keys_of_causal,
                                              .forward = kAmxForwardOf<T>,
                                              .backward = kAmxBackwardOf<T>,
                                              .inspect = {.plan = plan_inspect<plan_forward<T>>,
                                                          .pack_block = pack_block<T>,
                                                          .inspect = inspect<TileScores<T>>,
                                                          .scratch = inspect_scratch<TileScores<T>>}};

constexpr AmxKernels amx_table() {
  return {.bf16 = kAmxAttentionOf<bfloat16>,
          .f16 = kAmxAttentionOf<float16>,
          .f32 = kAmxAttentionOf<float>,
          .decode_bf16 = kDecodeOf<AmxDecodeHead>,
          .product_bf16 = kAmxProductOf<bfloat16>,
          .product_f16 = kAmxProductOf<float16>,
          .product_f32 = kAmxProductOf<float>,
          .chains = tile_chains,
          .chain_flops = kTileChainFlops};
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
