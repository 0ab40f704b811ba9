// GPTModel against the published class in PyTorch (tests/data/gpt_goldens.safetensors, made by
// tests/goldens/make_gpt_goldens.py), and the needs of a training loop.
#include "saccade/gpt_model.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <string>

#include "saccade/io.h"
#include "saccade/runtime.h"
#include "support/each_isa.h"
#include "support/expect_close.h"
#include "support/published.h"
#include "support/refusal.h"

namespace saccade::test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

const std::map<std::string, Tensor>& goldens() {
  static const auto all = load_safetensors(SACCADE_SOURCE_DIR "/tests/data/gpt_goldens.safetensors").tensors;
  return all;
}

/// The goldens whose names begin with `prefix`, without the prefix.
StateDict goldens_of(const std::string& prefix) {
  StateDict result;
  for (const auto& [name, tensor] : goldens())
    if (name.starts_with(prefix)) result[name.substr(prefix.size())] = tensor;
  return result;
}

constexpr GPTModelOptions kOptions{
    .vocab_size = 11, .context_length = 7, .d_model = 12, .num_layers = 2, .num_heads = 3, .qkv_bias = true};

Tensor some_tokens(const Shape& shape) { return NumpyRandomState(1).randint(kOptions.vocab_size, shape); }

TEST(GPTModel, SeededParametersAreThePublishedOnes) {
  TorchGenerator generator(123);
  const StateDict drawn = GPTModel(kOptions, generator).state_dict(), published = goldens_of("state/");
  ASSERT_EQ(drawn.size(), published.size());
  for (const auto& [name, value] : published) {
    ASSERT_TRUE(drawn.contains(name)) << name;
    EXPECT_TRUE(std::ranges::equal(drawn.at(name).values<float>(), value.values<float>())) << name;
  }
}

class GPTModelOnEachIsa : public EachIsa {};

TEST_P(GPTModelOnEachIsa, LossAndGradientsAreThePublishedOnes) {
  StateDict state = goldens_of("state/");
  for (auto& [name, value] : goldens_of("changed/")) state[name] = value;
  GPTModel model(kOptions);
  model.load_state_dict(state);
  const Tensor logits = model.forward(goldens().at("tokens"));
  expect_close(logits, {.reference = goldens().at("logits"), .naive = goldens().at("f32/logits")});
  Tensor dlogits(DType::f32, logits.shape());
  const Tensor loss = Tensor::of<double>({cross_entropy(logits, goldens().at("targets"), {.dlogits = dlogits})});
  expect_close(loss,
               {.reference = goldens().at("loss"), .naive = goldens().at("f32/loss"), .coarsest = DType::f32});
  model.backward(dlogits);
  for (const NamedParameter& parameter : model.parameters()) {
    SCOPED_TRACE(parameter.name);
    const auto bound = goldens().find("bound/" + parameter.name);
    expect_close(parameter.gradient,
                 {.reference = goldens().at("gradient/" + parameter.name),
                  .naive = goldens().at("f32/gradient/" + parameter.name),
                  .bound = bound == goldens().end() ? TensorView() : bound->second.view()},
                 kGradient);
  }
}

SACCADE_FOR_EACH_ISA(GPTModelOnEachIsa);

TEST(GPTModel, SequencesDoNotChangeEachOther) {
  TorchGenerator generator(1);
  GPTModel model(kOptions, generator);
  model.eval();
  const Tensor tokens = some_tokens({5, 6});
  const Tensor together = model.forward(tokens);
  for (std::int64_t row = 0; row < 5; ++row) {
    const Tensor alone = model.forward(tokens.view().slice(0, row, row + 1));
    const Tensor expected = Tensor::copy_of(together.view().slice(0, row, row + 1));
    EXPECT_TRUE(std::ranges::equal(alone.values<float>(), expected.values<float>())) << row;
  }
}

TEST(GPTModel, NoTokenSeesALaterOne) {
  TorchGenerator generator(1);
  GPTModel model(kOptions, generator);
  model.eval();
  Tensor tokens = some_tokens({1, 7});
  const Tensor before = model.forward(tokens);
  tokens.at<std::int64_t>(0, 4) = (tokens.at<std::int64_t>(0, 4) + 1) % kOptions.vocab_size;
  const Tensor after = model.forward(tokens);
  for (std::int64_t i = 0; i < 7; ++i) {
    const bool same = std::ranges::equal(Tensor::copy_of(before.view().select(1, i)).values<float>(),
                                         Tensor::copy_of(after.view().select(1, i)).values<float>());
    EXPECT_EQ(same, i < 4) << i;
  }
}

