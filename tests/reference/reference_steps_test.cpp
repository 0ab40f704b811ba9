// The single steps of the reference, and the errors of the reference.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "saccade/reference.h"
#include "support/numbers.h"

namespace saccade::test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ThrowsMessage;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Tensor zeros(Shape shape) { return Tensor(DType::f32, std::move(shape)); }

// ---- The steps -----------------------------------------------------------------------------------------------

TEST(Steps, SoftmaxAndSumGoAlongAnyDimension) {
  const Tensor x = Tensor::of<float>({{1, 1, 2}, {3, 1, 6}});
  EXPECT_THAT(numbers_of(reference::normalized_by_sum(x)), ElementsAre(0.25, 0.25, 0.5, 0.3, 0.1, 0.6));
  EXPECT_THAT(numbers_of(reference::normalized_by_sum(x, 0)), ElementsAre(0.25, 0.5, 0.25, 0.75, 0.5, 0.75));
  EXPECT_THAT(numbers_of(reference::normalized_by_sum(x, -2)), ElementsAre(0.25, 0.5, 0.25, 0.75, 0.5, 0.75));

  const Tensor logs = Tensor::of<double>({{0, std::log(3.0)}, {0, 0}}).reshaped({2, 1, 2});
  for (const auto& softmax : {reference::softmax, reference::softmax_naive}) {
    EXPECT_THAT(numbers_of(softmax(logs, 2)),
                ::testing::Pointwise(::testing::DoubleEq(), std::vector{0.25, 0.75, 0.5, 0.5}));
    EXPECT_THAT(numbers_of(softmax(logs, 0)),
                ::testing::Pointwise(::testing::DoubleEq(), std::vector{0.5, 0.75, 0.5, 0.25}));
    EXPECT_THAT(numbers_of(softmax(logs, 1)), Each(1.0));
    EXPECT_THAT(softmax(logs, 0).shape(), ElementsAre(2, 1, 2));
  }
  EXPECT_THAT(
      [&] { reference::softmax(x, 2); },
      ThrowsMessage<std::invalid_argument>("[reference::softmax] dimension 2 does not exist in shape [2, 3]"));
  EXPECT_THROW(reference::softmax(x, -3), std::invalid_argument);
  EXPECT_THROW(reference::softmax(Tensor()), std::invalid_argument);
}

TEST(Steps, StableSoftmaxDoesWhereTheNaiveOneOverflows) {
  const Tensor large = Tensor::of<double>({1000, 1000});
  EXPECT_THAT(numbers_of(reference::softmax(large)), ElementsAre(0.5, 0.5));
  EXPECT_THAT(numbers_of(reference::softmax_naive(large)), Each(::testing::IsNan()));
  const Tensor nothing = Tensor::of<double>({-kInf, -kInf});
  EXPECT_THAT(numbers_of(reference::softmax(nothing)), ElementsAre(0, 0));
}

TEST(Steps, TakeAnyTypeAndStrides) {
  const Tensor x = Tensor::of<std::int32_t>({{1, 2, 3}, {4, 5, 6}});
  EXPECT_THAT(numbers_of(reference::transpose(x)), ElementsAre(1, 4, 2, 5, 3, 6));
  EXPECT_THAT(numbers_of(reference::matmul(x, x.view().transposed(0, 1))), ElementsAre(14, 32, 32, 77));
  EXPECT_THAT(numbers_of(reference::scores(x, x)), ElementsAre(14, 32, 32, 77));
  EXPECT_THAT(numbers_of(reference::scaled(x.view().select(1, 2), 0.5)), ElementsAre(1.5, 3));
}

TEST(Steps, CausalMasksAndMasking) {
  using reference::causal_mask;
  EXPECT_THAT(numbers_of(causal_mask(2, 3)), ElementsAre(1, 0, 0, 1, 1, 0));
  EXPECT_THAT(numbers_of(causal_mask(2, 3, Causal::bottom_right)), ElementsAre(1, 1, 0, 1, 1, 1));
  EXPECT_THAT(numbers_of(causal_mask(3, 2, Causal::bottom_right)), ElementsAre(0, 0, 1, 0, 1, 1));
  EXPECT_THAT(numbers_of(causal_mask(2, 2, Causal::none)), Each(1.0));
  const Tensor scores = Tensor::of<float>({{1, static_cast<float>(kNan)}, {3, 4}});
  EXPECT_THAT(numbers_of(reference::masked(scores, causal_mask(2, 2))), ElementsAre(1, -kInf, 3, 4));
  EXPECT_THAT(numbers_of(reference::masked(scores, Tensor::of<bool>({true, false}))),
              ElementsAre(1, -kInf, 3, -kInf));
  EXPECT_THROW(reference::masked(scores, Tensor::of<bool>({true, false, true})), std::invalid_argument);
  EXPECT_THROW(reference::masked(scores, Tensor::of<float>({1, 0})), std::invalid_argument);
  EXPECT_THROW(causal_mask(-1, 2), std::invalid_argument);
}

