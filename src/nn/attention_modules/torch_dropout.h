// Dropout as PyTorch's CPU generator draws it, over weights stored in memory.
#pragma once

#include "saccade/attention_modules.h"

namespace saccade {

/// The weights of one call and the values they average.
struct DrawnDropout {
  TensorView weights;              ///< f32 [batch, num_heads, seqlen_q, columns], contiguous
  TensorView v;                    ///< f32 [batch, seqlen_k, num_kv_heads, head_dim], contiguous
  TensorView bias_v;               ///< f32 [1, 1, num_kv_heads * head_dim], or empty
  MutableTensorView context;       ///< f32 [batch, seqlen_q, num_heads, head_dim], contiguous; overwritten
  bool independent_heads = false;  ///< draw head by head instead of all heads of an entry together
};

/// Drops weights with probability p, computes the context from the remaining ones, and returns them. Columns are
/// the keys of v, then bias_v if there is one, then at most one with value zero.
Tensor drop_as_torch(TorchGenerator& generator, TorchBuild build, double p, const DrawnDropout& call);

/// The data of such a call for its backward pass; all f32 and contiguous.
struct DrawnCall {
  TensorView weights, dropped;  ///< [batch, num_heads, seqlen_q, columns], before and after dropout
  TensorView q;                 ///< [batch, seqlen_q, num_heads, head_dim]
  TensorView k, v;              ///< [batch, seqlen_k, num_kv_heads, head_dim]
  TensorView context, dout;     ///< shaped as q; context after dropout
};

struct DrawnGradients {
  MutableTensorView dq, dk, dv;  ///< shaped as q, k and v
};

/// The gradients of the queries, keys and values of the call, from the stored weights. appended_keys_backward
/// handles the appended columns. `options` have the scale and the probability.
void drop_as_torch_backward(const DrawnCall& call, const DrawnGradients& gradients,
                            const AttentionOptions& options);

}  // namespace saccade