TEST(GPTModel, GradientsAreTheSameForAnyNumberOfThreads) {
  GPTModelOptions options = kOptions;
  options.dropout = 0.2;
  TorchGenerator generator(1);
  GPTModel model(options, generator);
  const Tensor tokens = some_tokens({9, 7});
  std::vector<Tensor> first;
  for (const int threads : {1, 2, 3}) {
    set_num_threads(threads);
    model.seed_dropout(4);
    model.zero_grad();
    Tensor logits = model.forward(tokens);
    cross_entropy(logits, tokens, {.dlogits = logits});
    model.backward(logits);
    std::vector<Tensor> gradients;
    for (const NamedParameter& parameter : model.parameters())
      gradients.push_back(Tensor::copy_of(parameter.gradient));
    if (first.empty()) first = gradients;
    for (std::size_t i = 0; i < gradients.size(); ++i)
      EXPECT_TRUE(std::ranges::equal(gradients[i].values<float>(), first[i].values<float>()))
          << threads << " threads, " << model.parameters()[i].name;
  }
  set_num_threads(0);
}

TEST(GPTModel, DropoutFollowsFromItsSeedAndIsOffInEvaluation) {
  GPTModelOptions options = kOptions;
  options.dropout = 0.5;
  TorchGenerator generator(1);
  GPTModel model(options, generator);
  const Tensor tokens = some_tokens({2, 7});
  const auto logits_with_seed = [&](std::uint64_t seed) {
    model.seed_dropout(seed);
    return model.forward(tokens);
  };
  const Tensor one = logits_with_seed(1), again = logits_with_seed(1), other = logits_with_seed(2);
  EXPECT_TRUE(std::ranges::equal(one.values<float>(), again.values<float>()));
  EXPECT_FALSE(std::ranges::equal(one.values<float>(), other.values<float>()));
  model.eval();
  const Tensor evaluated = logits_with_seed(1);
  EXPECT_TRUE(std::ranges::equal(evaluated.values<float>(), logits_with_seed(2).values<float>()));
}

TEST(GPTModel, AttentionWeightsAreThoseOfEvaluation) {
  GPTModelOptions options = kOptions;
  options.dropout = 0.5;
  TorchGenerator generator(1);
  GPTModel model(options, generator);
  const std::vector<Tensor> weights = model.attention_weights(some_tokens({2, 7}));
  EXPECT_TRUE(model.training());
  ASSERT_EQ(weights.size(), 2u);
  for (const Tensor& layer : weights) {
    ASSERT_EQ(layer.shape(), (Shape{2, 3, 7, 7}));
    for (std::int64_t i = 0; i < 7; ++i) {
      float sum = 0.0f;
      for (std::int64_t j = 0; j < 7; ++j) sum += layer.at<float>(1, 2, i, j);
      EXPECT_FLOAT_EQ(sum, 1.0f);
      for (std::int64_t j = i + 1; j < 7; ++j) EXPECT_EQ(layer.at<float>(1, 2, i, j), 0.0f);
    }
  }
}

TEST(GPTModel, SinusoidalEmbeddingsAreSmall) {
  GPTModelOptions options = kOptions;
  TorchGenerator generator(1), again(1);
  const StateDict torch = GPTModel(options, generator).state_dict();
  options.init = GPTInitialization::sinusoidal;
  const StateDict sinusoidal = GPTModel(options, again).state_dict();
  for (const auto& [name, value] : sinusoidal) {
    const auto values = value.values<float>(), drawn = torch.at(name).values<float>();
    if (name == "pos_emb.weight") {
      for (const std::int64_t position : {0, 1, 6}) {
        const auto at = static_cast<double>(position);
        EXPECT_FLOAT_EQ(value.at<float>(position, 0), static_cast<float>(0.2 * std::sin(at)));
        EXPECT_FLOAT_EQ(value.at<float>(position, 1), static_cast<float>(0.2 * std::cos(at)));
        EXPECT_FLOAT_EQ(value.at<float>(position, 10),
                        static_cast<float>(0.2 * std::sin(at * std::pow(10000.0, -10.0 / 12))));
      }
    } else if (name == "tok_emb.weight") {
      for (std::size_t i = 0; i < values.size(); ++i) EXPECT_FLOAT_EQ(values[i], 0.2f * drawn[i]);
    } else {
      EXPECT_TRUE(std::ranges::equal(values, drawn)) << name;
    }
  }
}

