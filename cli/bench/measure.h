// How everything in `saccade bench` is timed.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <vector>

namespace saccade::cli::bench {

/// How often something is repeated: until `seconds` are spent and `fewest` repetitions made.
struct Effort {
  double seconds = 0.6;
  std::size_t fewest = 5;
};
inline constexpr Effort kUsual{}, kQuick{.seconds = 0.15, .fewest = 3};

/// What was seen of one piece of work.
struct Timing {
  double seconds = 0.0;  ///< its median
  double share = 0.0;    ///< the median of yardstick / work: 1 is as fast as the yardstick
};

/// Times `work` again and again after one call that does not count. `yardstick` gives the seconds to compare with,
/// and is asked right before each repetition, so that a clock that changes changes both.
Timing measure(const Effort& effort, const std::function<void()>& work, const std::function<double()>& yardstick);

/// The seconds that a call takes.
template <class Work>
double seconds_of(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// The most memory in bytes that the process held during a call beyond what it held before, by /proc/self; 0 where
/// the system does not tell. Workspaces that earlier calls left are released first.
double extra_memory(const std::function<void()>& work);

/// The middle one; of an even number the upper one of the two. There has to be one.
double median(std::vector<double> values);

}  // namespace saccade::cli::bench