TEST(Steps, DropoutScalesWhatItKeeps) {
  const Tensor weights = Tensor::of<double>({0.5, 0.25, kNan});
  EXPECT_THAT(numbers_of(reference::dropout(weights, Tensor::of<bool>({true, false, false}), 0.75)),
              ElementsAre(2, 0, 0));
  EXPECT_THROW(reference::dropout(weights, Tensor::of<bool>({true, false}), 0.5), std::invalid_argument);
  EXPECT_THROW(reference::dropout(weights, weights, 0.5), std::invalid_argument);
  EXPECT_THROW(reference::dropout(weights, Tensor::of<bool>({true, true, true}), 1.0), std::invalid_argument);
  EXPECT_THROW(reference::dropout(weights, Tensor::of<bool>({true, true, true}), -0.5), std::invalid_argument);
}

TEST(Steps, RefuseShapesThatDoNotFit) {
  const Tensor matrix = zeros({2, 3});
  const Tensor vector = zeros({4});
  EXPECT_THAT([&] { reference::scores_of_query(vector, matrix); },
              ThrowsMessage<std::invalid_argument>("[reference::scores_of_query] keys has shape [2, 3] but the "
                                                   "queries have shape [4]: they differ in head_dim"));
  EXPECT_THROW(reference::scores_by_loop(matrix, zeros({2, 4})), std::invalid_argument);
  EXPECT_THROW(reference::scores(matrix, zeros({2, 4})), std::invalid_argument);
  EXPECT_THROW(reference::context_vectors(matrix, matrix), std::invalid_argument);
  EXPECT_THAT([&] { reference::transpose(vector); },
              ThrowsMessage<std::invalid_argument>("[reference::transpose] a has shape [4], not rank 2"));
  EXPECT_THROW(reference::dot(std::vector<double>{1}, std::vector<double>{1, 2}), std::invalid_argument);
}

// ---- Refusals ------------------------------------------------------------------------------------------------

class Refused : public ::testing::Test {
 protected:
  void expect(const std::string& message, const AttentionOptions& options) const {
    expect(message, q_, k_, v_, options);
  }

  static void expect(const std::string& message, const Tensor& q, const Tensor& k, const Tensor& v,
                     const AttentionOptions& options = {}) {
    EXPECT_THAT([&] { reference::attention(q, k, v, options); },
                ThrowsMessage<std::invalid_argument>("[reference::attention] " + message));
  }

  const Tensor q_ = zeros({2, 4, 3, 32});
  const Tensor k_ = zeros({2, 2, 5, 32});
  const Tensor v_ = zeros({2, 2, 5, 16});
};

TEST_F(Refused, ShapesThatDoNotFit) {
  expect("k has head_dim 64 but q has head_dim 32", q_, zeros({2, 2, 5, 64}), v_);
  expect("k has batch 1 but q has batch 2", q_, zeros({1, 2, 5, 32}), v_);
  expect("v has batch 3 but q has batch 2", q_, k_, zeros({3, 2, 5, 16}));
  expect("v has seqlen_k 6 but k has seqlen_k 5", q_, k_, zeros({2, 2, 6, 16}));
  expect("v has num_kv_heads 4 but k has num_kv_heads 2", q_, k_, zeros({2, 4, 5, 16}));
  expect("q has 4 heads, which is no multiple of k's 3", q_, zeros({2, 3, 5, 32}), zeros({2, 3, 5, 16}));
  expect("q has 4 heads, which is no multiple of k's 0", q_, zeros({2, 0, 5, 32}), zeros({2, 0, 5, 16}));
  expect("k has rank 3 but q has rank 4", q_, zeros({2, 5, 32}), v_);
  expect("v has rank 2 but q has rank 4", q_, k_, zeros({5, 16}));
  expect("q has rank 1, not 2, 3 or 4", zeros({3}), k_, v_);
  expect("v has rank 5, not 2, 3 or 4", q_, k_, zeros({1, 1, 1, 1, 1}));
  expect("q has rank 0, not 2, 3 or 4", Tensor(), k_, v_);
  expect("q has head_dim 0", zeros({3, 0}), zeros({5, 0}), zeros({5, 1}));
}

