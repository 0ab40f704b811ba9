// Distributed attention on random problems and divisions: the bits of one process, on every instruction set.
#include <gmock/gmock.h>

#include "cases/divided_case.h"
#include "cases/local_ranks.h"
#include "support/each_isa.h"
#include "support/environment.h"

namespace saccade::test {
namespace {

using ::testing::Each;
using ::testing::IsEmpty;

class DistributedSweep : public EachIsa {};

TEST_P(DistributedSweep, HasTheBitsOfOneProcess) {
  // Each instruction set has problems of its own.
  const ProblemRange problems =
      problems_of_test(19'000'000 + 1000 * static_cast<std::uint64_t>(GetParam()), fewer_if_slow(100));
  for (std::uint64_t seed = problems.begin; seed < problems.end; ++seed) {
    const int ranks = static_cast<int>(2 + seed % 7);
    std::vector<std::vector<std::string>> lines(static_cast<std::size_t>(ranks));
    std::string problem;
    const auto errors = cases::on_local_ranks(
        ranks,
        [&](distributed::Communicator& communicator) {
          std::string text;
          lines[static_cast<std::size_t>(communicator.rank())] = cases::compare_divided(communicator, seed, text);
          if (communicator.rank() == 0) problem = text;
        },
        std::chrono::seconds(100));
    EXPECT_THAT(errors, Each(IsEmpty())) << seed << ": " << problem;
    for (const std::vector<std::string>& of_rank : lines)
      EXPECT_THAT(of_rank, IsEmpty()) << seed << ": " << problem;
  }
}

SACCADE_FOR_EACH_ISA(DistributedSweep);

}  // namespace
}  // namespace saccade::test
