// Collects the kernels on AMX tiles, or on their twin.
#pragma once

#include "cpu/amx/backward_kernels.h"
#include "cpu/amx/bytes/decode.h"
#include "cpu/amx/decode.h"
#include "cpu/amx/forward_kernels.h"
#include "cpu/amx/inspect.h"
#include "cpu/amx/limits.h"
#include "cpu/amx/product.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

template <class T, int kScoreParts = kPartsOf<T>>
inline constexpr AmxAttention kAmxAttentionOf{.short_row = kShortRow<T>.keys,
                                              .short_causal_row = kShortRow<T>.keys_of_causal,
                                              .forward = kAmxForwardOf<T, kScoreParts>,
                                              .backward = kAmxBackwardOf<T>,
                                              .inspect = {.plan = plan_inspect<plan_forward<T, kScoreParts>>,
                                                          .pack_block = pack_block<T, kScoreParts>,
                                                          .inspect = inspect<TileScores<T, kScoreParts>>,
                                                          .scratch = inspect_scratch<TileScores<T, kScoreParts>>}};

/// The kernels with those for attention over f16 and f32 from other sources.
constexpr AmxKernels amx_table(const AmxAttention& f16, const AmxAttention& f32) {
  return {.bf16 = &kAmxAttentionOf<bfloat16>,
          .f16 = &f16,
          .f32 = &f32,
          .decode_bf16 = kDecodeOf<AmxDecodeHead>,
          .product_bf16 = kAmxProductOf<bfloat16>,
          .product_f16 = kAmxProductOf<float16>,
          .product_f32 = kAmxProductOf<float>,
          .chains = tile_chains,
          .chain_flops = kTileChainFlops};
}

/// The same with products of f16 as it is, which need AMX-FP16.
constexpr AmxKernels amx_fp16_table(const AmxAttention& f16, const AmxAttention& f32) {
  AmxKernels kernels = amx_table(f16, f32);
  kernels.product_f16 = kAmxProductOf<float16, 1>;
  return kernels;
}

constexpr ByteKernels byte_table() {
  constexpr DecodeKernels integers = kDecodeOf<ByteTileHead<IntegerFormat>>;
  return {.integers = integers, .integers_for_bf16 = integers};
}
constexpr DecodeKernels float8_table() { return kDecodeOf<ByteTileHead<Float8Format>>; }

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
