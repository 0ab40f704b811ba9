// Counts visible pairs of a row and a key.
#pragma once

#include <vector>

#include "backend/attention_params.h"
#include "saccade/distributed.h"

namespace saccade::distributed {

/// The number of pairs of a row and a key that it sees by position and length, among rows and keys of a
/// sequence: of batch entry `batch`, or in a packed batch of all documents. The time grows with the number of
/// runs and documents and with the logarithm of the rows.
double pairs_of(const AttentionParams& params, std::int64_t batch, Run rows, const std::vector<Run>& keys);

}  // namespace saccade::distributed
