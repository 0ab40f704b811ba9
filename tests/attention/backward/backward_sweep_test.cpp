// attention_backward() on random problems against the reference, on every instruction set of the machine.
#include "cases/gradient_case.h"
#include "support/sweep.h"

namespace saccade::test {
namespace {

TEST(BackwardSweep, AgreesWithTheReferenceOnRandomProblems) {
  sweep(
      20241121, 300,
      [](cases::AttentionCase& problem, std::uint64_t seed) { return cases::CheckedGradients(problem, seed); },
      cases::has_gradients);
}

}  // namespace
}  // namespace saccade::test