TEST_F(Refused, NumbersOutOfTheirRange) {
  expect("dropout_p is 1.000000, not in [0, 1)", {.dropout_p = 1.0});
  expect("dropout_p is -0.100000, not in [0, 1)", {.dropout_p = -0.1});
  expect("dropout_p is nan, not in [0, 1)", {.dropout_p = kNan});
  expect("softcap is -1.000000, not 0 or a positive number", {.softcap = -1.0});
  expect("softcap is inf, not 0 or a positive number", {.softcap = kInf});
  expect("scale is inf, not finite", {.scale = kInf});
  expect("window_left is -2, not -1 or more", {.window_left = -2});
  expect("window_right is -2, not -1 or more", {.window_right = -2});
  expect("query_offset 9223372036854775807 is beyond +-2^62",
         {.query_offset = std::numeric_limits<std::int64_t>::max()});
  EXPECT_THAT([&] { reference::attention(q_, k_, v_, {}, DType::f16); },
              ThrowsMessage<std::invalid_argument>("[reference::attention] precision is f16, not f64 or f32"));
}

TEST_F(Refused, OptionsWithoutNumbers) {
  const auto nowhere = [](DType dtype, std::initializer_list<std::int64_t> shape) {
    const std::vector<std::int64_t> strides(shape.size(), 1);
    return TensorView(nullptr, dtype, std::span(shape.begin(), shape.end()), strides);
  };
  expect("kv_starts has shape [2] but no data (null pointer)", {.kv_starts = nowhere(DType::i64, {2})});
  expect("mask has shape [3, 5] but no data (null pointer)", {.mask = nowhere(DType::boolean, {3, 5})});
  expect("alibi_slopes has shape [4] but no data (null pointer)", {.alibi_slopes = nowhere(DType::f32, {4})});
  expect("sinks has shape [4] but no data (null pointer)", {.sinks = nowhere(DType::f32, {4})});
  const Tensor q(DType::i4, {2, 4, 3, 32});
  expect("q is i4, without scales: dequantize() it", q, k_, v_);
  EXPECT_THAT(
      [&] {
        reference::matmul(Tensor(DType::i4, {2, 2}), zeros({2, 2}));
      },
      ThrowsMessage<std::invalid_argument>("[reference::matmul] a is i4, without scales: dequantize() it"));
}

TEST_F(Refused, MasksThatDoNotBroadcast) {
  const auto refused = [this](const Tensor& mask) {
    expect("mask has shape " + to_string(mask.shape()) + ", which does not broadcast to [2, 4, 3, 5]",
           {.mask = mask});
  };
  refused(Tensor(DType::boolean, {4}));
  refused(Tensor(DType::boolean, {5, 3}));
  refused(Tensor(DType::f32, {2, 3, 5}));
  refused(Tensor(DType::f64, {4, 4, 3, 5}));
  refused(Tensor(DType::boolean, {1, 2, 4, 3, 5}));
  expect("mask has element type u8, not bool, f32 or f64", {.mask = Tensor(DType::u8, {3, 5})});
}

TEST_F(Refused, OptionsOfOtherShapesAndTypes) {
  expect("kv_lengths has shape [3], not [batch] = [2]", {.kv_lengths = Tensor(DType::i32, {3})});
  expect("kv_lengths has shape [2, 1], not [batch] = [2]", {.kv_lengths = Tensor(DType::i32, {2, 1})});
  expect("kv_lengths has element type f32, not i32 or i64", {.kv_lengths = Tensor(DType::f32, {2})});
  expect("kv_lengths contains 6, which is not between 0 and 5", {.kv_lengths = Tensor::of<std::int32_t>({5, 6})});
  expect("kv_lengths contains -1, which is not between 0 and 5",
         {.kv_lengths = Tensor::of<std::int64_t>({-1, 5})});
  expect("query_offsets has shape [1], not [batch] = [2]", {.query_offsets = Tensor(DType::i64, {1})});
  expect("query_offset and query_offsets are both given",
         {.query_offset = 1, .query_offsets = Tensor(DType::i64, {2})});
  expect("alibi_slopes has shape [2] but q has 4 heads", {.alibi_slopes = zeros({2})});
  expect("alibi_slopes has shape [3, 4], which does not broadcast to [2, 4]", {.alibi_slopes = zeros({3, 4})});
  expect("alibi_slopes has element type i64, not f32 or f64", {.alibi_slopes = Tensor(DType::i64, {4})});
  expect("sinks has shape [2] but q has 4 heads", {.sinks = zeros({2})});
  expect("sinks has shape [1, 4], which does not broadcast to [4]", {.sinks = zeros({1, 4})});
}

}  // namespace
}  // namespace saccade::test
