// The time and memory measurements of `saccade bench`.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <vector>

namespace saccade::cli::bench {

/// When repetitions end: after `seconds` and at least `fewest` of them.
struct Effort {
  double seconds = 0.6;
  std::size_t fewest = 5;
};
inline constexpr Effort kUsual{}, kQuick{.seconds = 0.15, .fewest = 3};

/// Memory that no cache holds, to measure main memory: read bandwidth fell from 29 GB/s with 64 MiB to 15.6 with
/// 512 MiB (Granite Rapids, an L3 cache of 480 MiB shared with others).
inline constexpr std::size_t kUncachedBytes = std::size_t{512} << 20;

/// The measurements of one piece of work.
struct Timing {
  double seconds = 0.0;  ///< the median
  double share = 0.0;    ///< the median of yardstick / work; 1 means as fast as the yardstick
};

/// Times `work` repeatedly after one call that does not count. `yardstick` returns the seconds to compare with; it
/// is called right before each repetition, so that a change of the CPU's clock affects both. A
/// repetition does not count, unless there are too few others, if another program used the core, or its other
/// hyperthread: if this thread did not run all the time, or if a fixed loop before or after it took longer than it
/// did at best.
Timing measure(const Effort& effort, const std::function<void()>& work, const std::function<double()>& yardstick);

/// The repetitions of all calls of measure(), and how many of them were disturbed.
struct Repetitions {
  std::size_t all = 0, disturbed = 0;
};
Repetitions repetitions_so_far();

/// The seconds that a call takes.
template <class Work>
double seconds_of(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// The peak memory in bytes of the process during a call, minus its memory before, as the system counts it; 0
/// where the system does not provide it. Workspaces of earlier calls are released first.
double extra_memory(const std::function<void()>& work);

/// The median; for an even number of values, the upper of the middle two. There must be at least one value.
double median(std::vector<double> values);

}  // namespace saccade::cli::bench
