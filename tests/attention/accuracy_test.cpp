// How exact results are: in units of 2^-24, half the distance from 1 to the next f32 number. Beside one chain of
// multiply-adds for each sum, whose error grows with its length.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "saccade/attention.h"
#include "saccade/backward.h"
#include "saccade/decode.h"
#include "saccade/reference.h"
#include "support/each_isa.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

constexpr double kUnit = 0x1p-24;

class Accuracy : public EachIsa {};

/// Numbers in [0, 1): their sums grow with each term.
Tensor positive_tensor(Shape shape, std::uint64_t seed) {
  Tensor result = random_tensor(std::move(shape), seed);
  for (float& x : result.values<float>()) x = std::abs(x) - std::floor(std::abs(x));
  return result;
}

double root_mean_square(const std::vector<double>& numbers) {
  double sum = 0;
  for (const double x : numbers) sum += x * x;
  return std::sqrt(sum / static_cast<double>(numbers.size()));
}

/// The errors of `numbers` that differ from number to number, relative to the reference.
double relative_error(const Tensor& numbers, const Tensor& reference) {
  std::vector<double> errors(static_cast<std::size_t>(numbers.size()));
  double mean = 0;
  for (std::size_t i = 0; i < errors.size(); ++i) {
    const double wanted = reference.values<double>()[i];
    errors[i] = (static_cast<double>(numbers.values<float>()[i]) - wanted) / wanted;
    mean += errors[i] / static_cast<double>(errors.size());
  }
  for (double& error : errors) error -= mean;
  return root_mean_square(errors);
}

using Call = Tensor (*)(const TensorView&, const TensorView&, const TensorView&, const AttentionOptions&);

/// The error of scores over 256 dimensions, whose standard deviation is 1.
double error_of_scores(Call call, std::int64_t heads) {
  const Tensor q = random_tensor({1, heads, 10, 256}, 1), k = random_tensor({1, 1, 300, 256}, 2);
  const Tensor v = random_tensor({1, 1, 300, 8}, 3);
  Tensor scores(DType::f32, {1, heads, 10, 300});
  const AttentionOptions options{.scores = scores, .score_stage = ScoreStage::raw};
  call(q, k, v, options);
  const Tensor exact = reference::attention(q, k, v, options).scores;
  std::vector<double> errors;
  for (std::size_t i = 0; i < static_cast<std::size_t>(scores.size()); ++i)
    errors.push_back(static_cast<double>(scores.values<float>()[i]) - exact.values<double>()[i]);
  return root_mean_square(errors);
}

TEST_P(Accuracy, OfScoresDoesNotGrowBeyondThatOf64Dimensions) {
  EXPECT_LT(error_of_scores(attention, 4), 4 * kUnit);  // as one chain: 4.8
}

TEST_P(Accuracy, OfScoresOfDecodeDoesNotEither) {
  for (const std::int64_t heads : {1, 4}) EXPECT_LT(error_of_scores(decode, heads), 4 * kUnit) << heads;
}

TEST_P(Accuracy, OfOutputsAddsUpBlocksOfKeys) {
  // All weights are 1 / 2048 and exact.
  const Tensor q(DType::f32, {1, 1, 16, 8}), k = random_tensor({1, 1, 2048, 8}, 1);
  const Tensor v = positive_tensor({1, 1, 2048, 64}, 2);
  const Tensor o = attention(q, k, v);
  EXPECT_LT(relative_error(o, reference::attention(q, k, v).o), 4 * kUnit);  // as one chain: 11
}

/// The error of dv where each of `rows` rows has equal weights for 64 keys, exactly 1 / 64.
double error_of_dv(std::int64_t rows) {
  const Tensor q(DType::f32, {1, 1, rows, 8}), k = random_tensor({1, 1, 64, 8}, 1);
  const Tensor v = positive_tensor({1, 1, 64, 32}, 2), dout = positive_tensor({1, 1, rows, 32}, 3);
  Tensor o(DType::f32, {1, 1, rows, 32}), lse(DType::f32, {1, 1, rows});
  attention(q, k, v, o, {.lse = lse});
  Tensor dq(DType::f32, q.shape()), dk(DType::f32, k.shape()), dv(DType::f32, v.shape());
  attention_backward(q, k, v, {.o = o, .lse = lse, .dout = dout}, {.dq = dq, .dk = dk, .dv = dv});
  return relative_error(dv, reference::attention_backward(q, k, v, dout).gradients.dv);
}

TEST_P(Accuracy, OfGradientsAddsUpBlocksOfRows) {
  EXPECT_LT(error_of_dv(2048), 4 * kUnit);  // as one chain: 8.5
}

TEST_P(Accuracy, OfGradientsAddsUpFewRowsAtATime) {
  if (GetParam() == Isa::avx512amx) GTEST_SKIP() << "tiles add up in an order of their own";
  EXPECT_LT(error_of_dv(132), 1.2 * kUnit);  // as two chains: 1.6
}

TEST_P(Accuracy, OfWeightsInGradientsIsThatOfLse) {
  // With large scores, each row has an lse from 8 to 32. With dout = I, dv holds the weights of each row, whose
  // sum is 1.
  const std::int64_t rows = 128;
  Tensor q = random_tensor({1, 1, rows, 64}, 1), dout(DType::f32, {1, 1, rows, rows});
  for (float& x : q.values<float>()) x *= 4;
  for (std::int64_t i = 0; i < rows; ++i) dout.at<float>(0, 0, i, i) = 1;
  const Tensor k = random_tensor({1, 1, rows, 64}, 2), v(DType::f32, {1, 1, rows, rows});
  Tensor o(DType::f32, {1, 1, rows, rows}), lse(DType::f32, {1, 1, rows});
  attention(q, k, v, o, {.lse = lse});
  Tensor dk(DType::f32, k.shape()), dv(DType::f32, v.shape());
  attention_backward(q, k, v, {.o = o, .lse = lse, .dout = dout}, {.dk = dk, .dv = dv});
  std::vector<double> errors(static_cast<std::size_t>(rows), -1.0);
  for (std::int64_t j = 0; j < rows; ++j)
    for (std::int64_t i = 0; i < rows; ++i)
      errors[static_cast<std::size_t>(i)] += static_cast<double>(dv.at<float>(0, 0, j, i));
  EXPECT_LT(root_mean_square(errors), 13 * kUnit);  // with scores of other bits than in the forward pass: 22
}

TEST_P(Accuracy, OfLseIsOneRounding) {
  if (GetParam() == Isa::avx512amx)
    GTEST_SKIP() << "weights are relative to a whole exponent there, and not exact";
  // Keys alike: lse = score + ln 1000, with a score of at most 0.25 and so a small error of its own.
  Tensor q = positive_tensor({1, 1, 500, 1}, 1), k(DType::f32, {1, 1, 1000, 1});
  std::ranges::fill(k.values<float>(), 0.25f);
  const Tensor v = random_tensor({1, 1, 1000, 8}, 2);
  Tensor lse(DType::f32, {1, 1, 500});
  attention(q, k, v, {.scale = 1.0, .lse = lse});
  double worst = 0;
  for (std::size_t i = 0; i < 500; ++i) {
    const double exact = 0.25 * static_cast<double>(q.values<float>()[i]) + std::log(1000.0);
    worst = std::max(worst, std::abs(static_cast<double>(lse.values<float>()[i]) - exact));
  }
  EXPECT_LT(worst, 0.6 * 8 * kUnit);  // numbers from 4 to 8 are 8 units apart; with two roundings: 0.7
}

SACCADE_FOR_EACH_ISA(Accuracy);

}  // namespace
}  // namespace saccade::test
