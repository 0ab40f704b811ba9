// Keys that every row sees in addition to those of the sequence: torch.nn.MultiheadAttention's bias_k and zero
// key.
#pragma once

#include "saccade/attention.h"
#include "saccade/tensor.h"

namespace saccade {

/// These keys are merged after attention() instead of being appended before it: from the logarithm of the softmax
/// denominator each row's result is rescaled as if they had been appended. So keys, values and masks need no
/// copies, and causal masks, which count positions, do not affect these keys.
struct AppendedKeys {
  TensorView bias_k, bias_v;  ///< f32 [1, 1, num_kv_heads * head_dim], or both empty
  bool zero = false;          ///< a key and value of zeros, after the bias key

  int count() const { return (bias_k ? 1 : 0) + (zero ? 1 : 0); }
};

/// The results of attention() without the appended keys: all f32, and contiguous except `weights`.
struct AttendedRows {
  TensorView q;               ///< [batch, seqlen_q, num_heads, head_dim]
  MutableTensorView lse;      ///< [batch, num_heads, seqlen_q]; includes the appended keys afterwards
  MutableTensorView context;  ///< [batch, seqlen_q, num_heads, head_dim]; includes the appended keys afterwards
  /// [batch, num_heads, seqlen_q, seqlen_k + count()], the last columns not yet written; may be empty.
  MutableTensorView weights;
};

/// Merges the appended keys into `rows`. `options` are those of the attention() call: scale (given) and dropout.
void merge_appended_keys(const AppendedKeys& keys, const AttendedRows& rows, std::int64_t seqlen_k,
                         const AttentionOptions& options);

/// The rows in the backward pass: views as in AttendedRows, including the appended keys.
struct AttendedRowsBackward {
  TensorView q, lse, context;
  TensorView dout;     ///< the gradient of the loss with respect to context
  TensorView dropped;  ///< weights after dropout if drawn over all of them; else empty
};

struct AppendedKeyGradients {
  MutableTensorView dq;                ///< [batch, seqlen_q, num_heads, head_dim]; added to
  MutableTensorView dbias_k, dbias_v;  ///< shaped as bias_k and bias_v; added to
};

/// Adds the gradients of the bias key and value, and their part of dq. The zero key only contributes through lse.
void appended_keys_backward(const AppendedKeys& keys, const AttendedRowsBackward& rows,
                            const AppendedKeyGradients& gradients, std::int64_t seqlen_k,
                            const AttentionOptions& options);

}  // namespace saccade
