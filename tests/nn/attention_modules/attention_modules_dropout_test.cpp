// Dropout of modules: by position, as in PyTorch, and only in training mode.
#include <gmock/gmock.h>

#include <string>

#include "nn/attention_modules/module_checks.h"
#include "saccade/attention_modules.h"

namespace saccade::test {
namespace {

PerWeight philox_factor(std::uint64_t seed, std::uint32_t call, std::int64_t num_heads, double p) {
  return [=](std::int64_t batch, std::int64_t head, std::int64_t row, std::int64_t column) {
    const bool keep = dropout_keeps(seed, call, static_cast<std::uint32_t>(batch * num_heads + head),
                                    static_cast<std::uint32_t>(row), static_cast<std::uint32_t>(column), p);
    return keep ? 1 / (1 - p) : 0.0;
  };
}

TEST(ModuleDropout, TheNthCallAfterSeedingDropsByPosition) {
  TorchGenerator generator(8);
  MultiHeadAttention module({.d_in = 4, .d_out = 6, .num_heads = 2, .causal = true, .dropout = 0.3}, generator);
  const Tensor x = randn(9, {2, 20, 4});
  for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{1234567890123}}) {
    module.seed_dropout(seed);
    for (std::uint32_t call = 0; call < 3; ++call) {
      expect_like_by_hand(module, {x, x, x}, {}, {}, philox_factor(seed, call, 2, 0.3));
    }
  }
}

TEST(ModuleDropout, AppendedKeysAreDroppedLikeOthers) {
  TorchGenerator generator(8);
  MultiHeadAttention module({.d_in = 4,
                             .d_out = 8,
                             .num_heads = 4,
                             .num_kv_heads = 2,
                             .dropout = 0.5,
                             .qkv_bias = true,
                             .add_bias_kv = true,
                             .add_zero_attn = true},
                            generator);
  module.seed_dropout(77);
  const Tensor x = randn(9, {2, 20, 4});
  expect_like_by_hand(module, {x, x, x}, {}, {}, philox_factor(77, 0, 4, 0.5));
}

TEST(ModuleDropout, WeightsAreReportedBeforeDropoutUnlessAsked) {
  TorchGenerator generator(8);
  MultiHeadAttention module(
      {.d_in = 4, .d_out = 6, .num_heads = 2, .dropout = 0.5, .add_bias_kv = true, .add_zero_attn = true},
      generator);
  const Tensor x = randn(9, {2, 10, 4});
  TorchGenerator torch(1);
  const Tensor training = module.forward(x, {.weights = HeadWeights::per_head}).weights;
  const Tensor drawn = module.forward(x, {.weights = HeadWeights::per_head, .dropout_generator = &torch}).weights;
  module.eval();
  const Tensor evaluated =
      module.forward(x, {.weights = HeadWeights::per_head, .weights_after_dropout = true}).weights;
  EXPECT_TRUE(same_bits(training, evaluated));
  EXPECT_TRUE(same_bits(drawn, evaluated));
}

TEST(ModuleDropout, OnlyTrainingDropsAndEveryTrainingCallDropsAnew) {
  TorchGenerator generator(8);
  CausalAttention module({.d_in = 4, .d_out = 6, .dropout = 0.5}, generator);
  EXPECT_TRUE(module.training());
  const Tensor x = randn(9, {2, 10, 4});
  const Tensor first = module.forward(x).output, second = module.forward(x).output;
  module.eval();
  EXPECT_FALSE(module.training());
  TorchGenerator torch(1);
  const Tensor evaluated = module.forward(x).output;
  EXPECT_TRUE(same_bits(module.forward(x, {.dropout_generator = &torch}).output, evaluated));
  EXPECT_EQ(torch.next32(), TorchGenerator(1).next32());
  module.train();
  EXPECT_FALSE(same_bits(first, second));
  EXPECT_FALSE(same_bits(first, evaluated));
  EXPECT_FALSE(same_bits(module.forward(x).output, first));
  EXPECT_FALSE(same_bits(module.forward(x).output, evaluated));
}

TEST(ModuleDropout, SeedsComeFromTheGeneratorOrElseFromTheOperatingSystem) {
  const auto trained = [](auto&&... arguments) {
    CausalAttention module({.d_in = 4, .d_out = 6, .dropout = 0.5}, arguments...);
    TorchGenerator parameters(3);
    module.load_state_dict(CausalAttention({.d_in = 4, .d_out = 6}, parameters).state_dict());
    return module.forward(randn(9, {2, 10, 4})).output;
  };
  TorchGenerator one(8), same(8), other(9);
  const Tensor from_one = trained(one);
  EXPECT_TRUE(same_bits(from_one, trained(same)));
  EXPECT_FALSE(same_bits(from_one, trained(other)));
  EXPECT_FALSE(same_bits(from_one, trained(one)));  // its state has advanced
  EXPECT_FALSE(same_bits(trained(), trained()));
}

TEST(ModuleDropout, IndependentHeadsDrawOneAfterTheOtherFromPyTorchsGenerator) {
  TorchGenerator generator(8);
  MultiHeadAttentionWrapper wrapper({.d_in = 4, .d_out = 3, .num_heads = 2, .dropout = 0.5}, generator);
  const Tensor x = randn(9, {2, 5, 4});
  TorchGenerator torch(123);
  const ForwardOptions options{
      .weights = HeadWeights::per_head, .weights_after_dropout = true, .dropout_generator = &torch};
  const ModuleOutput result = wrapper.forward(x, options);
  TorchGenerator again(123);
  for (std::int64_t head = 0; head < 2; ++head) {
    CausalAttention alone({.d_in = 4, .d_out = 3, .dropout = 0.5});
    StateDict state;
    for (auto& [name, value] : wrapper.state_dict()) {
      const std::string prefix = "heads." + std::to_string(head) + ".";
      if (name.starts_with(prefix)) state[name.substr(prefix.size())] = value;
    }
    alone.load_state_dict(state);
    ForwardOptions same = options;
    same.dropout_generator = &again;
    const ModuleOutput expected = alone.forward(x, same);
    EXPECT_TRUE(
        same_bits(Tensor::copy_of(result.output.view().slice(2, head * 3, (head + 1) * 3)), expected.output));
    EXPECT_TRUE(same_bits(Tensor::copy_of(result.weights.view().slice(1, head, head + 1)), expected.weights));
  }
  EXPECT_EQ(torch.next32(), again.next32());
}

}  // namespace
}  // namespace saccade::test
