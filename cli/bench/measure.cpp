#include "measure.h"

#include <saccade/runtime.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <algorithm>
#include <fstream>
#include <string>

namespace saccade::cli::bench {
namespace {

/// A line of /proc/self/status in bytes, "VmRSS" (memory held now) or "VmHWM" (the most so far); 0 where the
/// system does not provide it.
double memory(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    double kibibytes = 0.0;
    if (word == name + ":" && status >> kibibytes) return kibibytes * 1024;
  }
  return 0.0;
}

}  // namespace

Timing measure(const Effort& effort, const std::function<void()>& work, const std::function<double()>& yardstick) {
  constexpr std::size_t kMost = 200;
  work();
  std::vector<double> seconds, shares;
  for (double spent = 0.0; seconds.size() < effort.fewest || (spent < effort.seconds && seconds.size() < kMost);) {
    double limit = 0.0;
    spent += seconds_of([&] { limit = yardstick(); });
    seconds.push_back(seconds_of(work));
    spent += seconds.back();
    shares.push_back(limit / seconds.back());
  }
  return {median(seconds), median(shares)};
}

double extra_memory(const std::function<void()>& work) {
  release_workspaces();
#ifdef __GLIBC__
  malloc_trim(0);  // memory that is free but still held would not count when it is used
#endif
  std::ofstream("/proc/self/clear_refs") << "5";  // resets the peak to the memory held now: proc(5)
  const double before = memory("VmRSS");
  work();
  return memory("VmHWM") - before;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace saccade::cli::bench
