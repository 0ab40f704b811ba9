// Optimizers for training: AdamW, stochastic gradient descent, gradient clipping, and learning rate schedules.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "saccade/module.h"

#pragma GCC visibility push(default)
namespace saccade {

/// Updates the parameters of a module from their gradients. Results do not depend on the number of threads.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  /// One step with the current gradients. Parameters without a gradient do not change. If there is not enough
  /// memory it throws std::bad_alloc, and nothing has changed.
  void step();

  /// The number of calls of step(), including those before state_dict() was saved.
  std::int64_t steps() const { return steps_; }

  double lr() const { return lr_; }
  /// Makes `lr` the learning rate of later steps. Throws std::invalid_argument if it is negative or NaN.
  void set_lr(double lr);

  /// The optimizer's state, so that a run that loads it continues bit for bit: the number of steps as `step`, i64
  /// [1], and for each parameter that had a gradient "NAME.exp_avg" and so on (see the classes). Does not contain
  /// the options and the learning rate.
  StateDict state_dict() const;
  /// Continues from `state`. Throws std::invalid_argument that names the first entry that is missing, unexpected,
  /// or of a wrong shape or type; the optimizer is then unchanged.
  void load_state_dict(const StateDict& state);

 protected:
  /// `module` must outlive the optimizer.
  Optimizer(std::string name, Module& module, double lr);
  Optimizer(const Optimizer&) = default;
  Optimizer& operator=(const Optimizer&) = default;

  /// The state of one parameter.
  struct Moments {
    std::int64_t steps = 0;  ///< the steps in which it had a gradient
    Tensor first, second;    ///< f32 with the parameter's shape, or empty
  };

  /// The endings of the names of Moments in a state_dict; nullptr: no such entry.
  struct Suffixes {
    const char* steps = nullptr;
    const char* first = nullptr;
    const char* second = nullptr;
  };
  virtual Suffixes suffixes() const = 0;

  /// One step of one parameter that has a gradient; throws nothing. `moments` count this step. Those that
  /// suffixes() names are 0 before the first.
  virtual void update(const NamedParameter& parameter, Moments& moments) const = 0;

 private:
  /// Makes those of parameters that have their first gradient. Throws std::bad_alloc.
  void make_moments(std::span<const NamedParameter> parameters);

  std::string name_;
  Module* module_;
  double lr_;
  std::int64_t steps_ = 0;
  std::map<std::string, Moments> moments_;  ///< by the parameter's name
};

/// The numbers in AdamW's formulas.
struct AdamWOptions {
  double lr = 1e-3;                   ///< learning rate
  double beta1 = 0.9, beta2 = 0.999;  ///< decay of the means of gradients and of their squares
  double eps = 1e-8;                  ///< added to the denominator
  double weight_decay = 0.01;         ///< times lr: the share of a parameter that a step takes away
  /// Whether weight decay also applies to parameters of rank 1 (biases, scales and shifts), as in PyTorch.
  bool decay_vectors = true;
};

/// torch.optim.AdamW, with its operations in the same order (Loshchilov and Hutter, arXiv:1711.05101). In step t
/// of a parameter w with gradient g:
///
///     w -= lr * weight_decay * w
///     m += (1 - beta1) * (g - m);   v = beta2 * v + (1 - beta2) * g^2
///     w -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
///
/// state_dict(): "NAME.exp_avg" (m) and "NAME.exp_avg_sq" (v), with the parameter's shape, and "NAME.step" (t),
/// i64 [1].
class AdamW : public Optimizer {
 public:
  /// For the parameters of `module`, which must outlive the optimizer. Throws std::invalid_argument for a negative
  /// lr, eps or weight_decay, and for a beta outside [0, 1).
  explicit AdamW(Module& module, const AdamWOptions& options = {});

 protected:
  Suffixes suffixes() const override;
  void update(const NamedParameter& parameter, Moments& moments) const override;

 private:
  AdamWOptions options_;
};

/// The numbers in Sgd's formulas.
struct SgdOptions {
  double lr = 1e-3;           ///< learning rate
  double momentum = 0.0;      ///< the share of the last step's b that stays; 0: none
  double dampening = 0.0;     ///< momentum adds gradients after the first times 1 - dampening
  double weight_decay = 0.0;  ///< times the parameter: added to its gradient
  bool nesterov = false;      ///< looks one step of momentum ahead
};

/// torch.optim.SGD, with its operations in the same order. For a parameter w with gradient g:
///
///     g = g + weight_decay * w
///     b = momentum * b + (1 - dampening) * g, in the first step g        (only with momentum)
///     g = nesterov ? g + momentum * b : b                                (only with momentum)
///     w -= lr * g
///
/// state_dict(): "NAME.momentum_buffer" (b), only with momentum.
class Sgd : public Optimizer {
 public:
  /// For the parameters of `module`, which must outlive the optimizer. Throws std::invalid_argument for a negative
  /// lr, momentum or weight_decay, and for nesterov without momentum or with dampening.
  explicit Sgd(Module& module, const SgdOptions& options = {});

 protected:
  Suffixes suffixes() const override;
  void update(const NamedParameter& parameter, Moments& moments) const override;

 private:
  SgdOptions options_;
};

/// The norm of all gradients of a module as one vector, sqrt of the sum of squares, in f64. If it is larger than
/// max_norm, multiplies all gradients by max_norm / (norm + 1e-6), as torch.nn.utils.clip_grad_norm_ does; a NaN
/// norm makes them NaN. Returns the norm before clipping. Throws std::invalid_argument for a max_norm that is
/// negative or NaN.
double clip_grad_norm(Module& module, double max_norm);

/// A learning rate that rises linearly and then falls along half a cosine. For step s, counted from 0:
///
///     s < warmup_steps:   lr * (s + 1) / warmup_steps, so that step warmup_steps - 1 has lr;
///     s < total_steps:    min_lr + (lr - min_lr) * (1 + cos(pi * t)) / 2 with
///                         t = (s - warmup_steps) / (total_steps - warmup_steps), so that step warmup_steps has
///                         lr;
///     from there on:      min_lr.
struct WarmupCosine {
  double lr = 1e-3;
  double min_lr = 0.0;
  std::int64_t warmup_steps = 0;
  std::int64_t total_steps = 0;

  /// Throws std::invalid_argument for a negative step or number of steps.
  double at(std::int64_t step) const;
};

}  // namespace saccade
#pragma GCC visibility pop
