// attention() and decode() on random problems against the reference, on every instruction set of the machine.
#include "support/sweep.h"

namespace saccade::test {
namespace {

TEST(AttentionSweep, AgreesWithTheReferenceOnRandomProblems) {
  sweep(
      20240607, 400, [](cases::AttentionCase& problem, std::uint64_t) { return cases::CheckedCase(problem); },
      [](const cases::AttentionCase&) { return true; });
}

}  // namespace
}  // namespace saccade::test
