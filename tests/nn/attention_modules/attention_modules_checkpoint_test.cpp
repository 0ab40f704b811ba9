// Parameters by name: every class through a file and back, PyTorch's layouts, and rejected checkpoints.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "saccade/attention_modules.h"
#include "saccade/io.h"
#include "support/refusal.h"

namespace saccade::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

struct Example {
  std::unique_ptr<AttentionModule> module;
  CheckpointOptions options{};  ///< that its checkpoint does not contain
};

/// Each class in each of its variants, with newly drawn parameters.
std::vector<Example> one_of_each() {
  TorchGenerator generator(5);
  std::vector<Example> result;
  result.push_back({std::make_unique<SelfAttention>(
      SelfAttentionOptions{.d_in = 3, .d_out = 4, .weight_layout = WeightLayout::in_out}, generator)});
  result.push_back({std::make_unique<SelfAttention>(SelfAttentionOptions{.d_in = 3, .d_out = 4}, generator)});
  result.push_back(
      {std::make_unique<SelfAttention>(SelfAttentionOptions{.d_in = 3, .d_out = 4, .qkv_bias = true}, generator)});
  result.push_back(
      {std::make_unique<CausalAttention>(
           CausalAttentionOptions{.d_in = 3, .d_out = 4, .context_length = 6, .qkv_bias = true}, generator),
       {.causal = true, .context_length = 6}});
  result.push_back({std::make_unique<MultiHeadAttentionWrapper>(
                        MultiHeadAttentionWrapperOptions{
                            .d_in = 3, .d_out = 2, .num_heads = 3, .context_length = 6, .qkv_bias = true},
                        generator),
                    {.context_length = 6}});
  result.push_back(
      {std::make_unique<MultiHeadAttention>(
           MultiHeadAttentionOptions{.d_in = 3, .d_out = 8, .num_heads = 4, .context_length = 6, .causal = true},
           generator),
       {.num_heads = 4, .causal = true, .context_length = 6}});
  result.push_back({std::make_unique<MultiHeadAttention>(MultiHeadAttentionOptions{.d_in = 3,
                                                                                   .d_out = 8,
                                                                                   .num_heads = 4,
                                                                                   .num_kv_heads = 2,
                                                                                   .qkv_bias = true,
                                                                                   .out_bias = false,
                                                                                   .add_bias_kv = true},
                                                         generator),
                    {.num_heads = 4}});
  return result;
}

void expect_same_parameters(const AttentionModule& a, const AttentionModule& b) {
  const StateDict left = a.state_dict(), right = b.state_dict();
  ASSERT_EQ(left.size(), right.size());
  for (const auto& [name, value] : left) {
    ASSERT_TRUE(right.contains(name)) << name;
    EXPECT_EQ(value.shape(), right.at(name).shape()) << name;
    EXPECT_THAT(value.values<float>(), ElementsAreArray(right.at(name).values<float>())) << name;
  }
}

TEST(ModulesCheckpoint, EveryModuleComesBackFromAFile) {
  const auto file = std::filesystem::path(testing::TempDir()) / "saccade_modules_checkpoint_test.safetensors";
  for (const Example& example : one_of_each()) {
    SCOPED_TRACE(example.module->name());
    save_safetensors(file, {.tensors = example.module->state_dict()});
    const auto loaded = module_from_state_dict(load_safetensors(file).tensors, example.options);
    EXPECT_EQ(loaded->name(), example.module->name());
    EXPECT_FALSE(loaded->training());
    expect_same_parameters(*loaded, *example.module);
    const Tensor x = TorchGenerator(1).randn({2, 6, 3});
    EXPECT_THAT(loaded->forward(x).output.values<float>(),
                ElementsAreArray(example.module->forward(x).output.values<float>()));
  }
  std::filesystem::remove(file);
}

TEST(ModulesCheckpoint, PublishedCheckpointsSayWhatTheyAreThemselves) {
  for (const Example& example : one_of_each()) {
    SCOPED_TRACE(example.module->name());
    const auto loaded =
        module_from_state_dict(example.module->published_state_dict(), {.num_heads = example.options.num_heads});
    EXPECT_EQ(loaded->name(), example.module->name());
    EXPECT_EQ(loaded->config().causal, example.module->config().causal);
    EXPECT_EQ(loaded->config().context_length, example.module->config().context_length);
    expect_same_parameters(*loaded, *example.module);
  }
}

TEST(ModulesCheckpoint, TheMaskBufferHasOnesAboveTheDiagonal) {
  const CausalAttention module({.d_in = 1, .d_out = 1, .context_length = 3});
  EXPECT_FALSE(module.state_dict().contains("mask"));
  EXPECT_THAT(module.published_state_dict().at("mask").values<float>(), ElementsAre(0, 1, 1, 0, 0, 1, 0, 0, 0));
}

