// The number of operations in a call of attention(), for GFLOP/s.
#pragma once

#include "saccade/attention.h"

#pragma GCC visibility push(default)
namespace saccade {

/// The floating-point operations of attention() with these arguments; a multiply-add counts as two. They are 2
/// (head_dim + head_dim_v) for each pair of a query row and a key that the row sees by position and length, in
/// every batch entry (or document) and query head: causal, window, query offsets, kv_lengths and cu_seqlens
/// decide. n causal rows over n keys are n (n + 1) / 2 pairs. Masks, block masks and score modifiers do not reduce
/// the count; exponentials, biases and dropout do not add to it. A backward pass counts as 2.5 times this: five
/// matrix products instead of two.
///
/// Exact up to 2^53, rounded beyond. The numbers of q, k and v are not read; the time is about a nanosecond per
/// row of each batch entry. Throws std::invalid_argument where attention() would; the outputs in the options are
/// ignored.
double attention_operations(const TensorView& q, const TensorView& k, const TensorView& v,
                            const AttentionOptions& options = kDefaultAttentionOptions);

}  // namespace saccade
#pragma GCC visibility pop
