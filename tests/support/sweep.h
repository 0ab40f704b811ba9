// Sweeps over random problems; the environment sets their number.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

#include "cases/random_case.h"
#include "saccade/runtime.h"
#include "support/each_isa.h"
#include "support/environment.h"

namespace saccade::test {

/// Every instruction set that the machine has or emulates, or the one that SACCADE_ISA forces.
inline std::vector<Isa> isas_to_check() {
  return std::getenv("SACCADE_ISA") != nullptr ? std::vector{active_isa()} : isas_of_tests();
}

/// On every instruction set, the results of check(problem, seed).run() must agree with the reference. Returns how
/// many were compared.
template <class Check>
std::int64_t check_on_every_isa(cases::AttentionCase problem, std::uint64_t seed, const Check& check) {
  auto checked = check(problem, seed);
  const Isa before = active_isa();
  std::int64_t compared = 0;
  for (const Isa isa : isas_to_check()) {
    set_active_isa(isa);
    for (const auto& [result, comparison] : checked.run()) {
      ++compared;
      EXPECT_TRUE(comparison.holds) << result << " on " << name_of(isa) << ": " << to_string(comparison)
                                    << "\n  SACCADE_TEST_SEED=" << seed
                                    << " SACCADE_TEST_CASES=1: " << cases::describe(problem);
    }
  }
  set_active_isa(before);
  return compared;
}

/// The same of the random problems of problems_of_test(), of which a slow build takes fewer. Skips those for which
/// `fits` is false. Fails if nothing is compared.
template <class Check, class Fits>
void sweep(std::uint64_t seed, std::uint64_t count, const Check& check, const Fits& fits) {
  const ProblemRange problems = problems_of_test(seed, fewer_if_slow(count));
  std::int64_t compared = 0;
  for (std::uint64_t i = problems.begin; i < problems.end; ++i) {
    cases::AttentionCase problem = cases::draw_case(i);
    if (fits(problem)) compared += check_on_every_isa(std::move(problem), i, check);
  }
  EXPECT_GT(compared, 0) << "no problem fits";
}

}  // namespace saccade::test
