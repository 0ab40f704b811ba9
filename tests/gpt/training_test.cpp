// The training loop: it learns, gives the same result in every run, and resumes after an interruption.
#include "saccade/training.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "saccade/head_scores.h"
#include "saccade/runtime.h"
#include "support/refusal.h"

namespace saccade::test {
namespace {

using ::testing::HasSubstr;

constexpr GPTModelOptions kModel{.vocab_size = 32,
                                 .context_length = 15,
                                 .d_model = 16,
                                 .num_layers = 2,
                                 .num_heads = 2,
                                 .dropout = 0.1,
                                 .init = GPTInitialization::sinusoidal};
constexpr TrainingOptions kOptions{.steps = 12, .batch_size = 4, .warmup_steps = 3, .seed = 5};

Trainer induction_trainer(const TrainingOptions& options = kOptions) {
  return Trainer(kModel, options, std::make_shared<InductionTask>(kModel.vocab_size));
}

void expect_same(const StateDict& a, const StateDict& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, value] : a) {
    ASSERT_TRUE(b.contains(name)) << name;
    const Tensor& other = b.at(name);
    ASSERT_EQ(value.shape(), other.shape()) << name;
    // Bytes: a NaN in the history equals itself.
    EXPECT_EQ(std::string(static_cast<const char*>(value.data()), value.bytes()),
              std::string(static_cast<const char*>(other.data()), other.bytes()))
        << name;
  }
}

StateDict state_after_all_steps(Trainer& trainer) {
  while (!trainer.is_done()) trainer.step();
  return trainer.state_dict();
}

TEST(Trainer, EveryRunIsTheSame) {
  Trainer first = induction_trainer(), second = induction_trainer();
  const StateDict expected = state_after_all_steps(first);
  set_num_threads(3);
  expect_same(state_after_all_steps(second), expected);
  set_num_threads(0);
  TrainingOptions other = kOptions;
  other.seed = 6;
  Trainer third = induction_trainer(other);
  EXPECT_NE(third.step().loss, first.history().front().loss);
}

TEST(Trainer, AnInterruptedRunEndsAsIfItHadNotBeen) {
  for (const OptimizerKind optimizer : {OptimizerKind::adamw, OptimizerKind::sgd}) {
    TrainingOptions options = kOptions;
    options.optimizer = optimizer;
    Trainer whole = induction_trainer(options);
    const StateDict expected = state_after_all_steps(whole);
    for (const int steps : {0, 1, 7, 12}) {
      Trainer before = induction_trainer(options), after = induction_trainer(options);
      for (int i = 0; i < steps; ++i) before.step();
      after.step();  // nothing of this step may remain
      after.load_state_dict(before.state_dict());
      EXPECT_EQ(after.steps(), steps);
      expect_same(state_after_all_steps(after), expected);
    }
  }
}

TEST(Trainer, HistoryAndScheduleAreWhatTheOptionsSay) {
  Trainer trainer = induction_trainer();
  state_after_all_steps(trainer);
  const std::vector<TrainingStep>& history = trainer.history();
  ASSERT_EQ(history.size(), 12u);
  for (std::size_t i = 0; i < history.size(); ++i) EXPECT_EQ(history[i].step, static_cast<std::int64_t>(i) + 1);
  EXPECT_DOUBLE_EQ(history[0].lr, 1e-3 / 3);
  EXPECT_DOUBLE_EQ(history[2].lr, 1e-3);
  EXPECT_DOUBLE_EQ(history[3].lr, 1e-3);
  EXPECT_LT(history[11].lr, 2e-4);
  EXPECT_GT(history[11].lr, 1e-4);
  // An untrained model: all tokens are equally likely.
  EXPECT_NEAR(history[0].loss, std::log(32.0), 0.3);
  EXPECT_GT(history[0].gradient_norm, 0.0);
}

