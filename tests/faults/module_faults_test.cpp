// Memory that runs out in modules, optimizers and training: parameters, the optimizer's state and the history stay
// as they were, and the run goes on with the bits of one without a fault.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "faults/allocation_faults.h"
#include "saccade/attention_modules.h"
#include "saccade/functional.h"
#include "saccade/gpt_model.h"
#include "saccade/head_scores.h"
#include "saccade/layers.h"
#include "saccade/optim.h"
#include "saccade/sampling.h"
#include "saccade/tasks.h"
#include "saccade/training.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

std::string parameters_of(const Module& module) { return bits_of_all(module.state_dict()); }

std::string gradients_of(Module& module) {
  std::string bits;
  for (const NamedParameter& parameter : module.parameters())
    bits += parameter.name + bits_of(Tensor::copy_of(parameter.gradient));
  return bits;
}

/// A module, and what its passes give.
template <class M>
struct Trained {
  std::shared_ptr<M> module;
  Tensor output{}, dx{};

  /// Before the passes, also those that are repeated.
  void prepare() {
    module->zero_grad();
    module->seed_dropout(3);
  }
};

/// Both passes of a module that `make` makes.
template <class Make, class Forward>
void expect_passes_survive(const Make& make, const Forward& forward, const Tensor& dout) {
  expect_survives([&]() -> Operation {
    using M = std::remove_cvref_t<decltype(*make())>;
    const auto trained = std::make_shared<Trained<M>>(Trained<M>{make()});
    trained->prepare();
    return {
        .run =
            [&, trained] {
              trained->output = forward(*trained->module);
              if constexpr (std::is_void_v<decltype(trained->module->backward(dout))>)
                trained->module->backward(dout);
              else if constexpr (std::is_same_v<decltype(trained->module->backward(dout)), Tensor>)
                trained->dx = trained->module->backward(dout);
              else
                trained->dx = trained->module->backward(dout).x;
            },
        .result =
            [trained] { return bits_of(trained->output) + bits_of(trained->dx) + gradients_of(*trained->module); },
        .state = [trained] { return parameters_of(*trained->module); },
        .prepare = [trained] { trained->prepare(); }};
  });
}

template <class M, class... Options>
auto drawn(const Options&... options) {
  return [=] {
    TorchGenerator generator(1);
    return std::make_shared<M>(options..., generator);
  };
}

const auto forward_of = [](const Tensor& x) { return [&x](auto& module) { return module.forward(x); }; };

TEST(AllocationFaults, OfLayers) {
  const Tensor x = random_tensor({2, 20, 12}, 1), dout = random_tensor({2, 20, 12}, 2);
  expect_passes_survive(drawn<Linear>(12, 12), forward_of(x), dout);
  expect_passes_survive([] { return std::make_shared<LayerNorm>(12); }, forward_of(x), dout);
  expect_passes_survive([] { return std::make_shared<Gelu>(); }, forward_of(x), dout);
  expect_passes_survive([] { return std::make_shared<Dropout>(0.5); }, forward_of(x), dout);
  expect_passes_survive(drawn<FeedForward>(12, 40), forward_of(x), dout);
  Tensor tokens(DType::i64, {2, 20});
  for (std::int64_t i = 0; i < tokens.size(); ++i)
    tokens.values<std::int64_t>()[static_cast<std::size_t>(i)] = i % 7;
  expect_passes_survive(drawn<Embedding>(7, 12), forward_of(tokens), dout);
}

TEST(AllocationFaults, OfLayersOnThreads) {
  const Tensor x = random_tensor({2, 3000, 12}, 1), dout = random_tensor({2, 3000, 12}, 2);
  expect_passes_survive([] { return std::make_shared<LayerNorm>(12); }, forward_of(x), dout);
}

