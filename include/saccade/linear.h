// Projections, y = x W (+ b), and their gradients.
#pragma once

#include <cstdint>

#include "saccade/tensor.h"

#pragma GCC visibility push(default)
namespace saccade {

/// How a weight matrix is stored: `in_out` is [d_in, d_out], for x W as written; `out_in` is [d_out, d_in], as in
/// torch.nn.Linear.
enum class WeightLayout : std::uint8_t { in_out, out_in };

struct LinearOptions {
  WeightLayout weight_layout = WeightLayout::out_in;  ///< of the weight
  /// Added to every row: [d_out], f32 or of the type of x; default: none.
  TensorView bias{};
  /// Threads of this call; 0: num_threads() of runtime.h. Results do not depend on it.
  int num_threads = 0;
};

/// y = x W (+ b): x [..., d_in], weight by `weight_layout`, y [..., d_out]; innermost dimension contiguous. x and
/// weight are both f32, bf16 or f16; y has that type, or f32. Sums are f32; y is rounded once, to nearest even.
/// The outer dimensions of x and y are equal and may have any strides. A row's bits do not depend on the other
/// rows. Throws std::invalid_argument with the argument, what was expected and what was given.
void linear(const TensorView& x, const TensorView& weight, const MutableTensorView& y,
            const LinearOptions& options = {});

/// The same, but returns y as a new tensor of the type of x.
Tensor linear(const TensorView& x, const TensorView& weight, const LinearOptions& options = {});

/// Destinations of the gradients of the loss; f32 or of the type of x, innermost dimension contiguous, any strides
/// elsewhere. Only those given are computed.
struct LinearGradients {
  MutableTensorView dx{};       ///< the shape of x; overwritten
  MutableTensorView dweight{};  ///< the shape of weight
  MutableTensorView dbias{};    ///< [d_out]
  /// Add to the contents of dweight and dbias instead of overwriting them.
  bool accumulate = false;
};

/// The backward pass of y = x W (+ b), to `gradients`: from dout [..., d_out], the gradient of the loss with
/// respect to y,
///
///     dx = dout W^T,  dW = x^T dout,  db = the sum of dout over its rows.
///
/// x, weight and dout have the form of x, weight and y of linear(). Only the options weight_layout and num_threads
/// have an effect. A row of dx has the same bits for any other rows. Every element of dweight and dbias is a
/// sum in f32 over the rows in a fixed order, starting from 0 or, with accumulate, from the old value; without
/// rows it becomes 0 or stays unchanged. Throws std::invalid_argument as linear() does, and when a gradient has
/// another shape than its tensor.
void linear_backward(const TensorView& x, const TensorView& weight, const TensorView& dout,
                     const LinearGradients& gradients, const LinearOptions& options = {});

}  // namespace saccade
#pragma GCC visibility pop
