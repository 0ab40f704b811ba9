// What attention heads do, in numbers.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "saccade/tensor.h"

#pragma GCC visibility push(default)
namespace saccade {

/// For each head, the mean weight that queries give to the key after the earlier occurrence of their own token:
/// near 1 for an induction head, which looks at what followed last time. Only queries whose token has occurred
/// exactly once before are counted, because they have a single place to look; f64 [num_heads], NaN if there are
/// none.
///
/// weights: [batch, num_heads, seqlen, seqlen]; tokens: i64 [batch, seqlen]. Throws std::invalid_argument when the
/// shapes or types do not fit. (Olsson et al. 2022, arXiv:2209.11895: "prefix matching score".)
Tensor induction_scores(const TensorView& weights, const TensorView& tokens);

/// For each head of weights [batch, num_heads, seqlen, seqlen] the mean weight that queries give to the key before
/// them, without the first query: near 1 for a head that looks at the previous token; f64 [num_heads], NaN where
/// seqlen is 1.
Tensor previous_token_scores(const TensorView& weights);

/// What one head does over one sequence, each number a mean over its queries. NaN: not defined.
struct HeadStatistics {
  double previous = 0.0;  ///< the weight of the token before, as in previous_token_scores()
  double first = 0.0;     ///< the weight of the first token, of the queries after it
  double self = 0.0;      ///< the weight of the token itself
  double induction =
      0.0;                ///< the weight of what followed the token's earlier occurrence, as in induction_scores()
  double entropy = 0.0;   ///< of the row, in nats
  double distance = 0.0;  ///< from the query to its keys, weighted, in tokens
};

/// The statistics of a head, from its weights [queries, keys] of any element type. tokens: the ids of a sequence
/// that attends to itself. Without tokens the keys are another sequence's: `first` then counts all queries, and
/// previous, self, induction and distance are NaN. Throws std::invalid_argument if the weights are not a matrix
/// or, with tokens, not [tokens, tokens].
HeadStatistics head_statistics(const TensorView& weights, std::span<const std::int64_t> tokens = {});

/// The same for a sequence whose matrix is too large to store: `weight` returns the weight of a key for a query,
/// and is called for up to four keys of each query. entropy and distance are NaN; inspect() computes them.
HeadStatistics head_statistics(const std::function<double(std::int64_t query, std::int64_t key)>& weight,
                               std::span<const std::int64_t> tokens);

}  // namespace saccade
#pragma GCC visibility pop
