// Sweeps over random problems; the environment sets their number.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <vector>

#include "cases/random_case.h"
#include "saccade/runtime.h"
#include "support/each_isa.h"

namespace saccade::test {

/// A whole number from the environment.
inline std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

/// Every instruction set that the machine has or emulates, or the one that SACCADE_ISA forces.
inline std::vector<Isa> isas_to_check() {
  return std::getenv("SACCADE_ISA") != nullptr ? std::vector{active_isa()} : isas_of_tests();
}

/// Random problems, SACCADE_TEST_CASES of them (default: `count`) beginning at SACCADE_TEST_SEED: on every
/// instruction set the results of check(problem, seed).run() must agree with the reference. Skips problems for
/// which `fits` is false.
template <class Check, class Fits>
void sweep(std::uint64_t seed, std::uint64_t count, const Check& check, const Fits& fits) {
  seed = from_environment("SACCADE_TEST_SEED", seed);
  count = from_environment("SACCADE_TEST_CASES", count);
  const Isa before = active_isa();
  for (std::uint64_t i = 0; i < count; ++i) {
    cases::AttentionCase problem = cases::draw_case(seed + i);
    if (!fits(problem)) continue;
    auto checked = check(problem, seed + i);
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

}  // namespace saccade::test
