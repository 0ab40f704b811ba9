// The backward pass of naive_module.h: the chain rule written out, over stored weights.
#pragma once

#include <cmath>
#include <map>
#include <string>

#include "nn/attention_modules/naive_module.h"

namespace saccade::test {

/// The gradients of a loss whose gradient with respect to the output is `dout` [batch, seqlen_q, d_out].
struct NaiveGradients {
  std::map<std::string, Tensor> parameters;  ///< by name, with the parameters' shapes
  Tensor query, key, value;                  ///< with the inputs' shapes
};

/// With `absolute` every term is replaced by its absolute value: the bound of the rounding errors.
template <class T>
class NaiveModuleBackward {
 public:
  NaiveModuleBackward(const NaiveCall& call, const TensorView& dout, bool absolute)
      : call_(call), dout_(dout), absolute_(absolute) {}

  NaiveGradients run() {
    for (const auto& [name, value] : call_.state) result_.parameters[name] = Tensor(dtype_of<T>, value.shape());
    const auto like = [](const TensorView& x) {
      return Tensor(dtype_of<T>, Shape(x.dims().begin(), x.dims().end()));
    };
    result_.query = like(call_.query);
    result_.key = like(call_.key);
    result_.value = like(call_.value);
    for (std::int64_t b = 0; b < call_.query.shape[0]; ++b) entry(b);
    return std::move(result_);
  }

 private:
  using Rows = detail::Rows<T>;

  T term(T x) const { return absolute_ ? std::abs(x) : x; }

  static Rows zeros_like(const Rows& rows) { return Rows(rows.size(), std::vector<T>(rows[0].size())); }

  Rows absolute_values(Rows rows) const {
    for (auto& row : rows)
      for (T& x : row) x = term(x);
    return rows;
  }

  /// The rows of a projection, including appended ones; as sums of absolute values with absolute_.
  Rows projected(const Rows& x, const std::string& layer, const std::string& appended, bool absolute) const {
    Rows rows = detail::project(x, call_.state, layer, absolute);
    if (!appended.empty()) rows = detail::with_appended(std::move(rows), call_, appended);
    return absolute ? absolute_values(std::move(rows)) : rows;
  }

  /// The backward pass of y = x W^T + b: adds to the layer's gradients and returns those of x.
  Rows project_backward(const Rows& x, const Rows& dy, const std::string& layer) {
    const Tensor weight = Tensor::copy_of(call_.state.at(layer + ".weight"), dtype_of<T>);
    Tensor& dweight = result_.parameters.at(layer + ".weight");
    Rows dx = zeros_like(x);
    for (std::size_t r = 0; r < x.size(); ++r) {
      for (std::int64_t o = 0; o < weight.shape(0); ++o) {
        const T dout = dy[r][static_cast<std::size_t>(o)];
        for (std::int64_t i = 0; i < weight.shape(1); ++i) {
          const auto at = static_cast<std::size_t>(i);
          dx[r][at] += term(dout * weight.at<T>(o, i));
          dweight.at<T>(o, i) += term(dout * x[r][at]);
        }
        if (const auto bias = result_.parameters.find(layer + ".bias"); bias != result_.parameters.end()) {
          bias->second.template at<T>(o) += term(dout);
        }
      }
    }
    return dx;
  }

  void entry(std::int64_t b) {
    const Rows query = detail::rows_of<T>(call_.query, b);
    const Rows key = detail::rows_of<T>(call_.key, b), value = detail::rows_of<T>(call_.value, b);
    const Rows q = projected(query, "W_query", "", false), k = projected(key, "W_key", "bias_k", false);
    // The same, to use as factors: sums of absolute values with absolute_.
    const Rows q_sums = projected(query, "W_query", "", absolute_);
    const Rows k_sums = projected(key, "W_key", "bias_k", absolute_);
    const Rows v_sums = projected(value, "W_value", "bias_v", absolute_);
    const Rows dout = absolute_values(detail::rows_of<T>(dout_, b));
    Rows dcontext = dout;
    if (call_.state.contains("out_proj.weight")) {
      dcontext = project_backward(contexts(b, q, k, v_sums), dout, "out_proj");
    }
    Rows dq = zeros_like(q), dk = zeros_like(k), dv = zeros_like(k);
    for (std::int64_t head = 0; head < call_.config.num_heads; ++head) {
      for (std::size_t i = 0; i < q.size(); ++i) {
        const Softmax row = softmax_of(b, head, i, q, k);
        row_backward(row, head, i, q_sums, k_sums, v_sums, dcontext, dq, dk, dv);
      }
    }
    take_appended("bias_k", dk, key.size());
    take_appended("bias_v", dv, key.size());
    dk.resize(key.size());
    dv.resize(key.size());
    detail::store(project_backward(query, dq, "W_query"), b, result_.query);
    detail::store(project_backward(key, dk, "W_key"), b, result_.key);
    detail::store(project_backward(value, dv, "W_value"), b, result_.value);
  }

