#include "saccade/head_scores.h"
#include "support/refusal.h"

#include <gmock/gmock.h>

#include <cmath>
#include <string>

namespace saccade::test {
namespace {

/// [1, 2, 5, 5]: head 0 looks at the previous token with a weight of 0.75, head 1 at key 1 with one of 0.5.
Tensor weights() {
  Tensor result(DType::f32, {1, 2, 5, 5});
  for (std::int64_t i = 0; i < 5; ++i) {
    if (i > 0) result.at<float>(0, 0, i, i - 1) = 0.75f;
    result.at<float>(0, 1, i, 1) = 0.5f;
  }
  return result;
}

TEST(HeadScores, PreviousTokenIsTheMeanOverAllQueriesButTheFirst) {
  const Tensor scores = previous_token_scores(weights());
  ASSERT_EQ(scores.shape(), (Shape{2}));
  EXPECT_DOUBLE_EQ(scores.at<double>(0), 0.75);
  EXPECT_DOUBLE_EQ(scores.at<double>(1), 0.5 / 4);  // only query 2 has key 1 before it
}

TEST(HeadScores, InductionLooksBehindTheOneEarlierOccurrence) {
  // 7 recurs at 2; key 1 is what followed it. At 4 it has occurred twice. 8 recurs at 3; key 2 followed it.
  const Tensor tokens = Tensor::of<std::int64_t>({{7, 8, 7, 8, 7}});
  const Tensor scores = induction_scores(weights(), tokens);
  EXPECT_DOUBLE_EQ(scores.at<double>(0), (0.75 + 0.75) / 2);  // here these are the previous tokens
  EXPECT_DOUBLE_EQ(scores.at<double>(1), (0.5 + 0.0) / 2);
}

TEST(HeadScores, AreNaNWhereNoQueryCounts) {
  EXPECT_TRUE(std::isnan(induction_scores(weights(), Tensor::of<std::int64_t>({{1, 2, 3, 4, 5}})).at<double>(0)));
  EXPECT_TRUE(std::isnan(previous_token_scores(Tensor(DType::f32, {1, 1, 1, 1})).at<double>(0)));
}

TEST(HeadStatistics, AreMeansOverTheQueries) {
  // a b a b: the last two have one earlier occurrence, at 0 and 1.
  const Tensor weights = Tensor::of<float>({{1.0f, 0.0f, 0.0f, 0.0f},
                                            {0.5f, 0.5f, 0.0f, 0.0f},
                                            {0.25f, 0.5f, 0.25f, 0.0f},
                                            {0.0f, 0.25f, 0.5f, 0.25f}});
  const std::vector<std::int64_t> tokens{7, 8, 7, 8};
  const HeadStatistics statistics = head_statistics(weights, tokens);
  EXPECT_DOUBLE_EQ(statistics.previous, (0.5 + 0.5 + 0.5) / 3);
  EXPECT_DOUBLE_EQ(statistics.first, (0.5 + 0.25 + 0.0) / 3);
  EXPECT_DOUBLE_EQ(statistics.self, (1 + 0.5 + 0.25 + 0.25) / 4);
  EXPECT_DOUBLE_EQ(statistics.induction, (0.5 + 0.5) / 2);
  EXPECT_NEAR(statistics.entropy, (0 + 1 + 1.5 + 1.5) * std::log(2.0) / 4, 1e-12);
  EXPECT_DOUBLE_EQ(statistics.distance, (0 + 0.5 + 1.0 + 1.0) / 4);

  const auto weight = [&](std::int64_t query, std::int64_t key) -> double {
    return weights.at<float>(query, key);
  };
  const HeadStatistics asked = head_statistics(weight, tokens);
  EXPECT_EQ(asked.previous, statistics.previous);
  EXPECT_EQ(asked.first, statistics.first);
  EXPECT_EQ(asked.self, statistics.self);
  EXPECT_EQ(asked.induction, statistics.induction);
  EXPECT_TRUE(std::isnan(asked.entropy) && std::isnan(asked.distance));

  const TensorView batch = weights.view().reshaped({1, 1, 4, 4});
  EXPECT_EQ(previous_token_scores(batch).at<double>(0), statistics.previous);
  EXPECT_EQ(induction_scores(batch, TensorView(tokens.data(), {1, 4})).at<double>(0), statistics.induction);
}

TEST(HeadStatistics, OfAnotherSequencesKeysHaveNoPlaces) {
  const HeadStatistics statistics = head_statistics(Tensor::of<double>({{0.25, 0.75, 0.0}, {0.5, 0.0, 0.5}}));
  EXPECT_DOUBLE_EQ(statistics.first, (0.25 + 0.5) / 2);
  EXPECT_NEAR(statistics.entropy, (0.25 * std::log(4.0) + 0.75 * std::log(4.0 / 3) + std::log(2.0)) / 2, 1e-12);
  for (const double none : {statistics.previous, statistics.self, statistics.induction, statistics.distance})
    EXPECT_TRUE(std::isnan(none));
  EXPECT_TRUE(std::isnan(head_statistics(Tensor(DType::f32, {0, 3})).entropy));
}

TEST(HeadScores, RefuseWhatDoesNotFit) {
  const std::vector<std::int64_t> three{1, 2, 3};
  EXPECT_THROW(head_statistics(Tensor(DType::f32, {1, 3, 3})), std::invalid_argument);
  EXPECT_THROW(head_statistics(Tensor(DType::f32, {3, 4}), three), std::invalid_argument);

  EXPECT_THROW(previous_token_scores(Tensor(DType::f32, {2, 5, 5})), std::invalid_argument);
  EXPECT_THROW(previous_token_scores(Tensor(DType::f32, {1, 2, 5, 4})), std::invalid_argument);
  EXPECT_THROW(induction_scores(weights(), Tensor(DType::i64, {1, 4})), std::invalid_argument);
  EXPECT_THROW(induction_scores(weights(), Tensor(DType::f32, {1, 5})), std::invalid_argument);
  EXPECT_EQ(refusal([] {
              previous_token_scores(Tensor(DType::i4, {1, 1, 2, 2}));
            }),
            "[previous_token_scores] weights is i4, without scales: dequantize() it");
}

}  // namespace
}  // namespace saccade::test
