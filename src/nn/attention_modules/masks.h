// The masks of one forward call, in attention()'s form.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "saccade/tensor.h"

namespace saccade {

/// [batch, num_heads, seqlen_q, seqlen_k]
using ScoreShape = std::array<std::int64_t, 4>;

struct CallMask {
  TensorView given;   ///< the caller's mask, rank 4; empty if `joint` is used or nothing is masked
  Tensor joint;       ///< the mask and the key mask in one, rank 4
  Tensor kv_lengths;  ///< i64 [batch], for a key mask that is only padding at the right end

  TensorView mask() const { return joint.rank() != 0 ? joint.view() : given; }
};

/// Checks `mask` and `key_mask` (either may be empty) as ForwardOptions documents them and combines them. `module`
/// is the module's name in errors. Throws std::invalid_argument.
CallMask call_mask(const std::string& module, const TensorView& mask, const TensorView& key_mask,
                   const ScoreShape& scores);

/// A copy of a mask for later calls: broadcast dimensions get length 1. For an empty view an empty tensor.
Tensor copy_without_repetition(const TensorView& mask);

}  // namespace saccade
