// Naive layers, forward and backward: with T = double the reference, with T = float the error of plain code.
#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "saccade/tensor.h"
#include "support/expect_close.h"

namespace saccade::test {

using Tensors = std::map<std::string, Tensor>;

/// The results of a layer, and the same with absolute values for their terms.
struct ByHand {
  Tensors values, bounds;
};

/// One result of a layer during its summation.
template <class T>
class Sums {
 public:
  Sums(ByHand& into, const std::string& name, const Shape& shape)
      : value_(into.values[name] = Tensor(dtype_of<T>, shape)),
        bound_(into.bounds[name] = Tensor(DType::f64, shape)) {}

  template <class... Index>
  void add(T term, double bound, Index... at) {
    value_.template at<T>(at...) += term;
    bound_.template at<double>(at...) += bound;
  }
  template <class... Index>
  T operator()(Index... at) const {
    return value_.template at<T>(at...);
  }
  template <class... Index>
  double bound(Index... at) const {
    return bound_.template at<double>(at...);
  }

 private:
  Tensor& value_;
  Tensor& bound_;
};

template <class T>
Tensors in_precision(const Tensors& inputs) {
  Tensors result;
  for (const auto& [name, tensor] : inputs) result[name] = Tensor::copy_of(tensor, dtype_of<T>);
  return result;
}

/// x, scale, shift, dout -> y, dx, dscale, dshift.
template <class T>
ByHand layer_norm_by_hand(const Tensors& inputs, double eps) {
  const Tensors in = in_precision<T>(inputs);
  const Tensor &x = in.at("x"), &scale = in.at("scale"), &shift = in.at("shift"), &dout = in.at("dout");
  const std::int64_t rows = x.shape(0), dim = x.shape(1);
  ByHand result;
  Sums<T> y(result, "y", x.shape()), dx(result, "dx", x.shape());
  Sums<T> dscale(result, "dscale", {dim}), dshift(result, "dshift", {dim});
  const T count = static_cast<T>(dim);
  for (std::int64_t r = 0; r < rows; ++r) {
    T mean = 0, variance = 0, mean_g = 0, mean_gn = 0;
    double bound_g = 0, bound_gn = 0;
    for (std::int64_t c = 0; c < dim; ++c) mean += x.at<T>(r, c);
    mean /= count;
    for (std::int64_t c = 0; c < dim; ++c) variance += (x.at<T>(r, c) - mean) * (x.at<T>(r, c) - mean);
    const T root = std::sqrt(variance / count + static_cast<T>(eps));
    const auto n = [&](std::int64_t c) { return (x.at<T>(r, c) - mean) / root; };
    for (std::int64_t c = 0; c < dim; ++c) {
      const T g = dout.at<T>(r, c) * scale.at<T>(c);
      mean_g += g / count;
      mean_gn += g * n(c) / count;
      bound_g += std::abs(g) / count;
      bound_gn += std::abs(g * n(c)) / count;
    }
    for (std::int64_t c = 0; c < dim; ++c) {
      const T d = dout.at<T>(r, c), g = d * scale.at<T>(c);
      y.add(n(c) * scale.at<T>(c) + shift.at<T>(c), std::abs(n(c) * scale.at<T>(c)) + std::abs(shift.at<T>(c)), r,
            c);
      dx.add((g - mean_g - n(c) * mean_gn) / root, (std::abs(g) + bound_g + std::abs(n(c)) * bound_gn) / root, r,
             c);
      dscale.add(d * n(c), std::abs(d * n(c)), c);
      dshift.add(d, std::abs(d), c);
    }
  }
  return result;
}

/// x, dout (any shape of two dimensions) -> y, dx.
template <class T>
ByHand gelu_by_hand(const Tensors& inputs) {
  const Tensors in = in_precision<T>(inputs);
  const Tensor &x = in.at("x"), &dout = in.at("dout");
  ByHand result;
  Sums<T> y(result, "y", x.shape()), dx(result, "dx", x.shape());
  const T factor = static_cast<T>(std::sqrt(2.0 / 3.14159265358979323846)), cubic = static_cast<T>(0.044715);
  for (std::int64_t r = 0; r < x.shape(0); ++r) {
    for (std::int64_t c = 0; c < x.shape(1); ++c) {
      const T a = x.at<T>(r, c), d = dout.at<T>(r, c), t = std::tanh(factor * (a + cubic * a * a * a));
      const T left = T(0.5) * (1 + t), slope = factor * (1 + 3 * cubic * a * a);
      const T right = T(0.5) * a * (1 - t * t) * slope;
      y.add(a * left, std::abs(a) * (1 + std::abs(t)) / 2, r, c);
      dx.add(d * (left + right),
             std::abs(d) * ((1 + std::abs(t)) / 2 + std::abs(T(0.5) * a * (1 + t * t) * slope)), r, c);
    }
  }
  return result;
}

/// x [rows, d_in], weight [d_out, d_in], bias, dout -> y, dx, dweight, dbias.
template <class T>
ByHand linear_by_hand(const Tensors& inputs) {
  const Tensors in = in_precision<T>(inputs);
  const Tensor &x = in.at("x"), &weight = in.at("weight"), &bias = in.at("bias"), &dout = in.at("dout");
  const std::int64_t rows = x.shape(0), d_in = x.shape(1), d_out = weight.shape(0);
  ByHand result;
  Sums<T> y(result, "y", {rows, d_out}), dx(result, "dx", x.shape());
  Sums<T> dweight(result, "dweight", weight.shape()), dbias(result, "dbias", {d_out});
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t o = 0; o < d_out; ++o) {
      const T d = dout.at<T>(r, o);
      for (std::int64_t i = 0; i < d_in; ++i) {
        const T a = x.at<T>(r, i), w = weight.at<T>(o, i);
        y.add(a * w, std::abs(a * w), r, o);
        dx.add(d * w, std::abs(d * w), r, i);
        dweight.add(d * a, std::abs(d * a), o, i);
      }
      y.add(bias.at<T>(o), std::abs(bias.at<T>(o)), r, o);
      dbias.add(d, std::abs(d), o);
    }
  }
  return result;
}

