// Waiting for other threads of a call.
#pragma once

#include <chrono>

#include "core/parallel.h"
#include "core/progress.h"
#include "core/threads/platform.h"

namespace saccade::threads {

/// Polls until done() or kPolling has passed; returns whether it is done. Yields: a thread that sleeps goes on 30
/// to 50 us after its turn has come (Granite Rapids, a virtual machine).
template <class Done>
bool poll_for_a_while(const Done& done, std::chrono::microseconds longest = kPolling) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  while (!done()) {
    poll_progress();
    if (Clock::now() - begin >= longest) return false;
    yield();
  }
  return true;
}

/// For a thread with a ProgressHook, which has to be called while it waits.
template <class Done>
void poll_until(const Done& done) {
  if (poll_for_a_while(done)) return;
  while (!done()) {
    poll_progress();
    sleep_for(std::chrono::microseconds(50));
  }
}

}  // namespace saccade::threads
