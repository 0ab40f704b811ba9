// Tests whose size the environment sets refuse what is no number, and fail if they compare nothing.
#include "support/sweep.h"

#include <gtest/gtest-spi.h>

#include "support/system.h"

namespace saccade::test {
namespace {

/// Sets the size of sweeps as long as it lives.
class SweepTest : public ::testing::Test {
 protected:
  ~SweepTest() override {
    set_variable("SACCADE_TEST_CASES", nullptr);
    set_variable("SACCADE_TEST_SEED", nullptr);
  }
  static void set_cases(const char* text) { set_variable("SACCADE_TEST_CASES", text); }
  static void set_seed(const char* text) { set_variable("SACCADE_TEST_SEED", text); }
};

void sweep_all() {
  sweep(
      1, 2, [](cases::AttentionCase& problem, std::uint64_t) { return cases::CheckedCase(problem); },
      [](const cases::AttentionCase&) { return true; });
}

void sweep_none() {
  sweep(
      1, 2, [](cases::AttentionCase& problem, std::uint64_t) { return cases::CheckedCase(problem); },
      [](const cases::AttentionCase&) { return false; });
}

TEST_F(SweepTest, TakesWholeNumbers) {
  EXPECT_EQ(problems_of_test(7, 3).begin, 7u);
  EXPECT_EQ(problems_of_test(7, 3).end, 10u);
  set_cases("5");
  set_seed("0");
  EXPECT_EQ(problems_of_test(7, 3).begin, 0u);
  EXPECT_EQ(problems_of_test(7, 3).end, 5u);
  sweep_all();
}

TEST_F(SweepTest, RefusesOtherText) {
#ifndef _WIN32  // where no variable is empty
  set_cases("");
  EXPECT_THROW(sweep_all(), std::invalid_argument);
#endif
  for (const char* text : {"x", " 3", "3 ", "3x", "-1", "1e3", "0x10", "99999999999999999999"}) {
    set_cases(text);
    EXPECT_THROW(sweep_all(), std::invalid_argument) << "'" << text << "'";
  }
  set_cases("1");
  set_seed("one");
  EXPECT_THROW(sweep_all(), std::invalid_argument);
}

TEST_F(SweepTest, RefusesToCompareNothing) {
  set_cases("0");
  EXPECT_THROW(sweep_all(), std::invalid_argument);
  set_cases("2");
  set_seed("18446744073709551615");
  EXPECT_THROW(sweep_all(), std::invalid_argument);
}

TEST_F(SweepTest, FailsIfNoProblemFits) { EXPECT_NONFATAL_FAILURE(sweep_none(), "no problem fits"); }

}  // namespace
}  // namespace saccade::test
