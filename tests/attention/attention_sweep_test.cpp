// attention() and decode() on random problems against the reference, on every instruction set of the machine.
#include "support/sweep.h"

namespace saccade::test {
namespace {

cases::CheckedCase check(cases::AttentionCase& problem, std::uint64_t) { return cases::CheckedCase(problem); }

TEST(AttentionSweep, AgreesWithTheReferenceOnRandomProblems) {
  sweep(20240607, 400, check, [](const cases::AttentionCase&) { return true; });
}

TEST(AttentionSweep, AgreesWithTheReferenceOnProblemsThatFailed) {
  for (const std::uint64_t seed : {141782U, 365009U, 436401U, 605370U, 625395U})
    check_on_every_isa(cases::draw_case(seed), seed, check);
}

}  // namespace
}  // namespace saccade::test
