// Wrong calls of the language model, its tasks, its training and the choice of its tokens.
#include <cmath>
#include <limits>
#include <memory>

#include "hostile/checkpoint_arguments.h"
#include "hostile/wrong_calls.h"
#include "saccade/gpt_model.h"
#include "saccade/sampling.h"
#include "saccade/tasks.h"
#include "saccade/training.h"

namespace saccade::test {
namespace {

GPTModelOptions model_options(Arguments& a) {
  const auto is_given = [&] { return a.below(3) == 0; };
  GPTModelOptions options{.vocab_size = a.number("vocab_size", 20),
                          .context_length = a.number("context_length", 8),
                          .d_model = a.number("d_model", 8),
                          .num_layers = a.number("num_layers", 1),
                          .num_heads = a.number("num_heads", 2)};
  if (is_given()) options.d_hidden = a.number("d_hidden", 12);
  if (is_given()) options.dropout = a.real("dropout", 0.1);
  if (is_given()) options.init = a.choice("init", {GPTInitialization::torch, GPTInitialization::sinusoidal});
  options.attention_only = is_given();
  return options;
}

void call_gpt(Arguments& a) {
  for (const char* name : {"d_in", "d_out", "dout", "load", "targets", "token", "batch"}) a.name(name);
  TorchGenerator generator(1);
  const GPTModelOptions options = model_options(a);
  GPTModel model = a.below(2) == 0 ? GPTModel(options) : GPTModel(options, generator);
  const TensorView tokens = a.view_of("tokens", Tensor::of<std::int64_t>({{1, 2, 19}, {0, 5, 5}}));
  model.forward(tokens);
  model.backward(a.tensor("dlogits", {2, 3, 20}));
  model.attention_weights(tokens);
  model.next_logits(a.numbers("tokens", {1, 2, 3}));
  model.eval();
  model.forward(a.view_of("tokens", Tensor::of<std::int64_t>({{1, 2, 19}})), [](const LayerAttention&) {});
}

void call_block(Arguments& a) {
  for (const char* name : {"d_in", "d_out", "dout", "load", "targets", "token", "batch"}) a.name(name);
  TorchGenerator generator(1);
  const GPTModelOptions options = model_options(a);
  TransformerBlock block = a.below(2) == 0 ? TransformerBlock(options) : TransformerBlock(options, generator);
  Tensor weights;
  block.forward(a.tensor("x", {2, 3, 8}), weights);
  block.forward(a.tensor("x", {2, 3, 8}));
  block.backward(a.tensor("dout", {2, 3, 8}));
  block.eval();
  block.forward(a.tensor("x", {1, 3, 8}), OnAttention());
}

void call_gpt_of_checkpoint(Arguments& a) {
  GPTModel model({.vocab_size = 20, .context_length = 8, .d_model = 8, .num_heads = 2});
  gpt_model_from_state_dict(changed(a, model.state_dict()), a.number("num_heads", 2));
}

void call_tasks(Arguments& a) {
  if (a.below(2) == 0) {
    const InductionTask task(a.number("vocab_size", 32));
    task.batch(1, a.number("batch_size", 2), a.number("seqlen", 9));
    return;
  }
  const TextTask task(a.text("text", std::string(200, 'x')));
  (void)task.unigram_bits_per_byte();
  task.batch(1, a.number("batch_size", 2), a.number("seqlen", 9));
  task.held_out(a.number("seqlen", 9));
}

void call_trainer(Arguments& a) {
  for (const char* name : {"d_in", "d_out", "dout", "load", "targets", "token", "batch"}) a.name(name);
  GPTModelOptions model{
      .vocab_size = a.number("vocab_size", 32), .context_length = 8, .d_model = 8, .num_heads = 2};
  model.context_length = a.number("context_length", 8);
  TrainingOptions options{.steps = a.number("steps", 3), .batch_size = a.number("batch_size", 2)};
  options.optimizer = a.choice("optimizer", {OptimizerKind::adamw, OptimizerKind::sgd});
  if (a.below(2) == 0) options.lr = a.real("lr", 1e-3);
  if (a.below(2) == 0) options.warmup_steps = a.number("warmup_steps", 1);
  if (a.below(2) == 0) options.weight_decay = a.real("weight_decay", 0.1);
  if (a.below(2) == 0) options.momentum = a.real("momentum", 0.9);
  if (a.below(2) == 0) options.clip_norm = a.real("clip_norm", 1.0);
  std::shared_ptr<const TrainingTask> task = std::make_shared<InductionTask>(32);
  if (a.is_wrong("task")) task = nullptr;
  Trainer trainer(model, options, task);
  trainer.step();
  trainer.load_state_dict(changed(a, trainer.state_dict()));
  const TokenBatch batch = InductionTask(32).batch(1, 2, 8);
  const TokenBatch changed{
      Tensor::copy_of(a.view_of("inputs", batch.inputs)), Tensor::copy_of(a.view_of("targets", batch.targets)),
      Tensor::copy_of(a.view_of("repeated", batch.repeated)), Tensor::copy_of(a.view_of("unseen", batch.unseen))};
  evaluate(trainer.model(), changed);
  induction_losses(trainer.model(), changed);
}

void call_sampler(Arguments& a) {
  TokenSampler sampler(
      {.temperature = a.real("temperature", 0.7), .top_k = a.number("top_k", 3), .top_p = a.real("top_p", 0.9)});
  std::vector<float> logits{0.5F, 1.0F, -2.0F, 3.0F};
  if (a.is_wrong("logits")) {
    const float infinity = std::numeric_limits<float>::infinity();
    logits.assign(a.below(5), a.one_of({infinity, -infinity, std::nanf(""), 3e38F}));
  }
  sampler.next(logits);
}

std::vector<Caller> training_callers() {
  return {
      {{"GPTModel::GPTModel()", "GPTModel::GPTModel(generator)", "GPTModel::forward(tokens)",
        "GPTModel::backward(dlogits)", "GPTModel::attention_weights(tokens)", "GPTModel::next_logits(tokens)",
        "GPTModel::forward(tokens, on_attention)"},
       call_gpt,
       Throws::logic_error,
       {"Embedding", "Dropout", "LayerNorm", "Linear", "MultiHeadAttention", "FeedForward", "Gelu", "linear",
        "linear_backward"}},
      {{"TransformerBlock::TransformerBlock()", "TransformerBlock::TransformerBlock(generator)",
        "TransformerBlock::forward(x, weights)", "TransformerBlock::forward(x)",
        "TransformerBlock::backward(dout)", "TransformerBlock::forward(x, on_attention)"},
       call_block,
       Throws::logic_error,
       {"Embedding", "Dropout", "LayerNorm", "Linear", "MultiHeadAttention", "FeedForward", "Gelu", "linear",
        "linear_backward"}},
      {{"gpt_model_from_state_dict(state, num_heads)"},
       call_gpt_of_checkpoint,
       Throws::invalid_argument,
       {"GPTModel"}},
      {{"InductionTask::InductionTask(vocab_size)", "TextTask::TextTask(text)", "TextTask::held_out(seqlen)",
        "TrainingTask::batch(seed, batch_size, seqlen)"},
       call_tasks},
      {{"Trainer::Trainer(task)", "Trainer::load_state_dict(state)", "evaluate(model, batch)",
        "induction_losses(model, batch)"},
       call_trainer,
       Throws::invalid_argument,
       {"GPTModel", "AdamW", "Sgd", "Embedding", "cross_entropy", "InductionTask", "MultiHeadAttention"}},
      {{"TokenSampler::TokenSampler()", "TokenSampler::next(logits)"}, call_sampler},
  };
}

TEST(WrongCallsOfTraining, AreRefusedInTheHousesForm) { make_wrong_calls(training_callers(), 1500); }

TEST(WrongCallsOfTraining, CoverEveryFunction) {
  expect_all_called({"gpt_model.h", "sampling.h", "tasks.h", "training.h"}, training_callers(), {});
}

}  // namespace
}  // namespace saccade::test
