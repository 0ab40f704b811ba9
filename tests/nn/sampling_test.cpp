// Which tokens a TokenSampler draws.
#include <gmock/gmock.h>
#include <saccade/sampling.h>

#include <cmath>
#include <limits>
#include <map>
#include <vector>

namespace saccade {
namespace {

// Tokens 0 to 4 with the probabilities 0.1, 0.4, 0.2, 0.25 and 0.05.
const std::vector<float> kLogits{std::log(0.1f), std::log(0.4f), std::log(0.2f), std::log(0.25f), std::log(0.05f)};

/// How often each token is drawn in 2000 draws.
std::map<std::int64_t, int> draws(const SamplingOptions& options) {
  TokenSampler sampler(options);
  std::map<std::int64_t, int> counts;
  for (int i = 0; i < 2000; ++i) ++counts[sampler.next(kLogits)];
  return counts;
}

std::vector<std::int64_t> drawn(const SamplingOptions& options) {
  std::vector<std::int64_t> tokens;
  for (const auto& [token, count] : draws(options)) tokens.push_back(token);
  return tokens;
}

TEST(TokenSampler, DrawsFromTheFewestTokensWithTheProbability) {
  EXPECT_THAT(drawn({.top_p = 1.0}), testing::ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(drawn({.top_p = 0.9}), testing::ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(drawn({.top_p = 0.8}), testing::ElementsAre(1, 2, 3));
  EXPECT_THAT(drawn({.top_p = 0.5}), testing::ElementsAre(1, 3));
  EXPECT_THAT(drawn({.top_p = 1e-9}), testing::ElementsAre(1));
  EXPECT_NEAR(draws({.top_p = 0.5})[1], 2000 * 0.4 / 0.65, 120);  // over five standard deviations
}

TEST(TokenSampler, TakesTheProbabilityAfterTopKAndTemperature) {
  EXPECT_THAT(drawn({.top_k = 2, .top_p = 0.6}), testing::ElementsAre(1));  // 0.4 / 0.65 is more
  EXPECT_THAT(drawn({.top_k = 2, .top_p = 0.7}), testing::ElementsAre(1, 3));
  EXPECT_THAT(drawn({.temperature = 0.1, .top_p = 0.9}), testing::ElementsAre(1));
}

TEST(TokenSampler, RefusesProbabilitiesOutsideTheirRange) {
  for (const double top_p : {0.0, -0.5, 1.5, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_THROW(TokenSampler({.top_p = top_p}), std::invalid_argument) << top_p;
}

}  // namespace
}  // namespace saccade