// Smaller than the example in docs/training.md: a vocabulary of 48, 24 tokens at a time.
double best_induction_score(std::int64_t num_layers, InductionLosses& losses) {
  const GPTModelOptions model{.vocab_size = 48,
                              .context_length = 24,
                              .d_model = 32,
                              .num_layers = num_layers,
                              .num_heads = 2,
                              .attention_only = true,
                              .init = GPTInitialization::sinusoidal};
  const auto task = std::make_shared<InductionTask>(model.vocab_size);
  Trainer trainer(model, {.steps = 1500, .batch_size = 48, .lr = 0.004, .warmup_steps = 50, .seed = 1}, task);
  while (!trainer.is_done()) trainer.step();
  const TokenBatch batch = task->batch(999, 64, model.context_length);
  losses = induction_losses(trainer.model(), batch);
  const Tensor scores = induction_scores(trainer.model().attention_weights(batch.inputs).back(), batch.inputs);
  return std::ranges::max(scores.values<double>());
}

TEST(Trainer, TwoLayersLearnToLookAtWhatFollowedLastTimeAndOneDoesNot) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "takes five minutes with AddressSanitizer; the other tests make the same calls";
#elif defined(SACCADE_EMULATED)
  GTEST_SKIP() << "takes ten minutes in an emulator; the other tests make the same calls";
#endif
  set_num_threads(1);  // tiny products: a second thread would only add waiting
  InductionLosses two, one;
  EXPECT_GE(best_induction_score(2, two), 0.8);
  EXPECT_LT(two.repeated, two.unseen / 4);
  EXPECT_LT(best_induction_score(1, one), 0.4);
  EXPECT_GT(one.repeated, one.unseen / 2);
  set_num_threads(0);
}

TEST(Trainer, RefusesAStateThatDoesNotFitAndStaysAsItWas) {
  Trainer trainer = induction_trainer();
  trainer.step();
  const StateDict before = trainer.state_dict();
  const auto refused = [&](auto change) {
    StateDict state = before;
    change(state);
    EXPECT_THROW(trainer.load_state_dict(state), std::invalid_argument);
    expect_same(trainer.state_dict(), before);
  };
  refused([](StateDict& state) { state.erase("history"); });
  refused([](StateDict& state) { state["history"] = Tensor(DType::f64, {3, 4}); });
  refused([](StateDict& state) { state["history"] = Tensor(DType::f64, {13, 5}); });
  refused([](StateDict& state) { state.erase("model.tok_emb.weight"); });
  refused([](StateDict& state) { state["model.tok_emb.weight"] = Tensor(DType::f32, {32, 17}); });
  refused([](StateDict& state) { state["optimizer.nobody.exp_avg"] = Tensor(DType::f32, {1}); });
}

TEST(Trainer, DescribesWhatItsBitsDependOn) {
  const std::string description = induction_trainer().description();
  EXPECT_THAT(description, HasSubstr("induction over 32 tokens"));
  EXPECT_THAT(description, HasSubstr("lr 0.001"));
  TrainingOptions other = kOptions;
  other.lr = 0.002;
  EXPECT_NE(induction_trainer(other).description(), description);
  EXPECT_NE(TextTask("some text").description(), TextTask("same text").description());
}

TEST(Trainer, RefusesOptionsThatDoNotFit) {
  const auto refusal = [](const GPTModelOptions& model, const TrainingOptions& options) {
    return test::refusal([&] { Trainer(model, options, std::make_shared<InductionTask>(32)); });
  };
  GPTModelOptions model = kModel;
  model.vocab_size = 33;
  EXPECT_THAT(refusal(model, kOptions), HasSubstr("the task has 32 tokens, but the model's vocab_size is 33"));
  const auto with = [&](auto change) {
    TrainingOptions options = kOptions;
    change(options);
    return refusal(kModel, options);
  };
  EXPECT_THAT(with([](auto& o) { o.steps = 0; }), HasSubstr("steps must be at least 1"));
  EXPECT_THAT(with([](auto& o) { o.batch_size = 0; }), HasSubstr("batch_size"));
  EXPECT_THAT(with([](auto& o) { o.warmup_steps = -1; }), HasSubstr("warmup_steps"));
  EXPECT_THAT(with([](auto& o) { o.clip_norm = NAN; }), HasSubstr("clip_norm"));
  EXPECT_THAT(with([](auto& o) { o.lr = -1; }), HasSubstr("lr"));
}

}  // namespace
}  // namespace saccade::test
