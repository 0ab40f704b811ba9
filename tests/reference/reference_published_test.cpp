// The reference on published worked examples: every printed number that its steps compute.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "saccade/random.h"
#include "saccade/reference.h"
#include "support/published.h"

namespace saccade::test {
namespace {

using reference::causal_mask;
using reference::context_vectors;
using reference::dropout;
using reference::masked;
using reference::matmul;
using reference::normalized_by_sum;
using reference::scaled;
using reference::scores;
using reference::scores_by_loop;
using reference::scores_of_query;
using reference::softmax;
using reference::softmax_naive;
using reference::transpose;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// Compares numbers with printed ones, within half a unit of their last digit.
void expect_printed(const TensorView& computed, const nlohmann::json& printed, double tolerance) {
  const Tensor wanted = tensor_of(printed);
  const Tensor numbers = Tensor::copy_of(computed, DType::f64);
  ASSERT_EQ(numbers.shape(), wanted.shape());
  for (std::size_t i = 0; i < numbers.values<double>().size(); ++i) {
    EXPECT_NEAR(numbers.values<double>()[i], wanted.values<double>()[i], tolerance) << "element " << i;
  }
}

class SixTokens : public ::testing::Test {
 protected:
  void expect(const TensorView& computed, const nlohmann::json& printed) const {
    expect_printed(computed, printed, six_.at("tolerance").get<double>());
  }

  const nlohmann::json& six_ = published().at("six_tokens");
  const Tensor inputs_ = tensor_of(six_.at("inputs"));
};

TEST_F(SixTokens, SimpleAttentionOfOneQuery) {
  const nlohmann::json& printed = six_.at("simple");
  const Tensor query_scores = scores_of_query(inputs_.view().select(0, 1), inputs_);
  expect(query_scores, printed.at("scores_query_1"));
  expect(normalized_by_sum(query_scores), printed.at("weights_query_1_sum_normalised"));
  expect(softmax_naive(query_scores), printed.at("weights_query_1_softmax"));
  expect(softmax(query_scores), printed.at("weights_query_1_softmax"));
  const Tensor weights = softmax(query_scores).reshaped({1, 6});
  expect(context_vectors(weights, inputs_).view().select(0, 0), printed.at("context_query_1"));
}

TEST_F(SixTokens, SimpleAttentionOfAllQueries) {
  const nlohmann::json& printed = six_.at("simple");
  expect(scores_by_loop(inputs_, inputs_), printed.at("scores"));
  expect(scores(inputs_, inputs_), printed.at("scores"));
  expect(matmul(inputs_, transpose(inputs_)), printed.at("scores"));
  const Tensor weights = softmax(scores(inputs_, inputs_));
  expect(weights, printed.at("weights"));
  expect(context_vectors(weights, inputs_), printed.at("contexts"));

  const auto whole = reference::attention(inputs_, inputs_, inputs_, {.scale = 1.0});
  expect(whole.scores, printed.at("scores"));
  expect(whole.weights, printed.at("weights"));
  expect(whole.o, printed.at("contexts"));
}

TEST_F(SixTokens, SelfAttentionWithParameters) {
  const nlohmann::json& printed = six_.at("self_attention_parameters");
  TorchGenerator generator(123);
  const Tensor queries = matmul(inputs_, generator.rand({3, 2}));
  const Tensor keys = matmul(inputs_, generator.rand({3, 2}));
  const Tensor values = matmul(inputs_, generator.rand({3, 2}));
  expect(queries.view().select(0, 1), printed.at("query_1"));
  const Tensor query_scores = scores_of_query(queries.view().select(0, 1), keys);
  expect(query_scores, printed.at("scores_query_1"));
  expect(softmax(scaled(query_scores, 1 / std::sqrt(2.0))), printed.at("weights_query_1"));
  expect(reference::attention(queries, keys, values).o, printed.at("out"));
}

class SixTokensThroughLinearLayers : public SixTokens {
 protected:
  Tensor project() { return matmul(inputs_, transpose(generator_.linear(3, 2, false).weight)); }