TEST(ModulesCheckpoint, ParametersComeInPyTorchsOrderAndChangeInPlace) {
  MultiHeadAttentionWrapper module({.d_in = 2, .d_out = 1, .num_heads = 2, .qkv_bias = true});
  std::vector<std::string> names;
  for (const NamedParameter& parameter : module.parameters()) names.push_back(parameter.name);
  EXPECT_THAT(names, ElementsAre("heads.0.W_query.weight", "heads.0.W_query.bias", "heads.0.W_key.weight",
                                 "heads.0.W_key.bias", "heads.0.W_value.weight", "heads.0.W_value.bias",
                                 "heads.1.W_query.weight", "heads.1.W_query.bias", "heads.1.W_key.weight",
                                 "heads.1.W_key.bias", "heads.1.W_value.weight", "heads.1.W_value.bias"));
  const NamedParameter parameter = module.parameters().at(6);
  ASSERT_EQ(parameter.value.size(), 2);
  parameter.value.as<float>()[1] = 7.0f;
  EXPECT_THAT(module.state_dict().at("heads.1.W_query.weight").values<float>(), ElementsAre(0, 7));
  EXPECT_THAT(module.state_dict().at("heads.0.W_query.weight").values<float>(), ElementsAre(0, 0));
}

TEST(ModulesCheckpoint, OtherFloatingPointTypesAreConverted) {
  SelfAttention module({.d_in = 2, .d_out = 1, .weight_layout = WeightLayout::in_out});
  const Tensor exact = Tensor::of<float>({{0.5f}, {-1.25f}});
  module.load_state_dict({{"W_query", Tensor::copy_of(exact, DType::f64)},
                          {"W_key", Tensor::copy_of(exact, DType::f16)},
                          {"W_value", Tensor::copy_of(exact, DType::bf16)}});
  for (const auto& [name, value] : module.state_dict()) {
    EXPECT_THAT(value.values<float>(), ElementsAre(0.5f, -1.25f)) << name;
  }
}

/// torch.nn.MultiheadAttention's layout of a module with equal widths.
StateDict stacked(const MultiHeadAttention& module) {
  StateDict state = module.state_dict();
  for (const std::string suffix : {"weight", "bias"}) {
    std::vector<float> numbers;
    std::int64_t rows = 0, columns = 0;
    for (const std::string layer : {"W_query.", "W_key.", "W_value."}) {
      auto part = state.extract(layer + suffix);
      if (part.empty()) return state;
      rows += part.mapped().shape(0);
      columns = part.mapped().size() / part.mapped().shape(0);
      const auto values = part.mapped().values<float>();
      numbers.insert(numbers.end(), values.begin(), values.end());
    }
    const TensorView view =
        suffix == "weight" ? TensorView(numbers.data(), {rows, columns}) : TensorView(numbers.data(), {rows});
    state.emplace("in_proj_" + suffix, Tensor::copy_of(view));
  }
  return state;
}

TEST(ModulesCheckpoint, StackedProjectionsAreSplit) {
  for (const std::int64_t num_kv_heads : {4, 2, 1}) {
    TorchGenerator generator(9);
    const MultiHeadAttentionOptions options{
        .d_in = 3, .d_out = 8, .num_heads = 4, .num_kv_heads = num_kv_heads, .qkv_bias = true};
    const MultiHeadAttention module(options, generator);
    const StateDict state = stacked(module);
    ASSERT_EQ(state.at("in_proj_weight").shape(), (Shape{8 + 4 * num_kv_heads, 3}));
    MultiHeadAttention loaded(options);
    loaded.load_state_dict(state);
    expect_same_parameters(loaded, module);
    const auto recognised = module_from_state_dict(state, {.num_heads = 4});
    expect_same_parameters(*recognised, module);
    EXPECT_EQ(recognised->config().num_kv_heads, num_kv_heads);
  }
}

TEST(ModulesCheckpoint, EveryFaultIsNamedInOneLine) {
  TorchGenerator generator(3);
  MultiHeadAttention module({.d_in = 3, .d_out = 4, .num_heads = 2}, generator);
  const StateDict before = module.state_dict();
  StateDict state = before;
  state.erase("out_proj.bias");
  state.erase("W_key.weight");
  state.emplace("W_quarry.weight", Tensor(DType::f32, {4, 3}));
  state["W_query.weight"] = Tensor(DType::f32, {3, 4});
  state["W_value.weight"] = Tensor(DType::i64, {4, 3});
  const std::string message = refusal([&] { module.load_state_dict(state); });
  EXPECT_EQ(message,
            "[MultiHeadAttention] cannot load: missing W_key.weight, out_proj.bias; unexpected W_quarry.weight; "
            "W_query.weight is [3, 4], expected [4, 3], W_value.weight is i64, expected f32");
  for (const auto& [name, value] : before) {
    EXPECT_THAT(module.state_dict().at(name).values<float>(), ElementsAreArray(value.values<float>())) << name;
  }
}