TEST(AllocationFaults, OfAttentionModules) {
  const Tensor x = random_tensor({2, 40, 12}, 1), dout = random_tensor({2, 40, 12}, 2);
  Tensor key_mask(DType::boolean, {2, 40});
  for (std::int64_t j = 0; j < 40; ++j) key_mask.at<bool>(0, j) = key_mask.at<bool>(1, j) = j % 3 != 0;
  const Tensor mask = random_tensor({40, 40}, 3);
  const auto output = [&](const ForwardOptions& options) {
    return [&x, options](auto& module) { return module.forward(x, options).output; };
  };
  expect_passes_survive(drawn<SelfAttention>(SelfAttentionOptions{.d_in = 12, .d_out = 12}), output({}), dout);
  expect_passes_survive(drawn<CausalAttention>(CausalAttentionOptions{.d_in = 12, .d_out = 12, .dropout = 0.2}),
                        output({.weights = HeadWeights::per_head, .steps = true}), dout);
  expect_passes_survive(
      drawn<MultiHeadAttentionWrapper>(MultiHeadAttentionWrapperOptions{.d_in = 12, .d_out = 6, .num_heads = 2}),
      output({}), dout);
  const MultiHeadAttentionOptions options{.d_in = 12,
                                          .d_out = 12,
                                          .num_heads = 4,
                                          .num_kv_heads = 2,
                                          .dropout = 0.2,
                                          .add_bias_kv = true,
                                          .add_zero_attn = true};
  expect_passes_survive(drawn<MultiHeadAttention>(options),
                        output({.mask = mask, .key_mask = key_mask, .weights = HeadWeights::averaged}), dout);
}

/// PyTorch's dropout stores all weights.
TEST(AllocationFaults, OfPublishedDropout) {
  const Tensor x = random_tensor({2, 6, 12}, 1), dout = random_tensor({2, 6, 12}, 2);
  const auto published = [&x](auto& module) {
    TorchGenerator generator(123);
    return module.forward(x, {.dropout_generator = &generator}).output;
  };
  expect_passes_survive(drawn<CausalAttention>(CausalAttentionOptions{.d_in = 12, .d_out = 12, .dropout = 0.5}),
                        published, dout);
}

TEST(AllocationFaults, OfFunctions) {
  const Tensor x = random_tensor({3000, 12}, 1), scale = random_tensor({12}, 2);
  const auto written = [&](const auto& call) {
    return [&] {
      return giving([&] {
        Tensor y(DType::f32, x.shape());
        call(y);
        return y;
      });
    };
  };
  expect_survives(written([&](Tensor& y) { activate(Activation::gelu, x, y); }));
  expect_survives(written([&](Tensor& y) { activate_gated(Activation::silu, x, x, y); }));
  expect_survives(written([&](Tensor& y) { layer_norm(x, scale, scale, y); }));
  expect_survives(written([&](Tensor& y) { rms_norm(x, scale, y); }));
  Tensor targets(DType::i64, {3000});
  expect_survives(written([&](Tensor& y) { cross_entropy(x, targets, {.dlogits = y}); }));
}

// ---- Checkpoints ---------------------------------------------------------------------------------------------

constexpr GPTModelOptions kModel{
    .vocab_size = 32, .context_length = 15, .d_model = 16, .num_layers = 2, .num_heads = 2, .dropout = 0.1};

std::shared_ptr<GPTModel> gpt_model(std::uint64_t seed) {
  TorchGenerator generator(seed);
  return std::make_shared<GPTModel>(kModel, generator);
}

TEST(AllocationFaults, OfCheckpoints) {
  const StateDict other = gpt_model(2)->state_dict();
  expect_survives([&]() -> Operation {
    const std::shared_ptr<GPTModel> model = gpt_model(1);
    const auto bits = [model] { return parameters_of(*model); };
    return {.run = [&, model] { model->load_state_dict(other); }, .result = bits, .state = bits};
  });
  expect_survives([&] {
    return giving([&] { return gpt_model_from_state_dict(other, 2); },
                  [](const std::unique_ptr<GPTModel>& model) { return parameters_of(*model); });
  });
  TorchGenerator generator(1);
  const StateDict attention = MultiHeadAttention({.d_in = 8, .d_out = 8, .num_heads = 2}, generator).state_dict();
  expect_survives([&] {
    return giving([&] { return module_from_state_dict(attention, {.num_heads = 2}); },
                  [](const std::unique_ptr<AttentionModule>& module) { return parameters_of(*module); });
  });
}

TEST(AllocationFaults, OfALanguageModel) {
  const std::shared_ptr<GPTModel> model = gpt_model(1);
  model->eval();
  Tensor tokens(DType::i64, {2, 15});
  expect_survives([&] { return giving([&] { return model->forward(tokens); }); });
  expect_survives([&] { return giving([&] { return model->attention_weights(tokens).back(); }); });
  const std::vector<Tensor> weights = model->attention_weights(tokens);
  expect_survives([&] { return giving([&] { return induction_scores(weights[0], tokens); }); });
  const auto sampler = [] { return TokenSampler({.top_k = 3, .seed = 4}); };
  const Tensor logits = random_tensor({32}, 5);
  expect_survives([&]() -> Operation {  // a failed call draws nothing
    const auto sample = std::make_shared<std::pair<TokenSampler, std::string>>(sampler(), "");
    return {.run = [&, sample] { sample->second = std::to_string(sample->first.next(logits.values<float>())); },
            .result = [sample] { return sample->second; }};
  });
}

