// Virtual threads in place of those of src/core/threads/team.cpp: a discrete-event simulation of a schedule. Each
// virtual thread has a clock, and of those that can go on, only the one with the earliest clock runs. So threads
// take items and wait for each other in the order in which they would if every unit of work took exactly its time.
#pragma once

#include <functional>

namespace saccade::simulation {

/// What threads cost beside their work, in seconds.
struct ThreadCosts {
  double team = 0.0;    // until a team of two has started, plus until it has ended; of P threads: times log2(P)
  double notice = 0.0;  // from the end of a wait_for() until the thread that waited goes on, if it still polls,
  double wake = 0.0;    // and if it sleeps
};

/// Calls `work`, where num_threads() is `threads`, and returns the virtual time that it takes. `work` may start
/// one team after another with run_on_threads(). Throws std::logic_error when all threads of a team wait, or when
/// a thread of a team starts another one.
double simulate(int threads, const ThreadCosts& costs, const std::function<void()>& work);

/// Adds to the clock of the virtual thread that calls. The only thing that takes time.
void spend(double seconds);

}  // namespace saccade::simulation
