// Projections: y = x W (+ b), on the same tiles as attention.
#pragma once

#include <cstdint>

#include "saccade/tensor.h"

namespace saccade {

/// How a weight matrix is stored: `in_out` is [d_in, d_out], as one writes x W; `out_in` is [d_out, d_in],
/// as torch.nn.Linear keeps it.
enum class WeightLayout : std::uint8_t { in_out, out_in };

struct LinearOptions {
  WeightLayout weight_layout = WeightLayout::out_in;
  /// Added to every row: f32 [d_out]; not given: nothing is added.
  TensorView bias{};
  /// Threads of this call; 0: num_threads() of cpu.h. Results do not depend on it.
  int num_threads = 0;
};

/// y = x W (+ b): x [..., d_in], weight by `weight_layout`, y [..., d_out]; f32, innermost dimension contiguous,
/// the outer dimensions of x and y alike and of any strides. A row's bits do not depend on the other rows.
/// Throws std::invalid_argument naming the argument, what was wanted and what came.
void linear(const TensorView& x, const TensorView& weight, const MutableTensorView& y,
            const LinearOptions& options = {});

/// The same, returning y in a tensor of its own.
Tensor linear(const TensorView& x, const TensorView& weight, const LinearOptions& options = {});

}  // namespace saccade
