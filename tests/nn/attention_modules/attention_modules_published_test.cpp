// The published walk-through of self-attention, step by step, with its printed numbers.
#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <vector>

#include "saccade/attention_modules.h"
#include "saccade/reference.h"
#include "support/expect_close.h"
#include "support/published.h"

namespace saccade::test {
namespace {

const nlohmann::json& six_tokens() { return published().at("six_tokens"); }

Tensor inputs() { return Tensor::copy_of(tensor_of(six_tokens().at("inputs")), DType::f32); }

/// The six tokens twice: [2, 6, 3].
Tensor batch() {
  const Tensor x = inputs();
  Tensor result(DType::f32, {2, 6, 3});
  for (std::int64_t b = 0; b < 2; ++b) copy(x, result.mutable_view().select(0, b));
  return result;
}

/// Every number within half a unit of its last printed digit.
void expect_printed(const TensorView& computed, const nlohmann::json& printed) {
  const Tensor wanted = tensor_of(printed);
  const Tensor numbers = Tensor::copy_of(computed, DType::f64);
  ASSERT_EQ(numbers.shape(), wanted.shape());
  const double tolerance = six_tokens().at("tolerance");
  for (std::size_t i = 0; i < wanted.values<double>().size(); ++i) {
    EXPECT_NEAR(numbers.values<double>()[i], wanted.values<double>()[i], tolerance) << "element " << i;
  }
}

void expect_printed_in_each_batch_entry(const Tensor& output, const nlohmann::json& printed) {
  ASSERT_EQ(output.rank(), 3);
  for (std::int64_t b = 0; b < output.shape(0); ++b) expect_printed(output.view().select(0, b), printed);
}

SelfAttention linear_self_attention() {
  TorchGenerator generator(789);
  return SelfAttention({.d_in = 3, .d_out = 2}, generator);
}

TEST(ModulesPublished, SelfAttentionWithPlainParameters) {
  const nlohmann::json& example = six_tokens().at("self_attention_parameters");
  TorchGenerator generator(123);
  SelfAttention module({.d_in = 3, .d_out = 2, .weight_layout = WeightLayout::in_out}, generator);
  const ModuleOutput result = module.forward(inputs(), {.weights = HeadWeights::per_head, .steps = true});
  const TensorView query_1 = result.q.view().select(0, 1);
  expect_printed(query_1, example.at("query_1"));
  expect_printed(reference::scores_of_query(query_1, result.k), example.at("scores_query_1"));
  expect_printed(result.weights.view().select(0, 0).select(0, 1), example.at("weights_query_1"));
  expect_printed(result.output, example.at("out"));
}

TEST(ModulesPublished, SelfAttentionWithLinearLayers) {
  const nlohmann::json& example = six_tokens().at("self_attention_linear");
  SelfAttention module = linear_self_attention();
  const ModuleOutput result = module.forward(inputs(), {.weights = HeadWeights::per_head});
  expect_printed(result.weights.view().select(0, 0), example.at("weights"));
  expect_printed(result.output, example.at("out"));
}

TEST(ModulesPublished, CausalMask) {
  const nlohmann::json& example = six_tokens().at("self_attention_linear");
  SelfAttention module = linear_self_attention();
  const ModuleOutput result =
      module.forward(inputs(), {.causal = true, .weights = HeadWeights::per_head, .steps = true});
  expect_printed(result.weights.view().select(0, 0), example.at("causal_weights"));
  const Tensor scores = reference::scores(result.q, result.k);
  const nlohmann::json& rows = example.at("causal_scores_unscaled_lower");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i);
    expect_printed(scores.view().select(0, row).slice(0, 0, row + 1), rows.at(i));
  }
}

TEST(ModulesPublished, DropoutOfTheCausalWeights) {
  const nlohmann::json& example = six_tokens().at("self_attention_linear");
  CausalAttention module({.d_in = 3, .d_out = 2, .context_length = 6, .dropout = 0.5});
  module.load_state_dict(linear_self_attention().state_dict());
  TorchGenerator generator(123);
  const ModuleOutput result = module.forward(
      inputs(),
      {.weights = HeadWeights::per_head, .weights_after_dropout = true, .dropout_generator = &generator});
  expect_printed(result.weights.view().select(0, 0), example.at("dropout_half_of_causal_weights_seed_123"));
}

TEST(ModulesPublished, CausalAttention) {
  TorchGenerator generator(123);
  CausalAttention module({.d_in = 3, .d_out = 2, .context_length = 6}, generator);
  expect_printed_in_each_batch_entry(module.forward(batch()).output,
                                     six_tokens().at("causal_attention").at("out_each_batch"));
}

TEST(ModulesPublished, MultiHeadAttentionWrapper) {
  TorchGenerator generator(123);
  MultiHeadAttentionWrapper module({.d_in = 3, .d_out = 2, .num_heads = 2, .context_length = 6}, generator);
  expect_printed_in_each_batch_entry(module.forward(batch()).output,
                                     six_tokens().at("multi_head_wrapper").at("out_each_batch"));
}

TEST(ModulesPublished, MultiHeadAttention) {
  TorchGenerator generator(123);
  MultiHeadAttention module({.d_in = 3, .d_out = 2, .num_heads = 2, .context_length = 6, .causal = true},
                            generator);
  expect_printed_in_each_batch_entry(module.forward(batch()).output,
                                     six_tokens().at("multi_head_attention").at("out_each_batch"));
}

TEST(ModulesPublished, TheBlockWithAMaskGivesTheCausalWeights) {
  SelfAttention module = linear_self_attention();
  const ModuleOutput steps = module.forward(inputs(), {.causal = true, .steps = true});
  const Tensor mask = reference::causal_mask(6, 6);
  const auto [output, weights] = scaled_dot_product_attention(steps.q, steps.k, steps.v, mask);
  expect_printed(weights, six_tokens().at("self_attention_linear").at("causal_weights"));
  const auto in_double = reference::attention(steps.q, steps.k, steps.v, {.mask = mask});
  const auto in_float = reference::attention(steps.q, steps.k, steps.v, {.mask = mask}, DType::f32);
  for (const Tensor& o : {output, steps.output})  // the bits differ: with a mask, logits are not in base 2
    expect_close(o, {.reference = in_double.o, .naive = in_float.o, .bound = in_double.bound});
}

TEST(ModulesPublished, TheSameTokenGivesTheSameBitsWhereverItStands) {
  const Tensor x = Tensor::copy_of(tensor_of(published().at("repeated_row").at("inputs")), DType::f32);
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    TorchGenerator generator(seed);
    SelfAttention plain({.d_in = 3, .d_out = 4, .weight_layout = WeightLayout::in_out}, generator);
    SelfAttention linear({.d_in = 3, .d_out = 4, .qkv_bias = true}, generator);
    MultiHeadAttention multi_head({.d_in = 3, .d_out = 4, .num_heads = 2}, generator);
    for (AttentionModule* module : {static_cast<AttentionModule*>(&plain), static_cast<AttentionModule*>(&linear),
                                    static_cast<AttentionModule*>(&multi_head)}) {
      const Tensor output = module->forward(x).output;
      const auto values = output.values<float>();
      EXPECT_TRUE(std::ranges::equal(values.subspan(0, 4), values.subspan(16, 4)))
          << module->name() << ", seed " << seed;
    }
  }
}

}  // namespace
}  // namespace saccade::test
