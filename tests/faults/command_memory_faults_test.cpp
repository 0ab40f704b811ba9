// Memory that runs out while the command runs: exit code 2, a line, and files that are whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "faults/command_faults.h"
#include "support/environment.h"
#include "support/fault_count.h"

namespace saccade::test {
namespace {

/// Each of the first SACCADE_TEST_CASES allocations fails, and one in eight of the later ones.
TEST_F(CommandFaults, OfMemory) {
  const std::size_t one_by_one = from_environment("SACCADE_TEST_CASES", 10);
  for (const Job& job : jobs()) {
    const Files expected = expected_of(job);
    std::size_t refused = 0;
    for (std::size_t n = 1;; n += n < one_by_one ? 1 : 1 + n / 8) {
      SCOPED_TRACE(job.name + ", allocation " + std::to_string(n));
      prepare(job);
      const Files before = outputs();
      const Outcome outcome = run_with({"allocation", n, "", "out"}, job);
      EXPECT_FALSE(has_temporary_files());
      if (outcome.exit_code != 0) {
        ++refused;
        EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
        EXPECT_THAT(outcome.err, ::testing::AnyOf(::testing::EndsWith("saccade: not enough memory\n"),
                                                  ::testing::EndsWith("does not fit in memory\n")));
        expect_old_or_new(outputs(), before, expected);
      } else {
        EXPECT_EQ(differences(outputs(), expected), "");
      }
      if (!has_come()) break;
    }
    EXPECT_GT(refused, 0U);
    count_faults(refused);
  }
}

}  // namespace
}  // namespace saccade::test
