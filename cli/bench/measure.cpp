#include "measure.h"

#include <saccade/limits.h>
#include <saccade/runtime.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <time.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <limits>
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

Repetitions repetitions;

struct Repetition {
  double seconds, share;
  double running;  // the share of its time in which the system let it run; 1 with several threads, which may wait
  double loop;     // the longer of the fixed loops before and after
};

/// The processor time of this thread (CLOCK_THREAD_CPUTIME_ID) or of all threads (CLOCK_PROCESS_CPUTIME_ID).
double processor_seconds(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Seconds that 10^9 multiply-adds on registers would take, from a loop of a fixed number, some 0.3 milliseconds.
double seconds_of_fixed_loop() { return 2e9 / measure_peak_flops(1, 1e-4); }

std::vector<Repetition> undisturbed(const std::vector<Repetition>& all, double fastest_loop) {
  constexpr double kDisturbed = 1.1, kRunning = 0.95;
  std::vector<Repetition> quiet;
  std::ranges::copy_if(all, std::back_inserter(quiet), [&](const Repetition& one) {
    return one.running >= kRunning && one.loop <= kDisturbed * fastest_loop;
  });
  return quiet;
}

}  // namespace

Timing measure(const Effort& effort, const std::function<void()>& work, const std::function<double()>& yardstick) {
  constexpr std::size_t kMost = 200;
  static double fastest_loop = std::numeric_limits<double>::infinity();  // of the program
  work();
  std::vector<Repetition> all;
  double before = seconds_of_fixed_loop();
  for (double spent = 0.0; all.size() < effort.fewest || (spent < effort.seconds && all.size() < kMost);) {
    double limit = 0.0;
    spent += seconds_of([&] { limit = yardstick(); });
    const double own = processor_seconds(CLOCK_THREAD_CPUTIME_ID);
    const double of_all = processor_seconds(CLOCK_PROCESS_CPUTIME_ID), seconds = seconds_of(work);
    const bool has_threads = processor_seconds(CLOCK_PROCESS_CPUTIME_ID) - of_all > 1.2 * seconds;
    const double running = has_threads ? 1.0 : (processor_seconds(CLOCK_THREAD_CPUTIME_ID) - own) / seconds;
    const double after = seconds_of_fixed_loop();
    spent += seconds;
    all.push_back(
        {.seconds = seconds, .share = limit / seconds, .running = running, .loop = std::max(before, after)});
    fastest_loop = std::min({fastest_loop, before, after});
    before = after;
  }
  const std::vector<Repetition> quiet = undisturbed(all, fastest_loop);
  repetitions.all += all.size();
  repetitions.disturbed += all.size() - quiet.size();
  std::vector<double> seconds, shares;
  for (const Repetition& one : quiet.size() < effort.fewest ? all : quiet) {
    seconds.push_back(one.seconds);
    shares.push_back(one.share);
  }
  return {median(seconds), median(shares)};
}

Repetitions repetitions_so_far() { return repetitions; }

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
