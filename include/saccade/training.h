// Training a GPTModel, step by step, and resuming after an interruption.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "saccade/gpt_model.h"
#include "saccade/optim.h"
#include "saccade/tasks.h"

#pragma GCC visibility push(default)
namespace saccade {

/// Which optimizer a Trainer uses.
enum class OptimizerKind : std::uint8_t { adamw, sgd };

struct TrainingOptions {
  std::int64_t steps = 1000;                       ///< of the whole run
  std::int64_t batch_size = 32;                    ///< sequences of a step
  OptimizerKind optimizer = OptimizerKind::adamw;  ///< what updates the parameters
  double lr = 1e-3;  ///< the peak rate, reached after warmup_steps; then half a cosine down to a tenth
  std::int64_t warmup_steps = 100;  ///< capped at the number of steps
  double weight_decay = 0.01;       ///< of matrices; not applied to biases, scales and shifts
  double momentum = 0.9;            ///< of sgd
  double clip_norm = 1.0;           ///< the largest gradient norm; 0: no limit
  std::uint64_t seed = 0;           ///< determines parameters, batches and dropout
};

/// The metrics of one step; NaN where the task does not define them.
struct TrainingStep {
  std::int64_t step = 0;     ///< from 1 on
  double loss = 0;           ///< mean cross-entropy of the batch before the step, in nats
  double loss_repeated = 0;  ///< of the targets that follow from earlier tokens
  double loss_unseen = 0;    ///< of the targets that are random
  double lr = 0;             ///< the learning rate of the step
  double gradient_norm = 0;  ///< before clipping
};

/// A model, its optimizer and its batches. The same options and task give the same bits in every run on one
/// machine, for any number of threads.
class Trainer {
 public:
  /// A new model. Throws std::invalid_argument for model options that do not fit the task, steps below 1,
  /// batch_size below 1, warmup_steps below 0, and options that the model or the optimizer rejects.
  Trainer(const GPTModelOptions& model, const TrainingOptions& options, std::shared_ptr<const TrainingTask> task);

  const TrainingOptions& options() const { return options_; }
  GPTModel& model() { return *model_; }

  /// Steps so far, including those before the run was resumed.
  std::int64_t steps() const { return static_cast<std::int64_t>(history_.size()); }
  bool is_done() const { return steps() >= options_.steps; }
  const std::vector<TrainingStep>& history() const { return history_; }

  /// One step: a batch forward and backward, clipping, and the update of the parameters. If there is not enough
  /// memory it throws std::bad_alloc; the run is then where it was, and the next call makes the same step.
  const TrainingStep& step();

  /// Everything that the rest of the run depends on, to save with save_safetensors of io.h: parameters as
  /// "model.NAME", the optimizer's state as "optimizer.NAME", and the history.
  StateDict state_dict() const;

  /// Resumes from this state: with the same options and task the run then ends with the same bits as an
  /// uninterrupted one. Throws std::invalid_argument for entries that do not fit; the trainer is then unchanged.
  void load_state_dict(const StateDict& state);

  /// Options and task in one line; two lines are equal iff options and tasks are. Save it with the state, which
  /// does not contain them.
  std::string description() const;

 private:
  GPTModelOptions model_options_;
  TrainingOptions options_;
  std::shared_ptr<const TrainingTask> task_;
  std::unique_ptr<GPTModel> model_;
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<TrainingStep> history_;
};

/// The mean cross-entropy of a model on a batch in nats, in evaluation mode, a few sequences at a time.
double evaluate(GPTModel& model, const TokenBatch& batch);

/// Losses of the targets of a batch of InductionTask, in nats; NaN where there are none.
struct InductionLosses {
  double repeated = 0;  ///< the mean cross-entropy of those that follow from earlier tokens
  double unseen = 0;    ///< of those that are random
};
/// The losses of a model on a batch, in evaluation mode.
InductionLosses induction_losses(GPTModel& model, const TokenBatch& batch);

}  // namespace saccade
#pragma GCC visibility pop
