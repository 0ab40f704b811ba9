// Shared helpers of the module tests: seeded inputs, and comparing a module's call with naive code.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "nn/attention_modules/naive_module.h"
#include "saccade/attention_modules.h"
#include "support/expect_close.h"
#include "support/tensors.h"

namespace saccade::test {

inline Tensor randn(std::uint64_t seed, const Shape& shape) { return TorchGenerator(seed).randn(shape); }

/// bool, true with a probability of 0.7, and at least once in each row: at key 0.
inline Tensor random_mask(std::uint64_t seed, const Shape& shape) {
  const Tensor draws = TorchGenerator(seed).rand(shape);
  Tensor mask(DType::boolean, shape);
  for (std::int64_t i = 0; i < mask.size(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    mask.values<bool>()[at] = draws.values<float>()[at] < 0.7f || i % shape.back() == 0;
  }
  return mask;
}

/// The parameters (or gradients) of a wrapper, or of a plain SelfAttention, under MultiHeadAttention's names.
inline StateDict joint_parameters(const ModuleConfig& config, const StateDict& state) {
  StateDict result;
  if (config.weight_layout == WeightLayout::in_out) {
    for (const auto& [name, weight] : state) {
      result[name + ".weight"] = Tensor::copy_of(weight.view().transposed(0, 1));
    }
    return result;
  }
  if (!config.independent_heads) return state;
  for (const std::string parameter : {"W_query.weight", "W_key.weight", "W_value.weight"}) {
    std::vector<float> rows;
    for (std::int64_t head = 0; head < config.num_heads; ++head) {
      const auto values = state.at("heads." + std::to_string(head) + "." + parameter).values<float>();
      rows.insert(rows.end(), values.begin(), values.end());
    }
    result[parameter] = Tensor::copy_of(
        TensorView(rows.data(), {static_cast<std::int64_t>(rows.size()) / config.d_in, config.d_in}));
  }
  return result;
}

inline StateDict joint_state(const AttentionModule& module) {
  return joint_parameters(module.config(), module.state_dict());
}

/// Calls check(module) for a module of each class, with inputs of width 5.
template <class Check>
void for_each_class(const Check& check) {
  TorchGenerator generator(1);
  const auto run = [&](AttentionModule&& module) {
    SCOPED_TRACE(module.name());
    check(module);
  };
  run(SelfAttention({.d_in = 5, .d_out = 3, .weight_layout = WeightLayout::in_out}, generator));
  run(SelfAttention({.d_in = 5, .d_out = 3, .qkv_bias = true}, generator));
  run(CausalAttention({.d_in = 5, .d_out = 3, .context_length = 65}, generator));
  run(MultiHeadAttentionWrapper({.d_in = 5, .d_out = 3, .num_heads = 4}, generator));
  run(MultiHeadAttention({.d_in = 5, .d_out = 8, .num_heads = 2, .causal = true}, generator));
}

struct Inputs {
  Tensor query, key, value;  ///< [batch, seqlen, width]
};

/// Runs the module and compares output and weights with naive code. Without dropout the output has the same bits
/// in evaluation mode, where nothing is kept.
inline void expect_like_by_hand(AttentionModule& module, const Inputs& inputs, const Tensor& mask = {},
                                const Tensor& key_mask = {}, const PerWeight& dropout_factor = {}) {
  const StateDict state = joint_state(module);
  const NaiveCall call{.state = state,
                       .config = module.config(),
                       .query = inputs.query,
                       .key = inputs.key,
                       .value = inputs.value,
                       .added = added_by(mask, key_mask, module.config().causal, inputs.key.shape(1)),
                       .dropout_factor = dropout_factor};
  const bool training = module.training();
  module.eval();
  const Tensor evaluated =
      module.forward(inputs.query, inputs.key, inputs.value, {.mask = mask, .key_mask = key_mask}).output;
  module.train(training);
  const ModuleOutput result = module.forward(
      inputs.query, inputs.key, inputs.value,
      {.mask = mask, .key_mask = key_mask, .weights = HeadWeights::per_head, .weights_after_dropout = true});
  const auto by_hand = naive_module<double>(call);
  const auto in_float = naive_module<float>(call);
  expect_close(result.output, {.reference = by_hand.output, .naive = in_float.output, .bound = by_hand.bound});
  expect_close(result.weights, {.reference = by_hand.weights, .naive = in_float.weights});
  if (!dropout_factor) {
    EXPECT_TRUE(same_bits(evaluated, result.output));
  }
}

}  // namespace saccade::test