TEST(GPTModel, AttentionOnlyBlocksAreTheHalfWithAttention) {
  GPTModelOptions options = kOptions;
  options.attention_only = true;
  TorchGenerator generator(1);
  GPTModel model(options, generator);
  StateDict state = model.state_dict();
  for (const auto& [name, value] : state)
    EXPECT_THAT(name, testing::Not(testing::AnyOf(HasSubstr("ff"), HasSubstr("norm2"))));
  const auto loaded = gpt_model_from_state_dict(state, 3);
  EXPECT_TRUE(loaded->options().attention_only);

  // A whole block whose feed-forward layers give 0.
  GPTModel whole(kOptions);
  for (const auto& [name, value] : whole.state_dict()) {
    if (state.contains(name)) continue;
    state[name] = value;
  }
  whole.load_state_dict(state);
  whole.eval();
  const Tensor tokens = some_tokens({2, 7});
  const Tensor expected = whole.forward(tokens);
  EXPECT_TRUE(std::ranges::equal(loaded->forward(tokens).values<float>(), expected.values<float>()));
  Tensor logits = model.forward(tokens);
  cross_entropy(logits, tokens, {.dlogits = logits});
  model.backward(logits);
  whole.train();
  Tensor whole_logits = whole.forward(tokens);
  cross_entropy(whole_logits, tokens, {.dlogits = whole_logits});
  whole.backward(whole_logits);
  std::map<std::string, Tensor> gradients;
  for (const NamedParameter& parameter : whole.parameters())
    gradients[parameter.name] = Tensor::copy_of(parameter.gradient);
  for (const NamedParameter& parameter : model.parameters())
    EXPECT_TRUE(std::ranges::equal(Tensor::copy_of(parameter.gradient).values<float>(),
                                   gradients.at(parameter.name).values<float>()))
        << parameter.name;
}

TEST(GPTModel, ComesBackFromACheckpoint) {
  TorchGenerator generator(7);
  GPTModel model(kOptions, generator);
  model.eval();
  const auto loaded = gpt_model_from_state_dict(model.state_dict(), 3);
  EXPECT_FALSE(loaded->training());
  const Tensor tokens = some_tokens({2, 7});
  EXPECT_TRUE(std::ranges::equal(loaded->forward(tokens).values<float>(), model.forward(tokens).values<float>()));
}

TEST(GPTModel, TakesTheBuffersOfThePublishedCheckpoints) {
  TorchGenerator generator(7);
  GPTModel model(kOptions, generator);
  StateDict state = model.state_dict();
  Tensor mask(DType::f32, {7, 7});
  for (std::int64_t i = 0; i < 7; ++i)
    for (std::int64_t j = i + 1; j < 7; ++j) mask.at<float>(i, j) = 1.0f;
  state["trf_blocks.0.att.mask"] = mask;
  state["trf_blocks.1.att.mask"] = mask;
  GPTModel(kOptions).load_state_dict(state);
  state["trf_blocks.1.att.mask"].at<float>(2, 1) = 1.0f;
  EXPECT_THROW(GPTModel(kOptions).load_state_dict(state), std::invalid_argument);
}

TEST(GPTModel, RefusesWhatDoesNotFit) {
  GPTModel model(kOptions);
  EXPECT_THAT(refusal([&] {
                model.forward(Tensor(DType::i64, {1, 8}));
              }),
              HasSubstr("[GPTModel] tokens must be 1 to context_length 7 a sequence, got 8"));
  EXPECT_THAT(refusal([&] { model.forward(Tensor(DType::i64, {1, 0})); }), HasSubstr("got 0"));
  EXPECT_THAT(refusal([&] {
                model.forward(Tensor(DType::f32, {1, 2}));
              }),
              HasSubstr("tokens must be i64 [batch, seqlen], got f32 [1, 2]"));
  EXPECT_THAT(refusal([&] { model.forward(Tensor::of<std::int64_t>({{3, 11}})); }), HasSubstr("11"));
  EXPECT_THROW(GPTModel(kOptions).backward(Tensor(DType::f32, {1, 2, 11})), std::logic_error);
  const auto with = [](auto change) {
    GPTModelOptions options = kOptions;
    change(options);
    return refusal([&] { GPTModel refused(options); });
  };
  EXPECT_THAT(with([](auto& o) { o.num_heads = 5; }), HasSubstr("d_model 12 and num_heads 5"));
  EXPECT_THAT(with([](auto& o) { o.vocab_size = 0; }), HasSubstr("vocab_size must be at least 1, got 0"));
  EXPECT_THAT(with([](auto& o) { o.num_layers = 0; }), HasSubstr("num_layers must be at least 1"));
  EXPECT_THAT(with([](auto& o) { o.dropout = 1.5; }),
              HasSubstr("dropout must be at least 0 and below 1, got 1.5"));
  StateDict state = model.state_dict();
  state.erase("final_norm.shift");
  EXPECT_THAT(refusal([&] { gpt_model_from_state_dict(state, 3); }), HasSubstr("missing final_norm.shift"));
  EXPECT_THAT(refusal([&] { gpt_model_from_state_dict(model.state_dict(), 5); }), HasSubstr("num_heads 5"));
}

