// Kernels that compute nothing and take the time of their work.
#pragma once

#include "costs.h"
#include "problems.h"

namespace saccade::simulation {

/// The virtual time of a call, in seconds, as the library's schedule divides it among up to `threads` threads.
double seconds_of(const Problem& problem, const UnitCosts& costs, int threads);

/// The share of their time that threads work: the time of one thread, by the time of `threads` times their number.
inline double efficiency(const Problem& problem, const UnitCosts& costs, int threads) {
  return seconds_of(problem, costs, 1) / (threads * seconds_of(problem, costs, threads));
}

}  // namespace saccade::simulation
