// A random problem divided among ranks: compares distributed attention with one process, bit for bit.
#pragma once

#include <saccade/distributed.h>

#include <cstdint>
#include <string>
#include <vector>

#include "cases/simplification.h"

namespace saccade::cases {

/// Draws a problem and a division from `seed`, the same on every rank, computes it alone and together with the
/// other ranks, and compares this rank's rows. All ranks call it. Returns a line for every result that differs but
/// must not; empty if all agree. `problem` receives the problem in one line. `simpler` changes the problem.
std::vector<std::string> compare_divided(distributed::Communicator& communicator, std::uint64_t seed,
                                         std::string& problem, const Simplification& simpler = {});

}  // namespace saccade::cases