// ---- One training step of the published MultiHeadAttention ----------------------------------------------------

TEST(PublishedTrainingStep, LossAndGradientsOfTheSixTokens) {
  // As the published examples make them; in f64 by PyTorch.
  constexpr double kAllowed = 1e-6;
  TorchGenerator generator(123);
  MultiHeadAttention module({.d_in = 3, .d_out = 2, .num_heads = 2, .context_length = 6, .causal = true},
                            generator);
  const nlohmann::json& tokens = published().at("six_tokens").at("inputs");
  Tensor batch(DType::f32, {2, 6, 3});
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t i = 0; i < 6; ++i)
      for (std::int64_t d = 0; d < 3; ++d)
        batch.at<float>(b, i, d) = tokens.at(static_cast<std::size_t>(i)).at(static_cast<std::size_t>(d));

  const Tensor output = module.forward(batch).output;
  double loss = 0.0;
  Tensor dout(DType::f32, output.shape());
  const double count = static_cast<double>(output.size());
  for (std::size_t i = 0; i < output.values<float>().size(); ++i) {
    const double x = output.values<float>()[i];
    loss += x * x / count;
    dout.values<float>()[i] = static_cast<float>(2 * x / count);
  }
  EXPECT_NEAR(loss, goldens().at("six/loss").at<double>(0), kAllowed);
  module.backward(dout);
  const StateDict drawn = module.state_dict();
  for (const NamedParameter& parameter : module.parameters()) {
    SCOPED_TRACE(parameter.name);
    EXPECT_TRUE(std::ranges::equal(drawn.at(parameter.name).values<float>(),
                                   goldens().at("six/state/" + parameter.name).values<float>()));
    const Tensor& expected = goldens().at("six/gradient/" + parameter.name);
    ASSERT_TRUE(std::ranges::equal(parameter.gradient.dims(), expected.shape()));
    for (std::size_t i = 0; i < expected.values<double>().size(); ++i)
      EXPECT_NEAR(parameter.gradient.as<float>()[i], expected.values<double>()[i], kAllowed);
  }
}

TEST(GPTModel, TellsAndChangesTheAttentionOfItsLayers) {
  TorchGenerator generator(123);
  GPTModel model(kOptions, generator);
  model.eval();
  const Tensor tokens = some_tokens({1, 6}), plain = model.forward(tokens);
  std::vector<std::int64_t> layers;
  const Tensor same = model.forward(tokens, [&](const LayerAttention& layer) { layers.push_back(layer.layer); });
  EXPECT_EQ(layers, (std::vector<std::int64_t>{0, 1}));
  EXPECT_TRUE(std::ranges::equal(same.values<float>(), plain.values<float>()));
  const HeadEdit edits[] = {{.place = {1, 2}}};
  const Tensor edited = model.forward(tokens, [&](const LayerAttention& layer) { edit_heads(layer, edits); });
  StateDict state = model.state_dict();
  Tensor& out = state.at("trf_blocks.1.att.out_proj.weight");
  for (std::int64_t row = 0; row < 12; ++row)
    for (std::int64_t column = 8; column < 12; ++column) out.at<float>(row, column) = 0.0f;
  model.load_state_dict(state);
  const Tensor zeroed = model.forward(tokens);
  for (std::size_t i = 0; i < edited.values<float>().size(); ++i)
    EXPECT_NEAR(edited.values<float>()[i], zeroed.values<float>()[i], 1e-5) << i;
  EXPECT_THAT(refusal([&] {
                model.forward(some_tokens({2, 3}), [](const LayerAttention&) {});
              }),
              HasSubstr("on_attention is for one sequence"));
  const Tensor two = some_tokens({2, 3}), with_none = model.forward(two, OnAttention());
  EXPECT_TRUE(std::ranges::equal(with_none.values<float>(), model.forward(two).values<float>()));
}

}  // namespace
}  // namespace saccade::test
