// Kernels of layers and optimizers: loops over rows of the host's memory. They run on the processor, whichever
// back end computes attention.
#pragma once

#include "backend/layer_params.h"

namespace saccade {

/// The kernels of layers and optimizers. Memory need only be aligned as floats.
struct LayerKernels {
  /// Rows [row, row_end). backward also writes their share of the gradients of scale and shift: sums[2][dim].
  void (*layer_norm)(const LayerNormParams&, std::int64_t row, std::int64_t row_end);
  void (*layer_norm_backward)(const LayerNormBackwardParams&, std::int64_t row, std::int64_t row_end, float* sums);
  void (*rms_norm)(const RmsNormParams&, std::int64_t row, std::int64_t row_end);
  void (*dropout)(const DropoutParams&, std::int64_t row, std::int64_t row_end);

  /// Elementwise on `count` numbers: y = f(x), times `factors` unless nullptr. y may alias x or the factors, dx
  /// may alias dout.
  void (*activate)(Activation, const float* x, const float* factors, float* y, std::int64_t count);
  void (*gelu_backward)(const float* x, const float* dout, float* dx, std::int64_t count);
  void (*add_to)(const float* x, float* y, std::int64_t count);  // y += x
  void (*multiply)(float factor, float* x, std::int64_t count);  // x *= factor

  /// One row of logits; exponentials: receives exp(x - maximum), or nullptr; may alias x.
  SoftmaxSum (*softmax_sum)(const float* x, float* exponentials, std::int64_t count);

  /// One optimizer step for `count` numbers of a parameter.
  void (*adamw)(const AdamWParams&, const float* gradient, float* value, float* first, float* second,
                std::int64_t count);
  void (*sgd)(const SgdParams&, const float* gradient, float* value, float* momentum, std::int64_t count);
};

/// The kernels of the active instruction set. Throws std::invalid_argument when SACCADE_ISA names a level that
/// this build or machine lacks.
const LayerKernels& layer_kernels();

}  // namespace saccade
