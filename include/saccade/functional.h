// Layers as functions of views, for programs that hold their own weights: activations and normalizations, without
// gradients. For trainable modules see layers.h.
//
// x and y are f32 [...] of equal shapes, with a contiguous innermost dimension and any strides of the others; y
// may be x. A row's bits do not depend on other rows, and nothing depends on the number of threads. Invalid
// arguments throw std::invalid_argument with the function, the argument, what was expected and what was given.
#pragma once

#include <cstdint>

#include "saccade/tensor.h"

#pragma GCC visibility push(default)
namespace saccade {

/// An elementwise function of a layer's output.
enum class Activation : std::uint8_t {
  none,        ///< x
  relu,        ///< max(x, 0)
  gelu,        ///< x Phi(x), Phi: the normal distribution's CDF (arXiv:1606.08415)
  gelu_tanh,   ///< its approximation 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))): GPT-2's "gelu_new"
  quick_gelu,  ///< its approximation x sigmoid(1.702 x)
  silu,        ///< x sigmoid(x), also called swish
  tanh,
};

/// y = f(x), with f the activation.
void activate(Activation activation, const TensorView& x, const MutableTensorView& y);

/// dx = f'(x) dout, with f the activation: the gradient of the loss with respect to x, from dout, the gradient
/// with respect to f(x). dx may be x or dout.
void activate_backward(Activation activation, const TensorView& x, const TensorView& dout,
                       const MutableTensorView& dx);

/// y = f(gate) * x, with f the activation: a gated linear unit (arXiv:2002.05202). y may be gate or x.
void activate_gated(Activation activation, const TensorView& gate, const TensorView& x,
                    const MutableTensorView& y);

/// y = scale * (x - mean) / sqrt(variance + eps) + shift, with the mean and variance of the row. scale, shift: f32
/// [dim], contiguous.
void layer_norm(const TensorView& x, const TensorView& scale, const TensorView& shift, const MutableTensorView& y,
                double eps = 1e-5);

/// y = scale * x / sqrt(mean of squares + eps): RMSNorm (arXiv:1910.07467). scale: f32 [dim], contiguous.
void rms_norm(const TensorView& x, const TensorView& scale, const MutableTensorView& y, double eps = 1e-6);

}  // namespace saccade
#pragma GCC visibility pop
