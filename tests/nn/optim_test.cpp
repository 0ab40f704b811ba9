// The optimisers against naive code, on every instruction set of the machine.
#include "saccade/optim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "nn/layer_checks.h"
#include "nn/naive_optim.h"
#include "saccade/layers.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

constexpr int kSteps = 5;

Tensor gradient_for(const std::string& name, const Shape& shape, std::uint64_t step) {
  return random_tensor(shape, (name == "matrix" ? 100u : 200u) + step);
}

/// A module with one parameter of each kind that optimisers distinguish; the tests set its gradients.
class Parameters : public Module {
 public:
  explicit Parameters(std::int64_t columns) : Module("Parameters") {
    matrix_.value = random_tensor({3, columns}, 1);
    vector_.value = random_tensor({columns}, 2);
    unused_.value = random_tensor({2}, 3);
  }

  /// Sets the gradients of one step; `unused` has none.
  void set_gradients(std::uint64_t step) {
    matrix_.gradient = gradient_for("matrix", matrix_.value.shape(), step);
    vector_.gradient = gradient_for("vector", vector_.value.shape(), step);
  }
  void set_gradient_of_unused() { unused_.gradient = random_tensor({2}, 7); }

 protected:
  std::vector<Part> parts() override {
    return {Part("matrix", matrix_), Part("vector", vector_), Part("unused", unused_)};
  }

 private:
  Parameter matrix_, vector_, unused_;
};

class OptimOnIsa : public EachIsaAndThreads {};
SACCADE_FOR_EACH_ISA(OptimOnIsa);

constexpr std::int64_t kColumns[] = {1, 3, 17, 64, 100, 257};

/// Compares a parameter after kSteps steps with naive code.
void expect_like_by_hand(const StateDict& state, const std::string& name, const Tensor& before,
                         const UpdateByHand<double>& in_double, const UpdateByHand<float>& in_float) {
  SCOPED_TRACE(name);
  std::vector<Tensor> gradients;
  for (std::uint64_t step = 1; step <= kSteps; ++step)
    gradients.push_back(gradient_for(name, before.shape(), step));
  const Trained reference = trained_by_hand<double>(before, gradients, in_double);
  const Trained naive = trained_by_hand<float>(before, gradients, in_float);
  expect_close(state.at(name), {reference.value, naive.value, reference.bound});
}

/// The parameters after kSteps steps.
StateDict after_steps(Optimizer& optimizer, Parameters& module) {
  for (std::uint64_t step = 1; step <= kSteps; ++step) {
    module.set_gradients(step);
    optimizer.step();
  }
  EXPECT_EQ(optimizer.steps(), kSteps);
  const StateDict state = module.state_dict();
  EXPECT_TRUE(same_bits(state.at("unused"), random_tensor({2}, 3)));
  return state;
}

TEST_P(OptimOnIsa, AdamWStepsAsByHand) {
  for (const std::int64_t columns : kColumns) {
    for (const AdamWOptions& options :
         {AdamWOptions{}, AdamWOptions{.lr = 0.1, .beta1 = 0.5, .beta2 = 0.9, .eps = 1e-3, .weight_decay = 0.3},
          AdamWOptions{.lr = 0.1, .weight_decay = 0.3, .decay_vectors = false}}) {
      SCOPED_TRACE(columns);
      Parameters module(columns);
      AdamW optimizer(module, options);
      const StateDict before = module.state_dict(), after = after_steps(optimizer, module);
      for (const std::string name : {"matrix", "vector"}) {
        const bool decays = options.decay_vectors || name == "matrix";
        expect_like_by_hand(after, name, before.at(name), adamw_by_hand<double>(options, decays),
                            adamw_by_hand<float>(options, decays));
      }
    }
  }
}

TEST_P(OptimOnIsa, SgdStepsAsByHand) {
  for (const std::int64_t columns : kColumns) {
    for (const SgdOptions& options :
         {SgdOptions{.lr = 0.1}, SgdOptions{.lr = 0.1, .weight_decay = 0.2},
          SgdOptions{.lr = 0.1, .momentum = 0.9},
          SgdOptions{.lr = 0.1, .momentum = 0.8, .dampening = 0.3, .weight_decay = 0.2},
          SgdOptions{.lr = 0.1, .momentum = 0.8, .weight_decay = 0.1, .nesterov = true}}) {
      SCOPED_TRACE(columns);
      Parameters module(columns);
      Sgd optimizer(module, options);
      const StateDict before = module.state_dict(), after = after_steps(optimizer, module);
      for (const std::string name : {"matrix", "vector"})
        expect_like_by_hand(after, name, before.at(name), sgd_by_hand<double>(options),
                            sgd_by_hand<float>(options));
    }
  }
}

