// The base of everything with trainable parameters: parameters and gradients by name, training and evaluation
// mode, and checkpoints as plain tensors by name.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "saccade/tensor.h"

#pragma GCC visibility push(default)
namespace saccade {

/// A module's parameters by name: what save_safetensors of io.h writes and load_safetensors reads.
using StateDict = std::map<std::string, Tensor>;

/// A trainable f32 tensor, and the gradient of the loss with respect to it.
struct Parameter {
  Tensor value;     ///< the tensor
  Tensor gradient;  ///< empty until a backward pass or zero_grad() allocates it

  /// The gradient, for a backward pass to add to; zeros at first.
  MutableTensorView gradient_to_add_to();
};

/// One parameter of a module by name, to read or change in place. The views live as long as the module.
struct NamedParameter {
  std::string name;            ///< with those of the submodules around it: "att.W_query.weight"
  MutableTensorView value;     ///< the parameter
  MutableTensorView gradient;  ///< of value's shape; empty until zero_grad() or a backward pass allocates it
};

/// A part of a network, with parameters and submodules. As in PyTorch
///
/// - a new module is in training mode: forward() keeps what backward() needs, and dropout is active. In evaluation
///   mode forward() only reads the module, so threads may share it;
/// - backward(dout) receives the gradient of the loss with respect to the last forward()'s result, *adds* the
///   gradients of the parameters to the existing ones, returns those of the inputs, and discards what forward()
///   kept. It throws std::logic_error when nothing is kept;
/// - zero_grad() sets every gradient to 0.
///
/// Parameters are f32. Gradients have the same bits for any number of threads.
///
/// A call for which there is not enough memory throws std::bad_alloc. The parameters and the mode are then as they
/// were. Gradients and what forward() kept may not be, and dropout may have counted the call: zero_grad() and
/// forward() come next.
class Module {
 public:
  virtual ~Module() = default;

  /// The class, e.g. "CausalAttention".
  const std::string& name() const { return name_; }

  /// All parameters, in the order in which PyTorch registers them; those of submodules as "module.parameter".
  std::vector<NamedParameter> parameters();

  /// Sets every gradient to 0.
  void zero_grad();

  /// In training mode dropout is active and backward() is possible.
  void train(bool training = true);
  void eval() { train(false); }
  bool training() const { return training_; }

  /// Makes dropout reproducible: the n-th training call after this one drops the same elements in every run with
  /// this seed. Submodules get seeds derived from this one.
  virtual void seed_dropout(std::uint64_t seed);

  /// Copies of all parameters by name.
  StateDict state_dict() const;

  /// Replaces all parameters by those of `state`; converts f16, bf16 and f64 to f32. Throws std::invalid_argument
  /// that lists by name what is missing, what is unexpected and what has a wrong shape or type; the module is then
  /// unchanged.
  void load_state_dict(const StateDict& state);

 protected:
  explicit Module(std::string name) : name_(std::move(name)) {}
  Module(const Module&) = default;
  Module(Module&&) = default;
  Module& operator=(const Module&) = default;
  Module& operator=(Module&&) = default;

  /// One part of a module: a parameter (rows [first_row, end_row) of it), or a submodule.
  struct Part {
    std::string name;
    Parameter* parameter = nullptr;
    std::int64_t first_row = 0, end_row = 0;
    Module* module = nullptr;

    Part(std::string part_name, Parameter& all_of_it)
        : Part(std::move(part_name), all_of_it, 0, all_of_it.value.shape(0)) {}
    Part(std::string part_name, Parameter& some_rows_of, std::int64_t first, std::int64_t end)
        : name(std::move(part_name)), parameter(&some_rows_of), first_row(first), end_row(end) {}
    Part(std::string part_name, Module& within) : name(std::move(part_name)), module(&within) {}
  };

  /// The parts of this module, in order.
  virtual std::vector<Part> parts() = 0;

  /// Renames the entries of a checkpoint whose names begin with `prefix` to the names of this module's parameters,
  /// and removes entries that are not parameters. Throws std::invalid_argument for invalid entries.
  virtual void translate(const std::string& prefix, std::map<std::string, TensorView>& entries);

 private:
  friend class EvalMode;

  void collect(const std::string& prefix, std::vector<NamedParameter>& into);
  /// This module and all within it.
  std::vector<Module*> all();

  std::string name_;
  bool training_ = true;
};

/// Puts a module into evaluation mode; the destructor restores the previous mode.
class EvalMode {
 public:
  explicit EvalMode(Module& module) : modules_(module.all()), was_training_(module.training()) { set(false); }
  ~EvalMode() { set(was_training_); }
  EvalMode(const EvalMode&) = delete;
  EvalMode& operator=(const EvalMode&) = delete;

 private:
  void set(bool training) {
    for (Module* const module : modules_) module->training_ = training;
  }

  std::vector<Module*> modules_;  // because the destructor cannot ask for memory
  bool was_training_;
};
using InEvaluation [[deprecated("renamed EvalMode")]] = EvalMode;

}  // namespace saccade
#pragma GCC visibility pop
