#include "saccade/optim.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numbers>
#include <set>
#include <utility>
#include <vector>

#include "backend/layer_kernels.h"
#include "core/check.h"
#include "core/parallel.h"

namespace saccade {
namespace {

void require_not_negative(std::string_view name, std::string_view option, double value) {
  if (!(value >= 0.0)) refuse(name, option, " must be 0 or more, got ", value);
}

Tensor number(std::int64_t value) {
  Tensor result(DType::i64, {1});
  result.values<std::int64_t>()[0] = value;
  return result;
}

/// Reads a state_dict entry by entry; entries left over at the end are unexpected.
class StateReader {
 public:
  StateReader(std::string_view name, const StateDict& state) : name_(name), state_(state) {}

  bool has(const std::string& entry) const { return state_.contains(entry); }

  std::int64_t read_number(const std::string& entry) {
    const Tensor& tensor = read(entry, DType::i64, std::array<std::int64_t, 1>{1});
    const std::int64_t value = tensor.values<std::int64_t>()[0];
    if (value < 0) refuse(name_, "cannot load: ", entry, " is ", value);
    return value;
  }

  const Tensor& read(const std::string& entry, DType dtype, std::span<const std::int64_t> shape) {
    const auto found = state_.find(entry);
    if (found == state_.end()) refuse(name_, "cannot load: missing ", entry);
    const Tensor& tensor = found->second;
    if (tensor.dtype() != dtype || !std::ranges::equal(tensor.shape(), shape))
      refuse(name_, "cannot load: ", entry, " is ", name_of(tensor.dtype()), " ", to_string(tensor.shape()),
             ", expected ", name_of(dtype), " ", to_string(shape));
    known_.insert(entry);
    return tensor;
  }

  void finish() const {
    for (const auto& [entry, tensor] : state_)
      if (!known_.contains(entry)) refuse(name_, "cannot load: unexpected ", entry);
  }

