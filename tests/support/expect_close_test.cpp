// The comparison itself: it must fail when it should.
#include "support/expect_close.h"

#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>

#include <limits>

namespace saccade::test {
namespace {

using ::testing::HasSubstr;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Tensor f32(std::initializer_list<float> values) { return Tensor::of<float>(values); }
Tensor f64(std::initializer_list<double> values) { return Tensor::of<double>(values); }

TEST(IsClose, AcceptsWhatEqualsTheReference) {
  const Tensor numbers = f64({1.0, -2.0, 0.0, kInf, -kInf, kNan});
  EXPECT_TRUE(is_close(numbers, {.reference = numbers, .naive = numbers}));
}

TEST(IsClose, AllowsTwiceTheWorstErrorOfNaive) {
  const Tensor reference = f32({1, 2, 0});
  const Tensor naive = f32({1, 2.25F, 0});
  const Tensor zero = f32({0, 0, 0});
  EXPECT_TRUE(is_close(f32({1.5F, 2, -0.5F}), {.reference = reference, .naive = naive, .bound = zero}));
  EXPECT_FALSE(is_close(f32({1.5001F, 2, 0}), {.reference = reference, .naive = naive, .bound = zero}));
  EXPECT_FALSE(is_close(f32({1, 2, -0.5001F}), {.reference = reference, .naive = naive, .bound = zero}));
}

TEST(IsClose, AllowsThreeTimesForGradients) {
  const Tensor reference = f32({1});
  const Tensor naive = f32({1.25F});
  const Tensor zero = f32({0});
  EXPECT_FALSE(is_close(f32({1.75F}), {.reference = reference, .naive = naive, .bound = zero}));
  EXPECT_TRUE(is_close(f32({1.75F}), {.reference = reference, .naive = naive, .bound = zero}, kGradient));
}

TEST(IsClose, AllowsEightRoundingsOfTheBoundOfEachElement) {
  const Tensor reference = f64({0, 0});
  const Tensor bound = f64({1, 0.5});
  const float eps = std::numeric_limits<float>::epsilon();
  EXPECT_TRUE(is_close(f32({8 * eps, -4 * eps}), {.reference = reference, .naive = reference, .bound = bound}));
  EXPECT_FALSE(is_close(f32({9 * eps, 0}), {.reference = reference, .naive = reference, .bound = bound}));
  EXPECT_FALSE(is_close(f32({0, 5 * eps}), {.reference = reference, .naive = reference, .bound = bound}));
}

TEST(IsClose, TakesTheMagnitudeOfTheReferenceForAMissingBound) {
  const Tensor reference = f64({-1.0, 0.0});
  const float eps = std::numeric_limits<float>::epsilon();
  EXPECT_TRUE(is_close(f32({-1 - 8 * eps, 0}), {.reference = reference, .naive = reference}));
  EXPECT_FALSE(is_close(f32({-1 - 9 * eps, 0}), {.reference = reference, .naive = reference}));
  EXPECT_FALSE(is_close(f32({-1, eps}), {.reference = reference, .naive = reference}));
}

TEST(IsClose, CountsTheRoundingsOfTheCoarsestType) {
  const Tensor one = f64({1.0});
  const Tensor out = f32({1 + 0x1p-7F});
  EXPECT_FALSE(is_close(out, {.reference = one, .naive = one}));
  EXPECT_FALSE(is_close(out, {.reference = one, .naive = one, .coarsest = DType::f32}));
  EXPECT_TRUE(is_close(out, {.reference = one, .naive = one, .coarsest = DType::f16}));
  EXPECT_TRUE(is_close(out, {.reference = one, .naive = one, .coarsest = DType::bf16}));
}

TEST(IsClose, WantsNanAndInfWhereTheReferenceHasThem) {
  const Tensor one = f64({1.0});
  for (const double special : {kNan, kInf, -kInf}) {
    const Tensor reference = f64({special});
    EXPECT_FALSE(is_close(f64({special}), {.reference = one, .naive = one})) << special;
    EXPECT_FALSE(is_close(one, {.reference = reference, .naive = reference})) << special;
  }
  const Tensor infinite = f64({kInf});
  EXPECT_FALSE(is_close(f64({-kInf}), {.reference = infinite, .naive = infinite}));
  EXPECT_FALSE(is_close(f64({kNan}), {.reference = infinite, .naive = infinite}));
}

TEST(IsClose, AllowsNothingForWhatNaiveCouldNotCompute) {
  const Tensor reference = f64({1.0, 2.0});
  const Tensor overflown = f64({kInf, 2.0});
  const Tensor poisoned = f64({kNan, 2.0});
  EXPECT_FALSE(is_close(f64({1.5, 2.0}), {.reference = reference, .naive = overflown}));
  EXPECT_FALSE(is_close(f64({1.5, 2.0}), {.reference = reference, .naive = poisoned}));
  EXPECT_TRUE(is_close(f64({1.0, 2.0}), {.reference = reference, .naive = overflown}));
  const Tensor infinite_bound = f64({kInf, kNan});
  EXPECT_FALSE(is_close(f64({1.5, 2.5}), {.reference = reference, .naive = reference, .bound = infinite_bound}));
}

TEST(IsClose, WantsOneShape) {
  const Tensor row = f64({1.0, 2.0});
  const Tensor column = row.reshaped({2, 1});
  const auto result = is_close(column, {.reference = row, .naive = row});
  ASSERT_FALSE(result);
  EXPECT_THAT(result.message(), HasSubstr("[2, 1]"));
  EXPECT_FALSE(is_close(row, {.reference = row, .naive = column}));
  EXPECT_FALSE(is_close(row, {.reference = row, .naive = row, .bound = column}));
}

TEST(IsClose, NamesTheWorstElementBothValuesAndTheRatio) {
  const Tensor reference = Tensor::of<double>({{1.0, 2.0, 3.0}, {4.0, 5.0, 6.0}});
  Tensor naive = reference;
  naive.at<double>(0, 0) = 1.25;
  Tensor out = reference;
  out.at<double>(0, 2) = 4.0;
  out.at<double>(1, 1) = 3.0;
  const Tensor zero(DType::f64, {2, 3});
  const auto result = is_close(out, {.reference = reference, .naive = naive, .bound = zero});
  ASSERT_FALSE(result);
  EXPECT_THAT(result.message(), HasSubstr("element [1, 1] is 3 but the reference has 5"));
  EXPECT_THAT(result.message(), HasSubstr("off by 2, 4 times what is allowed"));
  EXPECT_THAT(result.message(), HasSubstr("2 of 6 elements"));
}

TEST(IsClose, HasNothingAgainstNoElements) {
  const Tensor none(DType::f32, {0, 3});
  EXPECT_TRUE(is_close(none, {.reference = none, .naive = none}));
}

TEST(ExpectClose, FailsTheTest) {
  EXPECT_NONFATAL_FAILURE(expect_close(Tensor::of<float>({1.0F}), {.reference = Tensor::of<double>({2.0}),
                                                                   .naive = Tensor::of<double>({2.0})}),
                          "element [0] is 1 but the reference has 2");
}

}  // namespace
}  // namespace saccade::test
