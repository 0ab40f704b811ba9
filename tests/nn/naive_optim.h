// Naive optimisers, one number at a time: with T = double the reference, with T = float the error of plain code.
#pragma once

#include <cmath>
#include <functional>
#include <vector>

#include "saccade/optim.h"
#include "saccade/tensor.h"

namespace saccade::test {

/// The new w for a number w of a parameter, its gradient g and the step, counted from 1.
template <class T>
using UpdateByHand = std::function<T(T w, T g, int step)>;

template <class T>
UpdateByHand<T> adamw_by_hand(const AdamWOptions& options, bool decays = true) {
  return [=, m = T{0}, v = T{0}](T w, T g, int t) mutable {
    const auto rounded = [](double x) { return static_cast<T>(x); };
    if (decays) w *= rounded(1 - options.lr * options.weight_decay);
    m += rounded(1 - options.beta1) * (g - m);
    v = v * rounded(options.beta2) + rounded(1 - options.beta2) * g * g;
    const T denominator = std::sqrt(v) / rounded(std::sqrt(1 - std::pow(options.beta2, t))) + rounded(options.eps);
    return w - rounded(options.lr / (1 - std::pow(options.beta1, t))) * (m / denominator);
  };
}

template <class T>
UpdateByHand<T> sgd_by_hand(const SgdOptions& options) {
  return [=, b = T{0}](T w, T g, int t) mutable {
    const auto rounded = [](double x) { return static_cast<T>(x); };
    g += rounded(options.weight_decay) * w;
    if (options.momentum != 0) {
      b = t == 1 ? g : rounded(options.momentum) * b + rounded(1 - options.dampening) * g;
      g = options.nesterov ? g + rounded(options.momentum) * b : b;
    }
    return w - rounded(options.lr) * g;
  };
}

/// A parameter during training, and the magnitude of the terms that sum to it.
struct Trained {
  Tensor value, bound;
};

/// Steps with the given gradients in order; every number starts with a new copy of `update`.
template <class T>
Trained trained_by_hand(const Tensor& before, const std::vector<Tensor>& gradients,
                        const UpdateByHand<T>& update) {
  Trained result{.value = Tensor::copy_of(before, dtype_of<T>), .bound = Tensor::copy_of(before, DType::f64)};
  for (std::size_t i = 0; i < before.values<float>().size(); ++i) {
    T& w = result.value.template values<T>()[i];
    double& bound = result.bound.values<double>()[i];
    bound = std::abs(bound);
    UpdateByHand<T> update_of_number = update;
    int step = 0;
    for (const Tensor& gradient : gradients) {
      const T old = w;
      w = update_of_number(old, static_cast<T>(gradient.values<float>()[i]), ++step);
      bound += std::abs(static_cast<double>(w) - static_cast<double>(old));
    }
  }
  return result;
}

}  // namespace saccade::test