TEST(ModulesCheckpoint, ALongListOfFaultsIsShortened) {
  SelfAttention module({.d_in = 1, .d_out = 1});
  StateDict state = module.state_dict();
  for (int i = 0; i < 1000; ++i) state.emplace("layer." + std::to_string(i), Tensor(DType::f32, {1}));
  const std::string message = refusal([&] { module.load_state_dict(state); });
  EXPECT_THAT(message, HasSubstr("unexpected layer.0, "));
  EXPECT_THAT(message, HasSubstr(" and 988 more"));
  EXPECT_LT(message.size(), 300u);
}

TEST(ModulesCheckpoint, FaultyEntriesAreRefused) {
  const MultiHeadAttentionOptions options{.d_in = 4, .d_out = 4, .num_heads = 2, .qkv_bias = true};
  const StateDict published = CausalAttention({.d_in = 4, .d_out = 4, .context_length = 3}).published_state_dict();
  const auto load = [&](const std::string& name, Tensor value) {
    MultiHeadAttention module(options);
    StateDict state = stacked(module);
    state[name] = std::move(value);
    return refusal([&] { module.load_state_dict(state); });
  };
  EXPECT_THAT(load("in_proj_weight", Tensor(DType::f32, {8, 4})),
              HasSubstr("in_proj_weight is [8, 4], expected [12, 4]"));
  EXPECT_THAT(load("in_proj_weight", Tensor()), HasSubstr("in_proj_weight is [], expected [12, 4]"));
  EXPECT_THAT(load("in_proj_bias", Tensor(DType::f32, {4})), HasSubstr("in_proj_bias is [4], expected [12]"));
  EXPECT_THAT(load("W_query.weight", Tensor(DType::f32, {4, 4})), HasSubstr("unexpected in_proj_weight"));
  EXPECT_THAT(load("bias_k", Tensor(DType::f32, {1, 1, 4})), HasSubstr("unexpected bias_k"));
  EXPECT_THAT(load("mask", Tensor(DType::f32, {6, 6})), HasSubstr("unexpected mask"));
  EXPECT_THAT(load("out_proj.bias", Tensor()), HasSubstr("out_proj.bias is [], expected [4]"));

  const auto load_mask = [&](std::int64_t context_length, Tensor mask) {
    CausalAttention module({.d_in = 4, .d_out = 4, .context_length = context_length});
    StateDict state = published;
    state["mask"] = std::move(mask);
    return refusal([&] { module.load_state_dict(state); });
  };
  EXPECT_EQ(load_mask(3, published.at("mask")), "");
  EXPECT_EQ(load_mask(3, Tensor::copy_of(published.at("mask"), DType::boolean)), "");
  EXPECT_EQ(load_mask(0, published.at("mask")), "");
  EXPECT_THAT(load_mask(4, published.at("mask")), HasSubstr("mask is [3, 3], expected [4, 4]"));
  EXPECT_THAT(load_mask(0, Tensor(DType::f32, {3, 2})), HasSubstr("mask is [3, 2], expected [3, 3]"));
  EXPECT_THAT(load_mask(0, Tensor()), HasSubstr("mask is [], expected [0, 0]"));
  EXPECT_THAT(load_mask(3, Tensor(DType::f32, {3, 3})),
              HasSubstr("mask is not the causal mask, see its row 0, column 1"));
}

