#include "measure.h"

#include <saccade/limits.h>
#include <saccade/runtime.h>

#include <algorithm>
#include <iterator>
#include <limits>

#include "system/resources.h"

namespace saccade::cli::bench {
namespace {

Repetitions repetitions;

struct Repetition {
  double seconds, share;
  double running;  // the share of its time in which the system let it run; 1 with several threads, which may wait
  double loop;     // the longer of the fixed loops before and after
};

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
    const double own = thread_seconds();
    const double of_all = process_seconds(), seconds = seconds_of(work);
    const bool has_threads = process_seconds() - of_all > 1.2 * seconds;
    const double running = has_threads ? 1.0 : (thread_seconds() - own) / seconds;
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
  reset_most_memory();
  const double before = memory();
  work();
  return most_memory() - before;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace saccade::cli::bench
