// The gradients of attention(), in linear memory too.
#pragma once

#include "saccade/attention.h"
#include "saccade/tensor.h"

namespace saccade {

/// What the forward pass left, and what came back to it.
struct AttentionOutcome {
  TensorView o{};     ///< what attention() wrote
  TensorView lse{};   ///< AttentionOptions::lse of that call: every gradient is made with it
  TensorView dout{};  ///< the gradient of the loss with respect to o: o's shape, f32, bf16 or f16, or f64 like q
};

/// Where the gradients of the loss go. dq, dk and dv have the shapes of q, k and v and each is f32, bf16 or f16
/// (f64 for f64 inputs), any strides but a contiguous last dimension. The others are computed where they are
/// given; they are f32, or f64 for f64 inputs.
struct AttentionGradients {
  MutableTensorView dq{}, dk{}, dv{};
  /// The shape of options.mask, which is a float mask: summed over the dimensions in which it is repeated.
  MutableTensorView dmask{};
  MutableTensorView dsinks{};         ///< [num_heads]
  MutableTensorView dalibi_slopes{};  ///< the shape of options.alibi_slopes
};

/// The backward pass of attention(q, k, v, o, options), whose options are to be those of that call (lse, weights
/// and scores are not looked at; the same dropout is drawn again).
///
/// Nothing is kept from the forward pass but o and lse: scores are computed again tile by tile, and what no row
/// sees is skipped here too. Sums are in f32 (f64 for f64), also for bf16 and f16. dk and dv are summed over the
/// query heads that share them. Memory beside the tensors: some 1 MiB for each thread (f32, head_dim 64), and dq
/// in f32 of as many kv heads as fit in 24 MiB, but of one at least; nothing grows with seqlen_q * seqlen_k.
///
/// A hidden key or row has no influence, whatever is in it, and gradient 0. A row that sees no key gives and gets
/// nothing. The bits do not depend on threads.
///
/// Throws std::invalid_argument as attention() does, for gradients, o, lse or dout that do not fit, and for
/// options that have no gradient: block_table, dmask without a float mask, dsinks without sinks, dalibi_slopes
/// without slopes. Gradients must not overlap anything. Safe to call from several threads at once.
///
/// Sources: FlashAttention-2, arXiv:2307.08691, section 3.1.2.
void attention_backward(const TensorView& q, const TensorView& k, const TensorView& v,
                        const AttentionOutcome& outcome, const AttentionGradients& gradients,
                        const AttentionOptions& options = kDefaultAttentionOptions);

}  // namespace saccade
