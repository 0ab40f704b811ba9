// Attention of a few new tokens over a long cache, as fast as reading the cache once.
#pragma once

#include <span>

#include "saccade/attention.h"
#include "saccade/tensor.h"

namespace saccade {

/// attention() for few query rows and many keys: the same arguments, options and result, but computed in an order
/// that reads every key and value once, in place, for all query heads and rows that share them. The keys are split
/// into pieces of a fixed size, which are merged in ascending order. A row's bits therefore depend on its q row,
/// the keys it sees, the options and the instruction set; not on threads, batch, the other new tokens or paging.
/// They differ from those of attention() in the last places, because sums over head_dim have another order. Where
/// both must agree to the bit, call attention() for new tokens too, which takes 4 to 10 times as long (Zen 4).
///
/// Typical options for a cache: {.causal = Causal::bottom_right, .kv_lengths = lengths, .block_table = pages}.
void decode(const TensorView& q, const TensorView& k, const TensorView& v, const MutableTensorView& o,
            const AttentionOptions& options = {});

/// The same, but returns o as a new tensor of q's element type.
Tensor decode(const TensorView& q, const TensorView& k, const TensorView& v, const AttentionOptions& options = {});

/// Merges two attention results of the same queries over different keys into the result over all of these keys:
/// lse = log(exp(lse_a) + exp(lse_b)), o = exp(lse_a - lse) o_a + exp(lse_b - lse) o_b. o_a, o_b and o have the
/// same shape ([..., head_dim_v] with the axes of attention()'s o); lse_a, lse_b and lse have the shape of
/// attention()'s lse for such an o in `layout`. o may be o_a or o_b, lse may be lse_a or lse_b. Element types: o
/// any floating type, lse f32 or f64. A part without keys has lse -inf and does not count. Include a sink in only
/// one of the parts. Throws std::invalid_argument where shapes or types do not fit. (FlashInfer, arXiv:2501.01005,
/// section 2.2.)
/// Sums are f32, or f64 if one of the o is.
void merge_states(const TensorView& o_a, const TensorView& lse_a, const TensorView& o_b, const TensorView& lse_b,
                  const MutableTensorView& o, const MutableTensorView& lse, Layout layout = Layout::bhld);

/// The result of a call over some of the keys.
struct AttentionState {
  TensorView o{};    ///< the o of attention() or decode()
  TensorView lse{};  ///< AttentionOptions::lse of that call
};

/// The same for any number of parts, read once; none: o is 0 and lse -inf.
void merge_states(std::span<const AttentionState> parts, const MutableTensorView& o, const MutableTensorView& lse,
                  Layout layout = Layout::bhld);

}  // namespace saccade