TEST(ModulesCheckpoint, CheckpointsOfNoModuleAreRefused) {
  const auto matrix = [](std::int64_t rows, std::int64_t columns) { return Tensor(DType::f32, {rows, columns}); };
  const StateDict linear = SelfAttention({.d_in = 3, .d_out = 4}).state_dict();
  const StateDict plain =
      SelfAttention({.d_in = 3, .d_out = 4, .weight_layout = WeightLayout::in_out}).state_dict();
  const StateDict wrapper = MultiHeadAttentionWrapper({.d_in = 3, .d_out = 4, .num_heads = 2}).state_dict();
  const StateDict multi_head = MultiHeadAttention({.d_in = 3, .d_out = 4, .num_heads = 2}).state_dict();
  const auto refused = [](StateDict state, const CheckpointOptions& options, const std::string& name = "",
                          Tensor value = {}) {
    if (!name.empty()) state[name] = std::move(value);
    return refusal([&] { module_from_state_dict(state, options); });
  };
  EXPECT_THAT(refused({}, {}), HasSubstr("it is no attention module's"));
  EXPECT_THAT(refused({}, {}, "W_key.weight", matrix(2, 2)), HasSubstr("it is no attention module's"));
  EXPECT_THAT(refused({}, {}, "W_query", matrix(2, 2)), HasSubstr("W_key is missing"));
  EXPECT_THAT(refused(linear, {}, "W_query.weight", Tensor(DType::f32, {3})), HasSubstr("must be a matrix"));
  EXPECT_THAT(refused(linear, {}, "W_query.weight", matrix(0, 3)),
              HasSubstr("must be a matrix that is not empty"));
  EXPECT_THAT(refused(linear, {}, "W_value.weight", matrix(5, 3)),
              HasSubstr("W_value.weight has 5 rows, expected 4"));
  EXPECT_THAT(refused(linear, {}, "W_key.weight", matrix(4, 2)),
              HasSubstr("W_key.weight has 2 columns, expected 3"));
  EXPECT_THAT(refused(linear, {.num_heads = 2}),
              HasSubstr("num_heads 2 was requested, but this SelfAttention has 1"));
  EXPECT_THAT(refused(linear, {.dropout = 0.5}), HasSubstr("not SelfAttention's"));
  EXPECT_THAT(refused(linear, {.add_zero_attn = true}), HasSubstr("MultiHeadAttention's"));
  EXPECT_THAT(refused(plain, {.causal = true}), HasSubstr("not SelfAttention's"));
  EXPECT_THAT(refused(linear, {.causal = true, .dropout = 1.0}), HasSubstr("[CausalAttention] dropout must be"));
  EXPECT_THAT(refused(wrapper, {.num_heads = 3}), HasSubstr("this MultiHeadAttentionWrapper has 2"));
  EXPECT_THAT(refused(wrapper, {.causal = false}), HasSubstr("are causal, but causal is false"));
  EXPECT_THAT(refused(wrapper, {}, "heads.1.W_query.weight", matrix(5, 3)),
              HasSubstr("heads.1.W_key.weight has 4 rows, expected 5"));
  EXPECT_THAT(refused(wrapper, {}, "heads.3.W_query.weight", matrix(4, 3)),
              HasSubstr("unexpected heads.3.W_query.weight"));
  EXPECT_THAT(refused(multi_head, {}), HasSubstr("give num_heads"));
  EXPECT_THAT(refused(multi_head, {.num_heads = -1}), HasSubstr("give num_heads"));
  EXPECT_THAT(refused(multi_head, {.num_heads = 3}),
              HasSubstr("d_out must be a multiple of num_heads, got d_out 4 and num_heads 3"));
  EXPECT_THAT(refused(multi_head, {.num_heads = 2}, "W_key.weight", matrix(3, 3)),
              HasSubstr("W_value.weight has 4 rows, expected 3"));
  EXPECT_THAT(refused(multi_head, {.num_heads = 2}, "out_proj.weight", matrix(5, 4)),
              HasSubstr("out_proj.weight has 5 rows, expected 4"));
}

TEST(ModulesCheckpoint, SizesThatDoNotFitTogetherAllocateNothingLarge) {
  // Each tensor is small, but their product would have terabytes.
  constexpr std::int64_t kMany = std::int64_t{1} << 22;
  const Tensor column(DType::f32, {kMany, 1}), row(DType::f32, {1, kMany}), one(DType::f32, {1, 1});
  const auto refused = [](const StateDict& state) {
    return refusal([&] { module_from_state_dict(state, {.num_heads = 1}); });
  };
  EXPECT_THAT(refused({{"W_query.weight", column}, {"W_key.weight", row}, {"W_value.weight", row}}),
              HasSubstr("W_key.weight has 1 rows, expected 4194304"));
  EXPECT_THAT(
      refused(
          {{"W_query.weight", row}, {"W_key.weight", one}, {"W_value.weight", column}, {"out_proj.weight", one}}),
      HasSubstr("W_value.weight has 4194304 rows, expected 1"));
  EXPECT_THAT(
      refused(
          {{"q_proj_weight", row}, {"k_proj_weight", column}, {"v_proj_weight", row}, {"out_proj.weight", one}}),
      HasSubstr("v_proj_weight has 1 rows, expected 4194304"));
  EXPECT_THAT(refused({{"in_proj_weight", column}, {"out_proj.weight", column}}),
              HasSubstr("out_proj.weight has 4194304 rows, expected 1"));
  EXPECT_THAT(refused({{"W_query.weight", one},
                       {"W_key.weight", one},
                       {"W_value.weight", one},
                       {"out_proj.weight", Tensor(DType::f32, {kMany, 0})}}),
              HasSubstr("must be a matrix that is not empty"));
}

}  // namespace
}  // namespace saccade::test
