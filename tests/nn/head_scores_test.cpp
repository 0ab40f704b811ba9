#include "saccade/head_scores.h"

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

TEST(HeadScores, RefuseWhatDoesNotFit) {
  EXPECT_THROW(previous_token_scores(Tensor(DType::f32, {2, 5, 5})), std::invalid_argument);
  EXPECT_THROW(previous_token_scores(Tensor(DType::f32, {1, 2, 5, 4})), std::invalid_argument);
  EXPECT_THROW(induction_scores(weights(), Tensor(DType::i64, {1, 4})), std::invalid_argument);
  EXPECT_THROW(induction_scores(weights(), Tensor(DType::f32, {1, 5})), std::invalid_argument);
}

}  // namespace
}  // namespace saccade::test