// ---- Steps ---------------------------------------------------------------------------------------------------

/// A model with gradients, and an optimizer that may have made steps.
struct Optimized {
  Optimized(bool is_adamw, int steps) {
    Tensor tokens(DType::i64, {2, 15});
    model->seed_dropout(3);
    model->backward(model->forward(tokens));
    if (is_adamw)
      optimizer = std::make_unique<AdamW>(*model);
    else
      optimizer = std::make_unique<Sgd>(*model, SgdOptions{.momentum = 0.9});
    for (int i = 0; i < steps; ++i) optimizer->step();
  }

  std::string bits() const { return parameters_of(*model) + bits_of_all(optimizer->state_dict()); }

  std::shared_ptr<GPTModel> model = gpt_model(1);
  std::unique_ptr<Optimizer> optimizer;
};

TEST(AllocationFaults, OfOptimizers) {
  for (const bool is_adamw : {true, false}) {
    for (const int steps : {0, 1}) {
      SCOPED_TRACE((is_adamw ? "AdamW, step " : "SGD, step ") + std::to_string(steps));
      expect_survives([&]() -> Operation {
        const auto optimized = std::make_shared<Optimized>(is_adamw, steps);
        const auto bits = [optimized] { return optimized->bits(); };
        return {.run = [optimized] { optimized->optimizer->step(); }, .result = bits, .state = bits};
      });
    }
    const StateDict state = Optimized(is_adamw, 2).optimizer->state_dict();
    expect_survives([&]() -> Operation {
      const auto optimized = std::make_shared<Optimized>(is_adamw, 1);
      const auto bits = [optimized] { return optimized->bits(); };
      return {
          .run = [&, optimized] { optimized->optimizer->load_state_dict(state); }, .result = bits, .state = bits};
    });
  }
}

/// Threads share the work on a parameter: none of them may find that there is no memory for it.
TEST(AllocationFaults, OfOptimizersOnThreads) {
  set_num_threads(3);
  expect_survives([&]() -> Operation {
    const auto layer = std::make_shared<Linear>(300, 300);
    layer->zero_grad();
    for (const NamedParameter& parameter : layer->parameters())
      std::fill_n(parameter.gradient.as<float>(), parameter.gradient.size(), 0.5F);
    const auto optimizer = std::make_shared<AdamW>(*layer);
    optimizer->step();
    const auto bits = [=] { return parameters_of(*layer) + bits_of_all(optimizer->state_dict()); };
    return {.run = [layer, optimizer] { optimizer->step(); }, .result = bits, .state = bits};
  });
  set_num_threads(0);
}

TEST(AllocationFaults, OfClipping) {
  expect_survives([&]() -> Operation {
    const auto optimized = std::make_shared<Optimized>(true, 0);
    const auto bits = [optimized] { return gradients_of(*optimized->model); };
    return {.run = [optimized] { clip_grad_norm(*optimized->model, 1e-3); }, .result = bits, .state = bits};
  });
}

TEST(AllocationFaults, OfTraining) {
  const TrainingOptions options{.steps = 4, .batch_size = 4, .warmup_steps = 2, .seed = 5};
  const auto trainer_after = [&](int steps) {
    auto trainer = std::make_shared<Trainer>(kModel, options, std::make_shared<InductionTask>(kModel.vocab_size));
    for (int i = 0; i < steps; ++i) trainer->step();
    return trainer;
  };
  const auto bits_of_trainer = [](const std::shared_ptr<Trainer>& trainer) {
    return [trainer] { return bits_of_all(trainer->state_dict()); };
  };
  for (const int steps : {0, 2})
    expect_survives([&]() -> Operation {
      const std::shared_ptr<Trainer> trainer = trainer_after(steps);
      return {.run = [trainer] { trainer->step(); },
              .result = bits_of_trainer(trainer),
              .state = bits_of_trainer(trainer)};
    });
  const StateDict state = trainer_after(3)->state_dict();
  expect_survives([&]() -> Operation {
    const std::shared_ptr<Trainer> trainer = trainer_after(1);
    return {.run = [&, trainer] { trainer->load_state_dict(state); },
            .result = bits_of_trainer(trainer),
            .state = bits_of_trainer(trainer)};
  });
}

}  // namespace
}  // namespace saccade::test
