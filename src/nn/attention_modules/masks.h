// The masks of one forward call in the form that attention() takes.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "saccade/tensor.h"

namespace saccade {

/// [batch, num_heads, seqlen_q, seqlen_k]
using ScoreShape = std::array<std::int64_t, 4>;

struct CallMask {
  TensorView given;   ///< a mask of the caller, rank 4; empty where `joint` is used or nothing is masked
  Tensor joint;       ///< the mask and the key mask in one, rank 4
  Tensor kv_lengths;  ///< i64 [batch]: a key mask that is padding at the right end

  TensorView mask() const { return joint.rank() != 0 ? joint.view() : given; }
};

/// Checks `mask` and `key_mask` (either may be empty) as ForwardOptions documents them and brings them
/// together. `module` names the module in errors. Throws std::invalid_argument.
CallMask call_mask(const std::string& module, const TensorView& mask, const TensorView& key_mask,
                   const ScoreShape& scores);

/// A copy of a mask that a later call can take for it: dimensions in which it repeats itself have length 1. Of an
/// empty view an empty tensor.
Tensor copy_without_repetition(const TensorView& mask);

}  // namespace saccade
