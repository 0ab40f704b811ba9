#include "saccade/training.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "core/check.h"

namespace saccade {
namespace {

constexpr const char* kTrainerName = "Trainer";

/// The random streams derived from a run's seed.
enum Draws : std::uint64_t { kParameters, kBatches, kDropout };

const TrainingOptions& checked(const TrainingOptions& options) {
  if (options.steps < 1) refuse(kTrainerName, "steps must be at least 1, got ", options.steps);
  if (options.batch_size < 1) refuse(kTrainerName, "batch_size must be at least 1, got ", options.batch_size);
  if (options.warmup_steps < 0)
    refuse(kTrainerName, "warmup_steps must not be negative, got ", options.warmup_steps);
  if (!(options.clip_norm >= 0.0)) refuse(kTrainerName, "clip_norm must not be negative, got ", options.clip_norm);
  return options;
}

std::unique_ptr<Optimizer> optimizer_of(GPTModel& model, const TrainingOptions& options) {
  if (options.optimizer == OptimizerKind::sgd) {
    return std::make_unique<Sgd>(
        model, SgdOptions{.lr = options.lr, .momentum = options.momentum, .weight_decay = options.weight_decay});
  }
  return std::make_unique<AdamW>(
      model, AdamWOptions{.lr = options.lr, .weight_decay = options.weight_decay, .decay_vectors = false});
}

constexpr std::string_view kModel = "model.", kOptimizer = "optimizer.";
constexpr const char* kHistory = "history";
constexpr std::array kHistoryColumns{&TrainingStep::loss, &TrainingStep::loss_repeated, &TrainingStep::loss_unseen,
                                     &TrainingStep::lr, &TrainingStep::gradient_norm};

/// The shortest decimal number that parses to the same value.
std::string exact(double value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

Tensor tensor_of(const std::vector<TrainingStep>& history) {
  constexpr auto kColumns = static_cast<std::int64_t>(kHistoryColumns.size());
  Tensor result(DType::f64, {static_cast<std::int64_t>(history.size()), kColumns});
  double* to = result.values<double>().data();
  for (const TrainingStep& step : history)
    for (const auto column : kHistoryColumns) *to++ = step.*column;
  return result;
}

std::vector<TrainingStep> history_of(const Tensor& rows) {
  std::vector<TrainingStep> history(static_cast<std::size_t>(rows.shape(0)));
  const double* from = rows.values<double>().data();
  std::int64_t number = 0;
  for (TrainingStep& step : history) {
    step.step = ++number;
    for (const auto column : kHistoryColumns) step.*column = *from++;
  }
  return history;
}

/// The entries whose names begin with `prefix`, with the prefix removed.
StateDict entries_of(const StateDict& state, std::string_view prefix) {
  StateDict result;
  for (const auto& [name, tensor] : state)
    if (name.starts_with(prefix)) result.emplace(name.substr(prefix.size()), tensor);
  return result;
}

/// The mean of the losses selected by `counts`; NaN if there are none.
double mean_of(const Tensor& losses, const Tensor& counts) {
  double sum = 0.0;
  std::int64_t count = 0;
  for (std::int64_t i = 0; counts.rank() != 0 && i < counts.size(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (!counts.values<bool>()[at]) continue;
    sum += losses.values<float>()[at];
    ++count;
  }
  return count > 0 ? sum / static_cast<double>(count) : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

Trainer::Trainer(const GPTModelOptions& model, const TrainingOptions& options,
                 std::shared_ptr<const TrainingTask> task)
    : model_options_(model), options_(checked(options)), task_(std::move(task)) {
  if (!task_) refuse(kTrainerName, "a task is needed");
  if (model.vocab_size != task_->vocab_size())
    refuse(kTrainerName, "the task has ", task_->vocab_size(), " tokens, but the model's vocab_size is ",
           model.vocab_size);
  TorchGenerator generator(derived_seed(options.seed, kParameters));
  model_ = std::make_unique<GPTModel>(model, generator);
  optimizer_ = optimizer_of(*model_, options_);
}

const TrainingStep& Trainer::step() {
  const auto index = static_cast<std::uint64_t>(steps());
  const TokenBatch batch = task_->batch(derived_seed(derived_seed(options_.seed, kBatches), index),
                                        options_.batch_size, model_options_.context_length);
  model_->train();
  model_->seed_dropout(derived_seed(derived_seed(options_.seed, kDropout), index));
  model_->zero_grad();
  Tensor logits = model_->forward(batch.inputs);
  Tensor losses(DType::f32, batch.targets.shape());
  TrainingStep step{.step = steps() + 1};
  step.loss = cross_entropy(logits, batch.targets, {.losses = losses, .dlogits = logits});
  step.loss_repeated = mean_of(losses, batch.repeated);
  step.loss_unseen = mean_of(losses, batch.unseen);
  model_->backward(logits);
  step.gradient_norm =
      clip_grad_norm(*model_, options_.clip_norm > 0.0 ? options_.clip_norm : std::numeric_limits<double>::max());
  const WarmupCosine schedule{.lr = options_.lr,
                              .min_lr = options_.lr / 10,
                              .warmup_steps = std::min(options_.warmup_steps, options_.steps),
                              .total_steps = options_.steps};
  step.lr = schedule.at(steps());
  optimizer_->set_lr(step.lr);
  history_.push_back(step);
  try {
    optimizer_->step();
  } catch (...) {  // out of memory: nothing else has changed
    history_.pop_back();
    throw;
  }
  return history_.back();
}

std::string Trainer::description() const {
  const GPTModelOptions& m = model_options_;
  const TrainingOptions& t = options_;
  std::string text;
  const auto add = [&](const char* name, const std::string& value) {
    text += (text.empty() ? "" : ", ") + std::string(name) + " " + value;
  };
  const auto whole = [](auto value) { return std::to_string(value); };
  add("task", task_->description());
  add("vocab_size", whole(m.vocab_size));
  add("context_length", whole(m.context_length));
  add("d_model", whole(m.d_model));
  add("num_layers", whole(m.num_layers));
  add("num_heads", whole(m.num_heads));
  add("d_hidden", whole(m.d_hidden));
  add("attention_only", whole(m.attention_only));
  add("dropout", exact(m.dropout));
  add("qkv_bias", whole(m.qkv_bias));
  add("init", whole(static_cast<int>(m.init)));
  add("steps", whole(t.steps));
  add("batch_size", whole(t.batch_size));
  add("optimizer", whole(static_cast<int>(t.optimizer)));
  add("lr", exact(t.lr));
  add("warmup_steps", whole(t.warmup_steps));
  add("weight_decay", exact(t.weight_decay));
  add("momentum", exact(t.momentum));
  add("clip_norm", exact(t.clip_norm));
  add("seed", whole(t.seed));
  return text;
}

StateDict Trainer::state_dict() const {
  StateDict result;
  for (auto& [name, value] : model_->state_dict()) result[std::string(kModel) + name] = std::move(value);
  for (auto& [name, value] : optimizer_->state_dict()) result[std::string(kOptimizer) + name] = std::move(value);
  result[kHistory] = tensor_of(history_);
  return result;
}

void Trainer::load_state_dict(const StateDict& state) {
  const auto rows = state.find(kHistory);
  const bool fits = rows != state.end() && rows->second.dtype() == DType::f64 && rows->second.rank() == 2 &&
                    rows->second.shape(1) == std::ssize(kHistoryColumns) &&
                    rows->second.shape(0) <= options_.steps;
  if (!fits)
    refuse(kTrainerName, "cannot load: history must be f64 [steps, ", std::ssize(kHistoryColumns),
           "] with at most ", options_.steps, " steps");
  std::vector<TrainingStep> history = history_of(rows->second);
  std::unique_ptr<Optimizer> optimizer = optimizer_of(*model_, options_);
  optimizer->load_state_dict(entries_of(state, kOptimizer));
  model_->load_state_dict(entries_of(state, kModel));
  optimizer_ = std::move(optimizer);
  history_ = std::move(history);
}

namespace {

/// The loss of each target, in evaluation mode, a few sequences at a time: f32 [batch, seqlen].
Tensor losses_of(GPTModel& model, const TokenBatch& batch) {
  constexpr std::int64_t kSequences = 16;
  const EvalMode while_looking(model);
  Tensor losses(DType::f32, batch.targets.shape());
  for (std::int64_t row = 0; row < batch.inputs.shape(0); row += kSequences) {
    const std::int64_t end = std::min(row + kSequences, batch.inputs.shape(0));
    cross_entropy(model.forward(batch.inputs.view().slice(0, row, end)), batch.targets.view().slice(0, row, end),
                  {.losses = losses.mutable_view().slice(0, row, end)});
  }
  return losses;
}

}  // namespace

double evaluate(GPTModel& model, const TokenBatch& batch) {
  const Tensor losses = losses_of(model, batch);
  double sum = 0.0;
  for (const float loss : losses.values<float>()) sum += loss;
  return sum / static_cast<double>(losses.size());
}

InductionLosses induction_losses(GPTModel& model, const TokenBatch& batch) {
  const Tensor losses = losses_of(model, batch);
  return {.repeated = mean_of(losses, batch.repeated), .unseen = mean_of(losses, batch.unseen)};
}

}  // namespace saccade
