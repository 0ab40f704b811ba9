// Counting pairs of a row and a key that it sees.
#pragma once

#include <vector>

#include "backend/attention_params.h"
#include "saccade/distributed.h"

namespace saccade::distributed {

/// How many pairs of a row and a key that it sees by position and length there are among the rows and keys of a
/// sequence: of batch entry `batch`, in a packed batch of all documents. Takes a time that grows with the number
/// of runs and documents and the logarithm of the rows.
double pairs_of(const AttentionParams& params, std::int64_t batch, Run rows, const std::vector<Run>& keys);

}  // namespace saccade::distributed