  const nlohmann::json& printed_ = six_.at("self_attention_linear");
  TorchGenerator generator_{789};
  const Tensor queries_ = project();
  const Tensor keys_ = project();
  const Tensor values_ = project();
};

TEST_F(SixTokensThroughLinearLayers, SelfAttention) {
  const auto whole = reference::attention(queries_, keys_, values_);
  expect(whole.weights, printed_.at("weights"));
  expect(whole.o, printed_.at("out"));
}

TEST_F(SixTokensThroughLinearLayers, CausalWeights) {
  const Tensor hidden = masked(scores(queries_, keys_), causal_mask(6, 6));
  expect(softmax(scaled(hidden, 1 / std::sqrt(2.0))), printed_.at("causal_weights"));
  const auto whole = reference::attention(queries_, keys_, values_, {.causal = Causal::top_left});
  expect(whole.weights, printed_.at("causal_weights"));

  const nlohmann::json& lower = printed_.at("causal_scores_unscaled_lower");
  const Tensor unscaled = scaled(whole.scores, std::sqrt(2.0));
  for (std::int64_t i = 0; i < 6; ++i) {
    expect(unscaled.view().select(0, i).slice(0, 0, i + 1), lower.at(static_cast<std::size_t>(i)));
  }
}

TEST_F(SixTokensThroughLinearLayers, DropoutOfCausalWeights) {
  const Tensor weights = reference::attention(queries_, keys_, values_, {.causal = Causal::top_left}).weights;
  const Tensor keep = TorchGenerator(123).dropout_mask({6, 6}, 0.5);
  expect(dropout(weights, keep, 0.5), printed_.at("dropout_half_of_causal_weights_seed_123"));
}

TEST_F(SixTokens, DropoutOfOnes) {
  const Tensor ones = Tensor::copy_of(causal_mask(6, 6, Causal::none), DType::f64);
  const Tensor keep = TorchGenerator(123).dropout_mask({6, 6}, 0.5);
  expect(dropout(ones, keep, 0.5), six_.at("dropout_ones_6x6_p_half_seed_123"));
}

TEST(HelloShinySun, ContextOfTheMiddleWord) {
  const nlohmann::json& printed = published().at("hello_shiny_sun");
  const double tolerance = printed.at("tolerance").get<double>();
  const Tensor inputs = tensor_of(printed.at("inputs"));
  const Tensor weights = softmax(scores_of_query(inputs.view().select(0, printed.at("query").get<int>()), inputs));
  expect_printed(context_vectors(weights.reshaped({1, 3}), inputs).view().select(0, 0),
                 printed.at("context_printed"), tolerance);
  Tensor products = transpose(inputs);
  for (std::int64_t component = 0; component < 3; ++component) {
    for (std::int64_t word = 0; word < 3; ++word) products.at<double>(component, word) *= weights.at<double>(word);
  }
  expect_printed(products, printed.at("products_printed"), tolerance);
}

TEST(GeneralAttention, FourWords) {
  const nlohmann::json& printed = published().at("general_attention_numpy");
  const Tensor words = tensor_of(printed.at("words"));
  const Tensor queries = matmul(words, tensor_of(printed.at("W_Q")));
  const Tensor keys = matmul(words, tensor_of(printed.at("W_K")));
  const Tensor values = matmul(words, tensor_of(printed.at("W_V")));
  const double tolerance = printed.at("tolerance").get<double>();
  const Tensor weights = softmax(scaled(scores(queries, keys), 1 / std::sqrt(3.0)));
  expect_printed(context_vectors(weights, values), printed.at("attention"), tolerance);
  expect_printed(reference::attention(queries, keys, values).o, printed.at("attention"), tolerance);
}

TEST(GeneralAttention, MatrixProduct) {
  const nlohmann::json& printed = published().at("general_attention_numpy").at("matrix_product");
  expect_printed(matmul(tensor_of(printed.at("a")), tensor_of(printed.at("b"))), printed.at("product"), 0);
}

TEST(GeneralAttention, ShapeMismatchIsRefusedNamingBothShapes) {
  const Tensor a(DType::f64, {2, 3});
  EXPECT_THAT([&] { matmul(a, a); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("a has shape [2, 3] and b has shape [2, 3]")));
}

TEST(RepeatedRow, SoftmaxOfPrintedScores) {
  const nlohmann::json& printed = published().at("repeated_row");
  const Tensor weights = softmax(tensor_of(printed.at("scores")));
  const Tensor wanted = tensor_of(printed.at("weights"));
  for (std::size_t i = 0; i < 36; ++i) {
    const double number = wanted.values<double>()[i];
    EXPECT_NEAR(weights.values<double>()[i], number, number * printed.at("relative_tolerance").get<double>());
  }
}

TEST(RepeatedRow, TheSameTokenGivesTheSameBits) {
  const Tensor inputs = tensor_of(published().at("repeated_row").at("inputs"));
  TorchGenerator generator(1);
  const Tensor queries = matmul(inputs, generator.rand({3, 4}));
  const Tensor keys = matmul(inputs, generator.rand({3, 4}));
  const Tensor values = matmul(inputs, generator.rand({3, 4}));
  const Tensor o = reference::attention(queries, keys, values).o;
  for (std::int64_t d = 0; d < 4; ++d) EXPECT_EQ(o.at<double>(0, d), o.at<double>(4, d));
}

TEST(RepeatedRow, DotProducts) {
  const nlohmann::json& printed = published().at("repeated_row").at("dot_examples");
  const double tolerance = printed.at("tolerance").get<double>();
  const Tensor by_key = scores_of_query(tensor_of(printed.at("q")), tensor_of(printed.at("k")));
  expect_printed(scaled(by_key, 1 / std::sqrt(2.0)), printed.at("scaled_by_sqrt2"), tolerance);
  EXPECT_EQ(reference::dot(std::vector<double>{1, 2, 3}, std::vector<double>{4, 5, 6}),
            printed.at("dot_123_456").get<double>());
  const Tensor a = tensor_of(printed.at("a"));
  expect_printed(scaled(a, 0.5), printed.at("a_half"), 0);
  const std::vector<double> ones(3, 1.0);
  EXPECT_EQ(reference::dot(a.values<double>(), ones), printed.at("a_sum").get<double>());
}

TEST(FiveTokens, ScoresWeightsAndTies) {
  const nlohmann::json& printed = published().at("five_tokens");
  const Tensor inputs = tensor_of(printed.at("inputs"));
  const auto whole = reference::attention(inputs, inputs, inputs);
  const double tolerance = printed.at("tolerance").get<double>();
  expect_printed(whole.scores, printed.at("scores"), tolerance);
  expect_printed(whole.logits, printed.at("scores"), tolerance);
  expect_printed(whole.weights, printed.at("weights"), tolerance);
  const auto weight = [&](std::int64_t i, std::int64_t j) { return whole.weights.at<double>(i, j); };
  for (std::int64_t j = 1; j < 5; ++j) EXPECT_GT(weight(0, 0), weight(0, j));
  EXPECT_EQ(weight(4, 0), weight(4, 2));
  EXPECT_EQ(weight(4, 0), weight(4, 4));
}

TEST(Traps, MasksSelectInsteadOfMultiplying) {
  const Tensor zero(DType::f64, {2, 2});
  const Tensor hidden = masked(zero, causal_mask(2, 2));
  EXPECT_EQ(hidden.at<double>(0, 0), 0);
  EXPECT_EQ(hidden.at<double>(0, 1), -HUGE_VAL);
  const auto weights = softmax(hidden);
  EXPECT_THAT(weights.values<double>(), ::testing::ElementsAre(1, 0, 0.5, 0.5));
}

}  // namespace
}  // namespace saccade::test
