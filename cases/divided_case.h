// A random problem divided among ranks: distributed attention against one process, to the last bit.
#pragma once

#include <saccade/distributed.h>

#include <cstdint>
#include <string>
#include <vector>

namespace saccade::cases {

/// Draws a problem and a division from `seed`, the same on every rank, solves it alone and together with the other
/// ranks, and compares this rank's rows. All ranks call it. Returns a line for every result that differs where it
/// must not; empty if all agree. `problem` receives the problem in one line.
std::vector<std::string> compare_divided(distributed::Communicator& communicator, std::uint64_t seed,
                                         std::string& problem);

}  // namespace saccade::cases
