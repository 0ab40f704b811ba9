// Problems from a file, in the format of `saccade check --shapes`.
#include <saccade/runtime.h>

#include "sections.h"
#include "timed_problem.h"

namespace saccade::cli::bench {
namespace {

std::vector<Line> measure_shape(const cases::Problem& problem, const Conditions& conditions) {
  TimedProblem timed(problem);
  const int own_threads = problem.options.num_threads;
  const std::vector<int> threads = own_threads > 0 ? std::vector{own_threads} : conditions.threads;
  std::vector<Line> lines;
  for (const int count : threads) {
    const Timing timing = measure(
        conditions.effort, [&] { timed.run(count); },
        [&] { return problem.calls_decode ? timed.seconds_of_reading(count) : timed.seconds_at_peak(count); });
    const double work = problem.calls_decode ? timed.kv_bytes() : timed.flops();
    lines.push_back({problem.name(),
                     count,
                     timing.seconds,
                     {{problem.calls_decode ? "gbytes" : "gflops", work / timing.seconds * 1e-9, 1},
                      {problem.calls_decode ? "share_of_bandwidth" : "share_of_peak", timing.share, 3}},
                     timed.agrees()});
  }
  return lines;
}

}  // namespace

Section shapes_section(const std::vector<cases::Problem>& problems) {
  Section section{"shapes", "", {"GFLOP/s (decode: GB/s)", "of the limit"}, {}};
  for (const cases::Problem& problem : problems)
    section.items.push_back(
        [problem](const Conditions& conditions) { return measure_shape(problem, conditions); });
  return section;
}

}  // namespace saccade::cli::bench
