#include <windows.h>
// Needs the types of windows.h.
#include <psapi.h>

#include <chrono>
#include <cstdint>

#include "resources.h"

namespace saccade::cli::bench {
namespace {

/// The sum of two times, each a number of 100 ns.
double seconds(const FILETIME& kernel, const FILETIME& user) {
  const auto ticks = [](const FILETIME& time) {
    return static_cast<double>(std::uint64_t{time.dwHighDateTime} << 32 | time.dwLowDateTime);
  };
  return 1e-7 * (ticks(kernel) + ticks(user));
}

PROCESS_MEMORY_COUNTERS counters() {
  PROCESS_MEMORY_COUNTERS counters{};
  counters.cb = sizeof counters;
  K32GetProcessMemoryInfo(GetCurrentProcess(), &counters, sizeof counters);
  return counters;
}

}  // namespace

// The time that passes: GetThreadTimes() counts in steps of 16 ms, which is longer than most measurements.
double thread_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double process_seconds() {
  FILETIME created{}, ended{}, kernel{}, user{};
  GetProcessTimes(GetCurrentProcess(), &created, &ended, &kernel, &user);
  return seconds(kernel, user);
}

double memory() { return static_cast<double>(counters().WorkingSetSize); }
double most_memory() { return static_cast<double>(counters().PeakWorkingSetSize); }

void reset_most_memory() {}  // Windows keeps the most since the start

}  // namespace saccade::cli::bench