TEST_P(OptimOnIsa, ThreadsDoNotMatter) {
  StateDict expected;
  double norm = 0;
  for (const int threads : {1, 2, 5}) {
    set_num_threads(threads);
    Parameters module(100001);
    AdamW adamw(module);
    Sgd sgd(module, {.lr = 0.1, .momentum = 0.9});
    module.set_gradients(1);
    adamw.step();
    sgd.step();
    const double got = clip_grad_norm(module, 1.0);
    module.set_gradients(2);
    adamw.step();
    if (threads == 1) {
      expected = module.state_dict();
      norm = got;
    }
    EXPECT_EQ(got, norm);
    for (const auto& [name, value] : module.state_dict()) EXPECT_TRUE(same_bits(value, expected.at(name))) << name;
  }
}

/// Runs three steps, saves, loads into a new optimiser, and runs three more; and six without interruption.
template <class Make>
void check_resumed(const Make& make) {
  const auto run = [](Parameters& module, Optimizer& optimizer, std::uint64_t first) {
    for (std::uint64_t step = first; step < first + 3; ++step) {
      module.set_gradients(step);
      optimizer.step();
    }
  };
  Parameters whole(17), half(17), resumed(17);
  auto optimizer = make(whole), before = make(half), after = make(resumed);
  run(whole, optimizer, 1);
  run(half, before, 1);
  resumed.load_state_dict(half.state_dict());
  after.load_state_dict(before.state_dict());
  EXPECT_EQ(after.steps(), 3);
  for (Parameters* module : {&whole, &resumed}) module->set_gradient_of_unused();
  run(whole, optimizer, 4);
  run(resumed, after, 4);
  for (const auto& [name, value] : whole.state_dict())
    EXPECT_TRUE(same_bits(resumed.state_dict().at(name), value)) << name;
  const StateDict state = optimizer.state_dict();
  EXPECT_EQ(after.state_dict().size(), state.size());
  for (const auto& [name, value] : after.state_dict()) EXPECT_TRUE(same_bits(value, state.at(name))) << name;
}

TEST_P(OptimOnIsa, AResumedRunGoesOnBitForBit) {
  check_resumed([](Module& module) { return AdamW(module, {.lr = 0.1}); });
  check_resumed([](Module& module) { return Sgd(module, {.lr = 0.1}); });
  check_resumed([](Module& module) { return Sgd(module, {.lr = 0.1, .momentum = 0.9, .dampening = 0.5}); });
}

std::vector<std::string> names_of(const StateDict& state) {
  std::vector<std::string> names;
  for (const auto& [name, value] : state) names.push_back(name);
  return names;
}

TEST(Optim, WhatIsRememberedHasTheParametersNames) {
  Embedding layer(2, 3);
  AdamW adamw(layer);
  Sgd sgd(layer, {.lr = 0.1, .momentum = 0.9}), plain(layer);
  EXPECT_THAT(names_of(adamw.state_dict()), ::testing::ElementsAre("step"));
  layer.zero_grad();
  for (Optimizer* optimizer : std::initializer_list<Optimizer*>{&adamw, &sgd, &plain}) optimizer->step();
  EXPECT_THAT(names_of(adamw.state_dict()),
              ::testing::ElementsAre("step", "weight.exp_avg", "weight.exp_avg_sq", "weight.step"));
  EXPECT_THAT(names_of(sgd.state_dict()), ::testing::ElementsAre("step", "weight.momentum_buffer"));
  EXPECT_THAT(names_of(plain.state_dict()), ::testing::ElementsAre("step"));
}

TEST(Optim, RefusesStatesThatDoNotFitAndStaysAsItWas) {
  Embedding layer(2, 3);
  AdamW optimizer(layer);
  layer.zero_grad();
  optimizer.step();
  const StateDict good = optimizer.state_dict();
  const auto refusal_of = [&](const std::function<void(StateDict&)>& damage) {
    StateDict state = good;
    state.at("step").at<std::int64_t>(0) = 9;
    damage(state);
    const std::string text = refusal([&] { optimizer.load_state_dict(state); });
    EXPECT_EQ(optimizer.steps(), 1);
    return text;
  };
  EXPECT_EQ(refusal_of([](StateDict& state) { state.erase("step"); }), "[AdamW] cannot load: missing step");
  EXPECT_EQ(refusal_of([](StateDict& state) { state.erase("weight.exp_avg_sq"); }),
            "[AdamW] cannot load: missing weight.exp_avg_sq");
  EXPECT_EQ(refusal_of([](StateDict& state) { state.erase("weight.exp_avg"); }),
            "[AdamW] cannot load: unexpected weight.exp_avg_sq");
  EXPECT_EQ(refusal_of([](StateDict& state) { state["x"] = Tensor(DType::f32, {1}); }),
            "[AdamW] cannot load: unexpected x");
  EXPECT_EQ(refusal_of([](StateDict& state) {
              state["weight.exp_avg"] = Tensor(DType::f32, {3, 2});
            }),
            "[AdamW] cannot load: weight.exp_avg is f32 [3, 2], expected f32 [2, 3]");
  EXPECT_EQ(refusal_of([](StateDict& state) { state["weight.step"] = Tensor(DType::f32, {1}); }),
            "[AdamW] cannot load: weight.step is f32 [1], expected i64 [1]");
  EXPECT_EQ(refusal_of([](StateDict& state) { state.at("step").at<std::int64_t>(0) = -1; }),
            "[AdamW] cannot load: step is -1");
}

