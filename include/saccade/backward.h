// The gradients of attention(), in linear memory too.
#pragma once

#include <cstdint>
#include <string_view>

#include "saccade/attention.h"
#include "saccade/tensor.h"

#pragma GCC visibility push(default)
namespace saccade {

/// The results of the forward pass, and the gradients of the loss with respect to them.
struct AttentionOutcome {
  TensorView o{};     ///< the o of attention()
  TensorView lse{};   ///< AttentionOptions::lse of that call: all gradients depend on it
  TensorView dout{};  ///< the gradient of the loss with respect to o: o's shape, f32, bf16 or f16, or f64 like q
  /// The gradient with respect to lse, for a loss that reads it: lse's shape and type. Rows that see no key, whose
  /// lse is -inf or the sink, pass it on to the sink only. Empty: 0.
  TensorView dlse{};
};

/// The gradients of the loss with respect to q, k, v and the differentiable options, as tensors or views.
template <class Array>
struct GradientsOf {
  Array dq{}, dk{}, dv{};  ///< the shapes of q, k and v
  /// The shape of options.mask, which must be a float mask: summed over the dimensions in which it is broadcast.
  Array dmask{};
  Array dsinks{};         ///< [num_heads]
  Array dalibi_slopes{};  ///< the shape of options.alibi_slopes
};

/// Destinations of the gradients of the loss. dq, dk and dv have the shapes of q, k and v, and each is f32, bf16
/// or f16 (f64 for f64 inputs), with any strides and a contiguous last dimension. The others are optional and f32,
/// or f64 for f64 inputs.
///
/// Either dq, or dk and dv, may be empty and is then not computed. The others have the same bits as when all are
/// computed. Of the five matrix products of a backward pass, dq alone takes three, dk and dv alone take four.
using AttentionGradients = GradientsOf<MutableTensorView>;

/// A differentiable option and its gradient.
template <class Array>
struct OptionGradient {
  std::string_view option;              ///< its name: "mask"
  std::string_view name;                ///< that of the gradient: "dmask"
  TensorView AttentionOptions::*value;  ///< the option
  Array GradientsOf<Array>::*gradient;  ///< its gradient
};

/// The options that have a gradient.
template <class Array>
inline constexpr OptionGradient<Array> kOptionGradients[] = {
    {"mask", "dmask", &AttentionOptions::mask, &GradientsOf<Array>::dmask},
    {"sinks", "dsinks", &AttentionOptions::sinks, &GradientsOf<Array>::dsinks},
    {"alibi_slopes", "dalibi_slopes", &AttentionOptions::alibi_slopes, &GradientsOf<Array>::dalibi_slopes},
};

/// dk and dv are summed over blocks of rows that begin at multiples of this number in each batch entry or
/// document, for every instruction set and type. See attention_backward().
inline constexpr std::int64_t kRowAlignment = 8448;

/// The backward pass of attention(q, k, v, o, options): from `outcome`, its results and the gradients with respect
/// to them, to `gradients`. Pass the options of that call; lse, weights and scores are ignored, and dropout draws
/// the same mask again.
///
/// Only o and lse are kept from the forward pass: scores are recomputed tile by tile, and tiles that no row sees
/// are skipped here too. Sums are in f32 (f64 for f64), also for bf16 and f16. Where q, k, v, o and dout are all
/// bf16, level avx512amx rounds the weights and the gradients of scores to bf16 before their products. dk and dv
/// are summed over the query heads that share them. Memory in addition to the tensors: about 1 MiB per thread
/// (f32, head_dim 64), up to 8 MiB more per thread where threads share a head, and dq in f32 for as many kv heads
/// as fit in 24 MiB, but at least one; nothing grows with seqlen_q * seqlen_k.
///
/// A hidden key or row has no influence, regardless of what it contains, and gradient 0. A row that sees no key
/// contributes nothing and has gradient 0. The bits do not depend on threads.
///
/// A part of a problem is bit-identical to that part of the whole, given the lse, o and dout of its rows. dq: any
/// rows, with all keys that they see, as in Origin. dk and dv: any keys (with dropout from a multiple of 64 on, as
/// in Origin), with all rows that see them, from a multiple of kRowAlignment on and without gaps. A row that sees
/// none of the keys may hold anything, in o and lse too: only dsinks counts every row. (Zeros are best: if rows
/// that are computed together hold a NaN, the head is computed again by a slow path.)
///
/// Throws std::invalid_argument as attention() does, for gradients, o, lse or dout that do not fit, where dq, dk
/// and dv are all empty or only one of dk and dv is, and for options that have no gradient: block_table, dmask
/// without a float mask, dsinks without sinks, dalibi_slopes without slopes. Gradients must not overlap anything.
/// Safe to call from several threads at once.
///
/// Sources: FlashAttention-2, arXiv:2307.08691, section 3.1.2.
void attention_backward(const TensorView& q, const TensorView& k, const TensorView& v,
                        const AttentionOutcome& outcome, const AttentionGradients& gradients,
                        const AttentionOptions& options = kDefaultAttentionOptions);

}  // namespace saccade
#pragma GCC visibility pop