/// x, weight0, bias0, weight2, bias2, dout -> y, dx and the gradients of the parameters.
template <class T>
ByHand feed_forward_by_hand(const Tensors& inputs) {
  const Tensors in = in_precision<T>(inputs);
  const auto first = [&](const Tensor& dout) {
    return linear_by_hand<T>(
        {{"x", in.at("x")}, {"weight", in.at("weight0")}, {"bias", in.at("bias0")}, {"dout", dout}});
  };
  const Tensor nothing(dtype_of<T>, {in.at("x").shape(0), in.at("weight0").shape(0)});
  const Tensor hidden = first(nothing).values.at("y");
  const Tensor active = gelu_by_hand<T>({{"x", hidden}, {"dout", nothing}}).values.at("y");
  ByHand second = linear_by_hand<T>(
      {{"x", active}, {"weight", in.at("weight2")}, {"bias", in.at("bias2")}, {"dout", in.at("dout")}});
  const ByHand gelu = gelu_by_hand<T>({{"x", hidden}, {"dout", second.values.at("dx")}});
  ByHand result = first(gelu.values.at("dx"));
  const auto take = [](Tensors& into, Tensors& end) {
    into["dweight0"] = std::move(into.at("dweight"));
    into["dbias0"] = std::move(into.at("dbias"));
    into["dweight2"] = std::move(end.at("dweight"));
    into["dbias2"] = std::move(end.at("dbias"));
    into["y"] = std::move(end.at("y"));
    into.erase("dweight");
    into.erase("dbias");
  };
  take(result.values, second.values);
  take(result.bounds, second.bounds);
  return result;
}

/// logits [rows, num_classes], targets (as f64; ignored: ignore_index) -> losses, mean [1], dlogits.
template <class T>
ByHand cross_entropy_by_hand(const Tensors& inputs, const Tensor& targets, std::int64_t ignore_index) {
  const Tensors in = in_precision<T>(inputs);
  const Tensor& logits = in.at("logits");
  const std::int64_t rows = logits.shape(0), num_classes = logits.shape(1);
  ByHand result;
  Sums<T> losses(result, "losses", {rows}), mean(result, "mean", {1}), dlogits(result, "dlogits", logits.shape());
  T count = 0;
  for (const std::int64_t target : targets.values<std::int64_t>()) count += target != ignore_index ? 1 : 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t target = targets.at<std::int64_t>(r);
    if (target == ignore_index) continue;
    T largest = logits.at<T>(r, 0), sum = 0;
    for (std::int64_t c = 1; c < num_classes; ++c) largest = std::max(largest, logits.at<T>(r, c));
    for (std::int64_t c = 0; c < num_classes; ++c) sum += std::exp(logits.at<T>(r, c) - largest);
    const T below = largest - logits.at<T>(r, target);
    losses.add(std::log(sum) + below, std::log(sum) + below, r);
    mean.add(losses(r) / count, losses.bound(r) / count, 0);
    for (std::int64_t c = 0; c < num_classes; ++c) {
      const T p = std::exp(logits.at<T>(r, c) - largest) / sum, one = c == target ? T(1) : T(0);
      dlogits.add((p - one) / count, (p + one) / count, r, c);
    }
  }
  return result;
}

/// Compares a layer's results with the naive ones, in double and in float.
inline void expect_like_by_hand(const Tensors& got, const ByHand& reference, const ByHand& naive) {
  for (const auto& [name, tensor] : got) {
    SCOPED_TRACE(name);
    expect_close(tensor, {reference.values.at(name), naive.values.at(name), reference.bounds.at(name), DType::f32},
                 name == "y" ? kForward : kGradient);
  }
}

/// The gradient of loss(inputs) with respect to one of them, by finite differences.
inline Tensor by_differences(const std::function<double(const Tensors&)>& loss, Tensors inputs,
                             const std::string& name) {
  constexpr double kStep = 1e-4;
  Tensor& input = inputs.at(name);
  Tensor gradient(DType::f64, input.shape());
  for (std::size_t i = 0; i < input.values<double>().size(); ++i) {
    const double before = input.values<double>()[i];
    input.values<double>()[i] = before + kStep;
    const double above = loss(inputs);
    input.values<double>()[i] = before - kStep;
    gradient.values<double>()[i] = (above - loss(inputs)) / (2 * kStep);
    input.values<double>()[i] = before;
  }
  return gradient;
}

/// The sum of y * dout: the loss whose gradients are dx and so on.
inline double weighted_sum(const Tensor& y, const Tensor& dout) {
  double sum = 0;
  for (std::size_t i = 0; i < y.values<double>().size(); ++i)
    sum += y.values<double>()[i] * dout.values<double>()[i];
  return sum;
}

}  // namespace saccade::test