  struct Softmax {
    std::vector<T> weights, factors;  ///< before dropout, and the factors of dropout
  };

  std::size_t kv_first(std::int64_t head) const {
    return static_cast<std::size_t>(head / (call_.config.num_heads / call_.config.num_kv_heads) *
                                    call_.config.head_dim);
  }
  T scale() const { return T{1} / std::sqrt(static_cast<T>(call_.config.head_dim)); }

  Softmax softmax_of(std::int64_t b, std::int64_t head, std::size_t i, const Rows& q, const Rows& k) const {
    const auto head_dim = static_cast<std::size_t>(call_.config.head_dim);
    const std::size_t first = static_cast<std::size_t>(head) * head_dim;
    Softmax row;
    for (std::size_t j = 0; j < k.size(); ++j) {
      T dot = 0;
      for (std::size_t d = 0; d < head_dim; ++d) dot += q[i][first + d] * k[j][kv_first(head) + d];
      const auto ii = static_cast<std::int64_t>(i), jj = static_cast<std::int64_t>(j);
      row.weights.push_back(dot * scale() + static_cast<T>(call_.added ? call_.added(b, head, ii, jj) : 0.0));
      row.factors.push_back(static_cast<T>(call_.dropout_factor ? call_.dropout_factor(b, head, ii, jj) : 1.0));
    }
    row.weights = detail::softmax(std::move(row.weights));
    return row;
  }

  Rows contexts(std::int64_t b, const Rows& q, const Rows& k, const Rows& v) const {
    const auto head_dim = static_cast<std::size_t>(call_.config.head_dim);
    Rows result = zeros_like(q);
    for (std::int64_t head = 0; head < call_.config.num_heads; ++head) {
      for (std::size_t i = 0; i < q.size(); ++i) {
        const Softmax row = softmax_of(b, head, i, q, k);
        for (std::size_t j = 0; j < k.size(); ++j)
          for (std::size_t d = 0; d < head_dim; ++d)
            result[i][static_cast<std::size_t>(head) * head_dim + d] +=
                row.weights[j] * row.factors[j] * v[j][kv_first(head) + d];
      }
    }
    return result;
  }

  void row_backward(const Softmax& row, std::int64_t head, std::size_t i, const Rows& q, const Rows& k,
                    const Rows& v, const Rows& dcontext, Rows& dq, Rows& dk, Rows& dv) const {
    const auto head_dim = static_cast<std::size_t>(call_.config.head_dim);
    const std::size_t first = static_cast<std::size_t>(head) * head_dim, kv = kv_first(head);
    std::vector<T> dweights;
    T delta = 0;
    for (std::size_t j = 0; j < k.size(); ++j) {
      T dweight = 0;
      for (std::size_t d = 0; d < head_dim; ++d) dweight += dcontext[i][first + d] * v[j][kv + d];
      dweights.push_back(dweight * row.factors[j]);
      delta += row.weights[j] * dweights[j];
    }
    for (std::size_t j = 0; j < k.size(); ++j) {
      const T dlogit = row.weights[j] * (absolute_ ? dweights[j] + delta : dweights[j] - delta);
      for (std::size_t d = 0; d < head_dim; ++d) {
        dq[i][first + d] += scale() * dlogit * k[j][kv + d];
        dk[j][kv + d] += scale() * dlogit * q[i][first + d];
        dv[j][kv + d] += row.weights[j] * row.factors[j] * dcontext[i][first + d];
      }
    }
  }

  void take_appended(const std::string& name, const Rows& gradients, std::size_t row) {
    if (!call_.state.contains(name)) return;
    Tensor& to = result_.parameters.at(name);
    for (std::size_t d = 0; d < gradients[row].size(); ++d) to.values<T>()[d] += gradients[row][d];
  }

  const NaiveCall& call_;
  TensorView dout_;
  bool absolute_;
  NaiveGradients result_;
};

}  // namespace saccade::test
