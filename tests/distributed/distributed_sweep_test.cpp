// Distributed attention on random problems and divisions: the bits of one process, on every instruction set.
#include <gmock/gmock.h>

#include <thread>

#include "cases/divided_case.h"
#include "support/each_isa.h"
#include "support/environment.h"

namespace saccade::test {
namespace {

using ::testing::IsEmpty;

class DistributedSweep : public EachIsa {};

TEST_P(DistributedSweep, HasTheBitsOfOneProcess) {
  // Each instruction set has problems of its own.
  const ProblemRange problems = problems_of_test(19'000'000 + 1000 * static_cast<std::uint64_t>(GetParam()), 100);
  for (std::uint64_t seed = problems.begin; seed < problems.end; ++seed) {
    const int ranks = static_cast<int>(2 + seed % 7);
    const auto communicators = distributed::local_communicators(ranks);
    std::vector<std::thread> threads;
    std::vector<std::vector<std::string>> lines(communicators.size());
    std::string problem;
    for (std::size_t rank = 0; rank < communicators.size(); ++rank) {
      communicators[rank]->set_timeout(std::chrono::seconds(100));
      threads.emplace_back([&, rank] {
        std::string text;
        try {
          lines[rank] = cases::compare_divided(*communicators[rank], seed, text);
        } catch (const std::exception& error) {
          lines[rank] = {error.what()};
        }
        if (rank == 0) problem = text;
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::vector<std::string>& of_rank : lines)
      EXPECT_THAT(of_rank, IsEmpty()) << seed << ": " << problem;
  }
}

SACCADE_FOR_EACH_ISA(DistributedSweep);

}  // namespace
}  // namespace saccade::test
