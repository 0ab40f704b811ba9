// Resolves Method::automatic.
#pragma once

#include <string_view>

#include "saccade/distributed.h"

namespace saccade::distributed {

/// Replaces Method::automatic by the method that the cost model favors and completes the division. Depends on
/// its arguments only, so the result is the same on every rank.
ParallelConfig choose(const Sizes& sizes, const ParallelConfig& division, const AttentionOptions& options,
                      std::string_view function);

/// Throws std::invalid_argument, which names the function, unless each rate of the machine is positive.
void check_rates(const CostParameters& machine, std::string_view function);

}  // namespace saccade::distributed
