// The pass_q method: sends query rows to the ranks that own the keys.
#pragma once

#include "distributed/call/call.h"

namespace saccade::distributed {

/// Tensors are [batch, heads, rows, dim].
struct PassQCall {
  Messages& messages;
  RankError& error;
  const AttentionOptions& options;
  const AttentionParams& params;  ///< of the whole problem
  const Sharding& keys;
  const Sharding* rows;  ///< nullptr: every rank has all rows of q, and gets all of o
  TensorView q;
  const KeyRows &k, &v;
  MutableTensorView o, lse;  ///< lse may be empty
};

/// Computes o.
void run_pass_q(const PassQCall& call);

}  // namespace saccade::distributed
