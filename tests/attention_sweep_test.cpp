// attention() and decode() on random problems against the reference, on every instruction set of the machine.
#include <gtest/gtest.h>

#include "cases/random_case.h"
#include "sweep.h"

namespace saccade::test {
namespace {

TEST(AttentionSweep, AgreesWithTheReferenceOnRandomProblems) {
  const std::uint64_t seed = from_environment("SACCADE_TEST_SEED", 20240607);
  const std::uint64_t count = from_environment("SACCADE_TEST_CASES", 400);
  const Isa before = active_isa();
  for (std::uint64_t i = 0; i < count; ++i) {
    cases::AttentionCase problem = cases::draw_case(seed + i);
    cases::CheckedCase checked(problem);
    for (const Isa isa : isas_to_check()) {
      set_active_isa(isa);
      for (const auto& [result, comparison] : checked.run()) {
        EXPECT_TRUE(comparison.holds) << result << " on " << name_of(isa) << ": " << to_string(comparison)
                                      << "\n  SACCADE_TEST_SEED=" << seed + i
                                      << " SACCADE_TEST_CASES=1: " << cases::describe(problem);
      }
    }
    set_active_isa(before);
  }
}

}  // namespace
}  // namespace saccade::test