TEST(Optim, RefusesOptionsThatMakeNoSense) {
  Embedding layer(2, 3);
  EXPECT_EQ(refusal([&] { AdamW(layer, {.lr = -1}); }), "[AdamW] lr must be 0 or more, got -1");
  EXPECT_EQ(refusal([&] { AdamW(layer, {.beta2 = 1}); }), "[AdamW] beta1 and beta2 must be in [0, 1), got 1");
  EXPECT_EQ(refusal([&] { AdamW(layer, {.eps = -1}); }), "[AdamW] eps must be 0 or more, got -1");
  EXPECT_EQ(refusal([&] { Sgd(layer, {.weight_decay = -1}); }), "[Sgd] weight_decay must be 0 or more, got -1");
  EXPECT_EQ(refusal([&] { Sgd(layer, {.nesterov = true}); }),
            "[Sgd] nesterov needs a momentum and no dampening, got momentum 0 and dampening 0");
  AdamW optimizer(layer);
  EXPECT_EQ(refusal([&] { optimizer.set_lr(std::nan("")); }), "[AdamW] lr must be 0 or more, got nan");
  optimizer.set_lr(0.5);
  EXPECT_EQ(optimizer.lr(), 0.5);
  EXPECT_EQ(refusal([&] { clip_grad_norm(layer, -1); }), "[clip_grad_norm] max_norm must be 0 or more, got -1");
}

/// All gradients, one after the other.
std::vector<float> gradients_of(Module& module) {
  std::vector<float> result;
  for (const NamedParameter& parameter : module.parameters()) {
    if (!parameter.gradient) continue;
    const float* const values = parameter.gradient.as<float>();
    result.insert(result.end(), values, values + parameter.gradient.size());
  }
  return result;
}

TEST_P(OptimOnIsa, ClippingScalesToTheNormAndLeavesShortGradientsAlone) {
  for (const std::int64_t columns : {1, 17, 100, 9001}) {
    Parameters module(columns);
    module.set_gradients(1);
    const std::vector<float> before = gradients_of(module);
    long double squares = 0;
    float naive_squares = 0;
    for (const float x : before) {
      squares += static_cast<long double>(x) * x;
      naive_squares += x * x;
    }
    const auto norm = static_cast<double>(std::sqrt(squares));
    const Tensor reference = Tensor::of<double>({norm}), naive = Tensor::of<float>({std::sqrt(naive_squares)});
    expect_close(Tensor::of<double>({clip_grad_norm(module, 2 * norm)}),
                 {.reference = reference, .naive = naive, .coarsest = DType::f32});
    EXPECT_EQ(gradients_of(module), before);
    const auto factor = static_cast<float>(norm / 3 / (clip_grad_norm(module, norm / 3) + 1e-6));
    const std::vector<float> after = gradients_of(module);
    for (std::size_t i = 0; i < before.size(); ++i) EXPECT_EQ(after[i], factor * before[i]);
  }
}

TEST(Optim, ClippingDoesNotOverflowAndPassesNan) {
  Embedding layer(2, 2);
  layer.zero_grad();
  float* const gradient = layer.parameters()[0].gradient.as<float>();
  gradient[0] = 3e30f;
  gradient[3] = 4e30f;
  const double norm = clip_grad_norm(layer, 1.0);
  EXPECT_EQ(norm, std::sqrt(double{3e30f} * 3e30f + double{4e30f} * 4e30f));
  EXPECT_EQ(gradient[3], 4e30f * static_cast<float>(1.0 / norm));
  gradient[1] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(clip_grad_norm(layer, 1.0)));
  EXPECT_TRUE(std::isnan(gradient[3]));
}

TEST(Optim, WarmupRisesToTheRateAndTheCosineFallsToTheSmallest) {
  const WarmupCosine schedule{.lr = 1.0, .min_lr = 0.2, .warmup_steps = 4, .total_steps = 12};
  EXPECT_EQ(schedule.at(0), 0.25);
  EXPECT_EQ(schedule.at(3), 1.0);
  EXPECT_EQ(schedule.at(4), 1.0);
  EXPECT_DOUBLE_EQ(schedule.at(8), 0.6);
  EXPECT_DOUBLE_EQ(schedule.at(6), 0.2 + 0.8 * (1 + std::sqrt(0.5)) / 2);
  EXPECT_GT(schedule.at(11), 0.2);
  EXPECT_EQ(schedule.at(12), 0.2);
  EXPECT_EQ(schedule.at(1000), 0.2);
  EXPECT_EQ((WarmupCosine{.lr = 2, .total_steps = 3}.at(0)), 2);
  EXPECT_EQ((WarmupCosine{.lr = 2, .min_lr = 1}.at(0)), 1);
  EXPECT_EQ(refusal([&] { schedule.at(-1); }),
            "[WarmupCosine] steps must not be negative, got step -1, warmup_steps 4 and total_steps 12");
}

}  // namespace
}  // namespace saccade::test
