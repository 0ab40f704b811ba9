// Checks the arguments of attention_backward() and converts them to the plain struct that kernels read.
#pragma once

#include "attention/arguments.h"
#include "backend/attention_params.h"
#include "saccade/backward.h"

namespace saccade {

/// Throws std::invalid_argument as attention_backward() documents. `params` points into the caller's tensors and
/// into this object.
class BackwardArguments {
 public:
  BackwardArguments(const TensorView& q, const TensorView& k, const TensorView& v, const AttentionOutcome& outcome,
                    const AttentionGradients& gradients, const AttentionOptions& options);

  BackwardParams params;

 private:
  void add_gradients_of_options(const AttentionGradients& gradients, const AttentionOptions& options, DType dtype);
  void add_mask(const MutableTensorView& dmask, const AttentionOptions& options, DType dtype);

  AttentionArguments forward_;
};

}  // namespace saccade
