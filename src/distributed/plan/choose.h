// What Method::automatic stands for.
#pragma once

#include <string_view>

#include "saccade/distributed.h"

namespace saccade::distributed {

/// A complete division with the method that the cost model favours, instead of Method::automatic: a function of
/// its arguments only, so the same on every rank.
ParallelConfig choose(const Sizes& sizes, const ParallelConfig& division, const AttentionOptions& options,
                std::string_view function);

}  // namespace saccade::distributed
