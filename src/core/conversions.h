// Conversions between contiguous floats and 16-bit numbers. The processor's kernels define them.
#pragma once

#include <cstdint>

#include "saccade/dtype.h"

namespace saccade {

/// Each converts `count` numbers, with the same bits as float16 and bfloat16 (dtype.h).
struct Conversions {
  void (*narrow_to_bf16)(const float* from, bfloat16* to, std::int64_t count);
  void (*narrow_to_f16)(const float* from, float16* to, std::int64_t count);
  void (*widen_bf16)(const bfloat16* from, float* to, std::int64_t count);
  void (*widen_f16)(const float16* from, float* to, std::int64_t count);
};

/// The conversions of the active instruction set. Copies must not fail: if SACCADE_ISA is invalid, which other
/// functions report, these are the ones in plain C++.
const Conversions& conversions() noexcept;

}  // namespace saccade
