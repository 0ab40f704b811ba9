// Collects the kernels on AMX tiles, or on their twin.
#pragma once

#include "cpu/forward_amx.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

constexpr AmxKernels amx_table() {
  return {.bf16 = kAmxForwardOf<bfloat16>, .f16 = kAmxForwardOf<float16>, .f32 = kAmxForwardOf<float>};
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