 private:
  std::string_view name_;
  const StateDict& state_;
  std::set<std::string> known_;
};

}  // namespace

// ---- Optimizer -----------------------------------------------------------------------------------------------

Optimizer::Optimizer(std::string name, Module& module, double lr)
    : name_(std::move(name)), module_(&module), lr_(lr) {
  require_not_negative(name_, "lr", lr);
}

void Optimizer::set_lr(double lr) {
  require_not_negative(name_, "lr", lr);
  lr_ = lr;
}

void Optimizer::step() {
  const std::vector<NamedParameter> parameters = module_->parameters();
  make_moments(parameters);  // all that can fail comes first
  for (const NamedParameter& parameter : parameters) {
    if (!parameter.gradient) continue;
    Moments& moments = moments_.at(parameter.name);
    ++moments.steps;
    update(parameter, moments);
  }
  ++steps_;
}

void Optimizer::make_moments(std::span<const NamedParameter> parameters) {
  const Suffixes ends = suffixes();
  std::map<std::string, Moments> made;
  for (const NamedParameter& parameter : parameters) {
    if (!parameter.gradient || moments_.contains(parameter.name)) continue;
    Moments& moments = made[parameter.name];
    const Shape shape(parameter.value.dims().begin(), parameter.value.dims().end());
    if (ends.first) moments.first = Tensor(DType::f32, shape);
    if (ends.second) moments.second = Tensor(DType::f32, shape);
  }
  moments_.merge(made);
}

StateDict Optimizer::state_dict() const {
  StateDict state;
  state["step"] = number(steps_);
  const Suffixes ends = suffixes();
  for (const auto& [parameter, moments] : moments_) {
    if (ends.steps) state[parameter + ends.steps] = number(moments.steps);
    if (ends.first) state[parameter + ends.first] = moments.first;
    if (ends.second) state[parameter + ends.second] = moments.second;
  }
  return state;
}

void Optimizer::load_state_dict(const StateDict& state) {
  StateReader reader(name_, state);
  const std::int64_t steps = reader.read_number("step");
  const Suffixes ends = suffixes();
  std::map<std::string, Moments> loaded;
  for (const NamedParameter& parameter : module_->parameters()) {
    const auto entry = [&](const char* end) { return parameter.name + end; };
    if (!ends.first || !reader.has(entry(ends.first))) continue;  // it had no gradient yet
    Moments& moments = loaded[parameter.name];
    moments.steps = ends.steps ? reader.read_number(entry(ends.steps)) : 1;  // at least
    moments.first = reader.read(entry(ends.first), DType::f32, parameter.value.dims());
    if (ends.second) moments.second = reader.read(entry(ends.second), DType::f32, parameter.value.dims());
  }
  reader.finish();
  steps_ = steps;
  moments_ = std::move(loaded);
}

// ---- AdamW ---------------------------------------------------------------------------------------------------

AdamW::AdamW(Module& module, const AdamWOptions& options)
    : Optimizer("AdamW", module, options.lr), options_(options) {
  require_not_negative("AdamW", "eps", options.eps);
  require_not_negative("AdamW", "weight_decay", options.weight_decay);
  for (const double beta : {options.beta1, options.beta2})
    if (!(beta >= 0.0 && beta < 1.0)) refuse("AdamW", "beta1 and beta2 must be in [0, 1), got ", beta);
}

Optimizer::Suffixes AdamW::suffixes() const {
  return {.steps = ".step", .first = ".exp_avg", .second = ".exp_avg_sq"};
}

void AdamW::update(const NamedParameter& parameter, Moments& moments) const {
  const bool decays = options_.decay_vectors || parameter.value.rank > 1;
  const auto t = static_cast<double>(moments.steps);
  const AdamWParams params{.keep = static_cast<float>(decays ? 1.0 - lr() * options_.weight_decay : 1.0),
                           .one_minus_beta1 = static_cast<float>(1.0 - options_.beta1),
                           .beta2 = static_cast<float>(options_.beta2),
                           .one_minus_beta2 = static_cast<float>(1.0 - options_.beta2),
                           .step_size = static_cast<float>(lr() / (1.0 - std::pow(options_.beta1, t))),
                           .root_of_correction2 = static_cast<float>(std::sqrt(1.0 - std::pow(options_.beta2, t))),
                           .eps = static_cast<float>(options_.eps)};
  const float* const gradient = parameter.gradient.as<float>();
  float* const value = parameter.value.as<float>();
  float *const first = moments.first.values<float>().data(), *const second = moments.second.values<float>().data();
  const LayerKernels& kernels = layer_kernels();
  const auto work = [&](std::int64_t i, std::int64_t end) {
    kernels.adamw(params, gradient + i, value + i, first + i, second + i, end - i);
  };
  for_blocks(parameter.value.size(), 1, std::ref(work));
}

// ---- Stochastic gradient descent -----------------------------------------------------------------------------

Sgd::Sgd(Module& module, const SgdOptions& options) : Optimizer("Sgd", module, options.lr), options_(options) {
  require_not_negative("Sgd", "momentum", options.momentum);
  require_not_negative("Sgd", "weight_decay", options.weight_decay);
  if (options.nesterov && (options.momentum == 0.0 || options.dampening != 0.0))
    refuse("Sgd", "nesterov needs a momentum and no dampening, got momentum ", options.momentum, " and dampening ",
           options.dampening);
}

Optimizer::Suffixes Sgd::suffixes() const {
  return {.first = options_.momentum != 0.0 ? ".momentum_buffer" : nullptr};
}

void Sgd::update(const NamedParameter& parameter, Moments& moments) const {
  const SgdParams params{.lr = static_cast<float>(lr()),
                         .weight_decay = static_cast<float>(options_.weight_decay),
                         .momentum = static_cast<float>(options_.momentum),
                         .one_minus_dampening = static_cast<float>(1.0 - options_.dampening),
                         .nesterov = options_.nesterov,
                         .is_first = moments.steps == 1};
  const float* const gradient = parameter.gradient.as<float>();
  float* const value = parameter.value.as<float>();
  float* const momentum = options_.momentum != 0.0 ? moments.first.values<float>().data() : nullptr;
  const LayerKernels& kernels = layer_kernels();
  const auto work = [&](std::int64_t i, std::int64_t end) {
    kernels.sgd(params, gradient + i, value + i, momentum ? momentum + i : nullptr, end - i);
  };
  for_blocks(parameter.value.size(), 1, std::ref(work));
}

// ---- Clipping ------------------------------------------------------------------------------------------------

namespace {

/// In f64, because squares of floats do not overflow there. Eight sums, because each addition depends on the
/// previous one.
double sum_of_squares(const float* x, std::int64_t count) {
  std::array<double, 8> sums{};
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    for (std::size_t s = 0; s < 8; ++s)
      sums[s] += double{x[i + static_cast<std::int64_t>(s)]} * x[i + static_cast<std::int64_t>(s)];
  for (; i < count; ++i) sums[0] += double{x[i]} * x[i];
  double sum = 0.0;
  for (const double part : sums) sum += part;
  return sum;
}

}  // namespace

double clip_grad_norm(Module& module, double max_norm) {
  require_not_negative("clip_grad_norm", "max_norm", max_norm);
  const std::vector<NamedParameter> parameters = module.parameters();
  // Each block has its own sum; these are added in the order of the blocks.
  const std::int64_t block = rows_of_block(1);
  double sum = 0.0;
  std::vector<double> sums;
  for (const NamedParameter& parameter : parameters) {
    if (!parameter.gradient) continue;
    const float* const gradient = parameter.gradient.as<float>();
    sums.assign(static_cast<std::size_t>(parameter.gradient.size() / block + 1), 0.0);
    for_blocks(parameter.gradient.size(), 1, [&](std::int64_t i, std::int64_t end) {
      sums[static_cast<std::size_t>(i / block)] = sum_of_squares(gradient + i, end - i);
    });
    for (const double part : sums) sum += part;
  }
  const double norm = std::sqrt(sum), factor = max_norm / (norm + 1e-6);
  if (factor >= 1.0) return norm;
  const LayerKernels& kernels = layer_kernels();
  for (const NamedParameter& parameter : parameters) {
    if (!parameter.gradient) continue;
    float* const gradient = parameter.gradient.as<float>();
    const auto work = [&](std::int64_t i, std::int64_t end) {
      kernels.multiply(static_cast<float>(factor), gradient + i, end - i);
    };
    for_blocks(parameter.gradient.size(), 1, std::ref(work));
  }
  return norm;
}

// ---- Schedule ------------------------------------------------------------------------------------------------

double WarmupCosine::at(std::int64_t step) const {
  if (step < 0 || warmup_steps < 0 || total_steps < 0)
    refuse("WarmupCosine", "steps must not be negative, got step ", step, ", warmup_steps ", warmup_steps,
           " and total_steps ", total_steps);
  if (step < warmup_steps) return lr * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  if (step >= total_steps) return min_lr;
  const double t = static_cast<double>(step - warmup_steps) / static_cast<double>(total_steps - warmup_steps);
  return min_lr + (lr - min_lr) * (1.0 + std::cos(std::numbers::pi * t)) / 2.0;
}

}  // namespace saccade
