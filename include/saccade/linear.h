// Projections, y = x W (+ b), and their gradients.
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
  /// Threads of this call; 0: num_threads() of runtime.h. Results do not depend on it.
  int num_threads = 0;
};

/// y = x W (+ b): x [..., d_in], weight by `weight_layout`, y [..., d_out]; f32, innermost dimension contiguous,
/// the outer dimensions of x and y alike and of any strides. A row's bits do not depend on the other rows.
/// Throws std::invalid_argument naming the argument, what was wanted and what came.
void linear(const TensorView& x, const TensorView& weight, const MutableTensorView& y,
            const LinearOptions& options = {});

/// The same, returning y in a tensor of its own.
Tensor linear(const TensorView& x, const TensorView& weight, const LinearOptions& options = {});

/// Where the gradients of the loss go; f32, innermost dimension contiguous, other dimensions of any strides. Each
/// is computed only where it is given.
struct LinearGradients {
  MutableTensorView dx{};       ///< the shape of x; overwritten
  MutableTensorView dweight{};  ///< the shape of weight
  MutableTensorView dbias{};    ///< [d_out]
  /// dweight and dbias are added to what stands there instead of overwritten.
  bool accumulate = false;
};

/// The backward pass of y = x W (+ b): from dout [..., d_out], the gradient of the loss with respect to y,
///
///     dx = dout W^T,  dW = x^T dout,  db = the sum of dout over its rows.
///
/// x, weight and dout as x, weight and y of linear(). Of the options weight_layout and num_threads count. A row of
/// dx has the same bits whatever the other rows. Every element of dweight and dbias is summed over the rows in
/// ascending order, from 0 or what stands there: without rows it becomes 0 or stays as it is.
/// Throws std::invalid_argument as linear() does, and where a gradient has not the shape of what it belongs to.
void linear_backward(const TensorView& x, const TensorView& weight, const TensorView& dout,
                     const LinearGradients& gradients, const LinearOptions& options = {});

}  // namespace saccade
