// attention_backward() on random problems against the reference, on every instruction set of the machine.
#include <gtest/gtest.h>

#include "cases/gradient_case.h"
#include "cases/random_case.h"
#include "sweep.h"

namespace saccade::test {
namespace {

TEST(BackwardSweep, AgreesWithTheReferenceOnRandomProblems) {
  const std::uint64_t seed = from_environment("SACCADE_TEST_SEED", 20241121);
  const std::uint64_t count = from_environment("SACCADE_TEST_CASES", 300);
  const Isa before = active_isa();
  for (std::uint64_t i = 0; i < count; ++i) {
    cases::AttentionCase problem = cases::draw_case(seed + i);
    if (!cases::has_gradients(problem)) continue;
    cases::CheckedGradients checked(problem, seed + i);
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
