// Caches after random changes against plain tensors, on every instruction set of the machine.
#include <gmock/gmock.h>

#include <set>

#include "cases/caches/cache_case.h"
#include "support/each_isa.h"
#include "support/environment.h"

namespace saccade::test {
namespace {

using ::testing::HasSubstr;

class KvCacheSweep : public EachIsa {};
SACCADE_FOR_EACH_ISA(KvCacheSweep);

void check_problem(std::uint64_t seed) {
  const cases::CacheCase problem(seed);
  SCOPED_TRACE("SACCADE_TEST_SEED=" + std::to_string(seed) + " SACCADE_TEST_CASES=1: " + problem.describe());
  for (const auto& [result, comparison] : problem.run())
    EXPECT_TRUE(comparison.holds) << result << ": " << to_string(comparison);
}

TEST_P(KvCacheSweep, HasTheBitsOfPlainTensors) {
  // Each instruction set has problems of its own.
  const ProblemRange problems =
      problems_of_test(31'000'000 + 1000 * static_cast<std::uint64_t>(GetParam()), fewer_if_slow(60));
  for (std::uint64_t seed = problems.begin; seed < problems.end; ++seed) check_problem(seed);
}

TEST_P(KvCacheSweep, AgreesWithTheReferenceOnProblemsThatFailed) {
  for (const std::uint64_t seed : {600718, 604915}) check_problem(seed);
}

TEST(KvCacheCases, CoverTypesChangesAndOptions) {
  std::set<std::string> seen;
  const std::string wanted[] = {"k f32",        "k bf16",   "k f16",     "k f64",       "k i8",
                                "k i4",         "k f8e4m3", "v i8",      "v i4",        "pages",
                                "window",       "rope",     "rotated",   "not rotated", "truncate",
                                "share prefix", "clear",    "set start", "restore",     "not causal"};
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const std::string line = cases::CacheCase(seed).describe();
    for (const std::string& word : wanted)
      if (line.find(word) != std::string::npos) seen.insert(word);
  }
  EXPECT_THAT(seen, ::testing::UnorderedElementsAreArray(wanted));
}

TEST(KvCacheCases, CanBeMadeSimpler) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    const cases::CacheCase whole(seed);
    cases::Simplification simpler = cases::parse_simplification(
        "steps=1 batch=1 kv_heads=1 heads=1 seqlen_q=1 seqlen_k=2 head_dim=1 head_dim_v=1 f32 one_thread");
    simpler.without = whole.options();
    const cases::CacheCase least(seed, simpler);
    EXPECT_THAT(least.describe(), HasSubstr("batch 1, heads 1 over 1, q f32, o f32, k f32 1, v f32 1")) << seed;
    EXPECT_THAT(least.describe(), ::testing::EndsWith("1 row asks")) << seed;
    EXPECT_THAT(least.options(), ::testing::ElementsAre("kv_starts")) << least.describe();
    for (const auto& [result, comparison] : least.run()) EXPECT_TRUE(comparison.holds) << result << seed;
  }
}

}  // namespace
}  // namespace saccade::test
