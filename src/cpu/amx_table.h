// Collects the kernels on AMX tiles, or on their twin.
#pragma once

#include "cpu/backward_amx.h"
#include "cpu/forward_amx.h"
#include "cpu/limits_amx.h"
#include "cpu/product_amx.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

constexpr AmxKernels amx_table() {
  return {.bf16 = {.forward = kAmxForwardOf<bfloat16>, .backward = kAmxBackwardOf<bfloat16>},
          .f16 = {.forward = kAmxForwardOf<float16>, .backward = kAmxBackwardOf<float16>},
          .f32 = {.forward = kAmxForwardOf<float>, .backward = kAmxBackwardOf<float>},
          .product_bf16 = kAmxProductOf<bfloat16>,
          .product_f16 = kAmxProductOf<float16>,
          .product_f32 = kAmxProductOf<float>,
          .chains = tile_chains,
          .chain_flops = kTileChainFlops};
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
