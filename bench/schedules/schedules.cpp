// Prints how well the schedules use threads, for the costs of each FILE: a row for each call, a column for each
// number of threads. Usage: schedules FILE...
#include <cstdio>
#include <exception>

#include "kernels.h"

namespace saccade::simulation {
namespace {

void print_table(const UnitCosts& costs) {
  constexpr int kThreads[] = {2, 4, 8, 16, 32, 64, 128};
  std::printf("%s\n\n| call | 1 thread, ms |", costs.title.c_str());
  for (const int threads : kThreads) std::printf(" %d |", threads);
  std::printf("\n|---|---:|");
  for (std::size_t i = 0; i < std::size(kThreads); ++i) std::printf("---:|");
  for (const Problem& problem : problems()) {
    std::printf("\n| %s | %.3g |", problem.name.c_str(), seconds_of(problem, costs, 1) * 1e3);
    for (const int threads : kThreads) std::printf(" %.3f |", efficiency(problem, costs, threads));
    std::fflush(stdout);
  }
  std::printf("\n\n");
}

}  // namespace
}  // namespace saccade::simulation

int main(int count, char** arguments) {
  if (count < 2) return std::fputs("schedules: expected the name of a file of costs\n", stderr), 2;
  try {
    for (int i = 1; i < count; ++i)
      saccade::simulation::print_table(saccade::simulation::read_costs(std::string(arguments[i])));
  } catch (const std::exception& error) {
    return std::fprintf(stderr, "schedules: %s\n", error.what()), 1;
  }
}
