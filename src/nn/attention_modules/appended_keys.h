// Keys that every row sees beside those of the sequence: torch.nn.MultiheadAttention's bias_k and zero key.
#pragma once

#include "saccade/attention.h"
#include "saccade/tensor.h"

namespace saccade {

/// They are merged after attention() instead of being appended before it: with the logarithm of its softmax
/// denominator a row's result is rescaled as if they had been there. So neither keys, values nor masks are
/// copied, and causal masks, which count positions, do not see them.
struct AppendedKeys {
  TensorView bias_k, bias_v;  ///< f32 [1, 1, num_kv_heads * head_dim], or both empty
  bool zero = false;          ///< a key and value of zeros, after the bias key

  int count() const { return (bias_k ? 1 : 0) + (zero ? 1 : 0); }
};

/// What attention() without the appended keys left: all f32 and contiguous but for `weights`.
struct AttendedRows {
  TensorView q;               ///< [batch, seqlen_q, num_heads, head_dim]
  MutableTensorView lse;      ///< [batch, num_heads, seqlen_q]; counts the keys afterwards
  MutableTensorView context;  ///< [batch, seqlen_q, num_heads, head_dim]; becomes the result with the keys
  /// [batch, num_heads, seqlen_q, seqlen_k + count()], the last columns not yet written; may be empty.
  MutableTensorView weights;
};

/// Brings the appended keys into `rows`. `options` are those of the attention() call: scale (given) and dropout.
void merge_appended_keys(const AppendedKeys& keys, const AttendedRows& rows, std::int64_t seqlen_k,
                         const AttentionOptions& options);

/// What the backward pass knows of the rows: views as in AttendedRows, with the keys counted in.
struct AttendedRowsBackward {
  TensorView q, lse, context;
  TensorView dout;     ///< the gradient of the loss with respect to context
  TensorView dropped;  ///< weights after dropout where that was drawn over all of them; else empty
};

struct AppendedKeyGradients {
  MutableTensorView dq;                ///< [batch, seqlen_q, num_heads, head_dim]; added to
  MutableTensorView dbias_k, dbias_v;  ///< shaped as bias_k and bias_v; added to
};

/// Adds what the bias key and value give and get. The zero key gives nothing that is not in lse.
void appended_keys_backward(const AppendedKeys& keys, const AttendedRowsBackward& rows,
                            const AppendedKeyGradients& gradients, std::int64_t seqlen_k,
                            const AttentionOptions& options);

}  // namespace saccade
