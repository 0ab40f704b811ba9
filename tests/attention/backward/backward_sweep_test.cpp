// attention_backward() on random problems against the reference, on every instruction set of the machine.
#include "cases/gradient_case.h"
#include "support/sweep.h"

namespace saccade::test {
namespace {

cases::CheckedGradients check(cases::AttentionCase& problem, std::uint64_t seed) { return {problem, seed}; }

TEST(BackwardSweep, AgreesWithTheReferenceOnRandomProblems) { sweep(20241121, 300, check, cases::has_gradients); }

TEST(BackwardSweep, AgreesWithTheReferenceOnProblemsThatFailed) {
  for (const std::uint64_t seed : {305577U}) check_on_every_isa(cases::draw_case(seed), seed, check);
}

}  // namespace
}  // namespace saccade::test
