// Scores that show what an attention head does.
#pragma once

#include "saccade/tensor.h"

namespace [[gnu::visibility("default")]] saccade {

/// For each head the mean weight that queries give to the key after the earlier occurrence of their own token:
/// near 1 for an induction head, which looks at what followed last time. Only queries whose token has occurred
/// exactly once before count, because they have one place to look at; f64 [num_heads], NaN where no query counts.
///
/// weights: [batch, num_heads, seqlen, seqlen]; tokens: i64 [batch, seqlen]. Throws std::invalid_argument when the
/// shapes or types do not fit. (Olsson et al. 2022, arXiv:2209.11895: "prefix matching score".)
Tensor induction_scores(const TensorView& weights, const TensorView& tokens);

/// For each head the mean weight that queries give to the key before them, without the first query: near 1 for a
/// head that looks at the previous token; f64 [num_heads], NaN where seqlen is 1.
Tensor previous_token_scores(const TensorView& weights);

}  // namespace saccade
