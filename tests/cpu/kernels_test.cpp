// Each function of the kernels by itself, against plain loops, on every level of this machine: vector types, exp2,
// conversions, transposes, packing, the microkernels of products. The checks are in tests/cpu/checks;
// tests/cpu/levels compiles them for the instructions of each level.
#include <gmock/gmock.h>

#include <ostream>
#include <string>
#include <vector>

#include "cpu/checks/findings.h"
#include "support/each_isa.h"

namespace saccade::test {
namespace {

/// A check on a level; its test is named "level_function".
struct CheckOfLevel {
  std::string level;
  Check check;
};

void PrintTo(const CheckOfLevel& check, std::ostream* out) { *out << check.level << "'s " << check.check.name; }

void add(std::vector<CheckOfLevel>& all, const std::string& level, const std::vector<Check>& checks) {
  for (const Check& check : checks) all.push_back({level, check});
}

/// Whether this machine executes a level's instructions itself.
[[maybe_unused]] bool executes(Isa isa) {
  return std::ranges::count(available_isas(), isa) > 0 && !is_emulated(isa);
}

std::vector<CheckOfLevel> checks_of_this_machine() {
  std::vector<CheckOfLevel> all;
  add(all, "scalar", checks_of_scalar());
  add(all, "scalar_f64", checks_of_scalar_f64());
#if defined(__x86_64__)
  if (executes(Isa::avx2)) {
    add(all, "avx2", checks_of_avx2());
    add(all, "avx2_f64", checks_of_avx2_f64());
    add(all, "avx2_amx_twin", checks_of_avx2_amx_twin());
  }
  if (executes(Isa::avx512)) {
    add(all, "avx512", checks_of_avx512());
    add(all, "avx512_f64", checks_of_avx512_f64());
  }
  if (executes(Isa::avx512bf16)) add(all, "avx512bf16", checks_of_avx512bf16());
  if (executes(Isa::avx512amx)) add(all, "avx512amx", checks_of_avx512amx());
#elif defined(__aarch64__)
  add(all, "neon", checks_of_neon());
  add(all, "neon_f64", checks_of_neon_f64());
#ifdef SACCADE_NEON_PRODUCTS
  if (executes(Isa::neonbf16)) add(all, "neonbf16", checks_of_neonbf16());
#endif
#endif
  return all;
}

class Kernels : public ::testing::TestWithParam<CheckOfLevel> {};

TEST_P(Kernels, AgreeWithPlainLoops) {
  Findings findings;
  GetParam().check.run(findings);
  for (const std::string& failure : findings.failures()) ADD_FAILURE() << failure;
  EXPECT_GT(findings.compared(), 0);
}

INSTANTIATE_TEST_SUITE_P(Level, Kernels, ::testing::ValuesIn(checks_of_this_machine()),
                         [](const auto& test) { return test.param.level + "_" + test.param.check.name; });

}  // namespace
}  // namespace saccade::test
