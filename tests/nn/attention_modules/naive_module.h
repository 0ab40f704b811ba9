// A naive module of attention_modules.h: loops over plain numbers, in double as the reference or in float for the
// error of plain code. Appended keys are really appended, masks are added, weights are stored.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "saccade/attention_modules.h"

namespace saccade::test {

/// A number for each weight [batch entry, head, query, key]; keys beyond the sequence are the appended ones.
using PerWeight =
    std::function<double(std::int64_t batch, std::int64_t head, std::int64_t row, std::int64_t column)>;

/// One call, with the parameters named as in MultiHeadAttention (out_proj is optional). All tensors f32 or f64.
struct NaiveCall {
  const StateDict& state;
  const ModuleConfig& config;
  TensorView query, key, value;  ///< [batch, seqlen, width]
  PerWeight added{};             ///< to the logits; -inf hides
  PerWeight dropout_factor{};    ///< times the weights: 0 or 1 / (1 - p)
};

template <class T>
struct NaiveResult {
  Tensor output;   ///< [batch, seqlen_q, d_out]
  Tensor weights;  ///< [batch, num_heads, seqlen_q, columns], after dropout
  Tensor bound;    ///< like output: the sum of the absolute values of all terms, from the values on
};

namespace detail {

template <class T>
using Rows = std::vector<std::vector<T>>;

/// x W^T + b for a batch entry. With `absolute` every number is replaced by its absolute value.
template <class T>
Rows<T> project(const Rows<T>& x, const StateDict& state, const std::string& layer, bool absolute = false) {
  const auto term = [&](T number) { return absolute ? std::abs(number) : number; };
  const Tensor weight = Tensor::copy_of(state.at(layer + ".weight"), dtype_of<T>);
  const auto bias = state.find(layer + ".bias");
  const Tensor added = bias == state.end() ? Tensor() : Tensor::copy_of(bias->second, dtype_of<T>);
  Rows<T> y;
  for (const std::vector<T>& row : x) {
    std::vector<T>& out = y.emplace_back();
    for (std::int64_t o = 0; o < weight.shape(0); ++o) {
      T sum = 0;
      for (std::int64_t i = 0; i < weight.shape(1); ++i) {
        sum += term(row[static_cast<std::size_t>(i)] * weight.at<T>(o, i));
      }
      out.push_back(added.rank() == 0 ? sum : sum + term(added.at<T>(o)));
    }
  }
  return y;
}

template <class T>
Rows<T> rows_of(const TensorView& x, std::int64_t batch) {
  const Tensor entry = Tensor::copy_of(x.select(0, batch), dtype_of<T>);
  Rows<T> rows;
  for (std::int64_t i = 0; i < entry.shape(0); ++i) {
    const T* row = entry.values<T>().data() + i * entry.shape(1);
    rows.emplace_back(row, row + entry.shape(1));
  }
  return rows;
}

/// The rows of a key or value projection, including the appended ones.
template <class T>
Rows<T> with_appended(Rows<T> rows, const NaiveCall& call, const std::string& bias) {
  const auto width = static_cast<std::size_t>(call.config.num_kv_heads * call.config.head_dim);
  if (const auto entry = call.state.find(bias); entry != call.state.end()) {
    const Tensor numbers = Tensor::copy_of(entry->second, dtype_of<T>);
    rows.emplace_back(numbers.values<T>().begin(), numbers.values<T>().end());
  }
  if (call.config.add_zero_attn) rows.emplace_back(width, T{0});
  return rows;
}

template <class T>
std::vector<T> softmax(std::vector<T> logits) {
  T largest = -std::numeric_limits<T>::infinity();
  for (const T x : logits) largest = std::max(largest, x);
  T sum = 0;
  for (T& x : logits) sum += x = largest > -std::numeric_limits<T>::infinity() ? std::exp(x - largest) : T{0};
  for (T& x : logits) x = sum > 0 ? x / sum : T{0};
  return logits;
}

/// One batch entry; fills the entry's part of result.weights and returns contexts and their bounds.
template <class T>
void attend(const NaiveCall& call, std::int64_t batch, const Rows<T>& q, const Rows<T>& k, const Rows<T>& v,
            const Rows<T>& abs_v, Tensor& weights, Rows<T>& contexts, Rows<T>& bounds) {
  const auto& config = call.config;
  const auto head_dim = static_cast<std::size_t>(config.head_dim);
  const T scale = T{1} / std::sqrt(static_cast<T>(config.head_dim));
  for (std::size_t head = 0; head < static_cast<std::size_t>(config.num_heads); ++head) {
    const std::size_t first = head * head_dim;
    const std::size_t kv_first =
        head / static_cast<std::size_t>(config.num_heads / config.num_kv_heads) * head_dim;
    const auto h = static_cast<std::int64_t>(head);
    for (std::size_t i = 0; i < q.size(); ++i) {
      std::vector<T> logits;
      for (std::size_t j = 0; j < k.size(); ++j) {
        T dot = 0;
        for (std::size_t d = 0; d < head_dim; ++d) dot += q[i][first + d] * k[j][kv_first + d];
        const double added =
            call.added ? call.added(batch, h, static_cast<std::int64_t>(i), static_cast<std::int64_t>(j)) : 0.0;
        logits.push_back(dot * scale + static_cast<T>(added));
      }
      std::vector<T> row = softmax(std::move(logits));
      for (std::size_t j = 0; j < row.size(); ++j) {
        const auto ii = static_cast<std::int64_t>(i), jj = static_cast<std::int64_t>(j);
        if (call.dropout_factor) row[j] *= static_cast<T>(call.dropout_factor(batch, h, ii, jj));
        weights.at<T>(batch, h, ii, jj) = row[j];
        if (row[j] == 0) continue;
        for (std::size_t d = 0; d < head_dim; ++d) {
          contexts[i][first + d] += row[j] * v[j][kv_first + d];
          bounds[i][first + d] += row[j] * abs_v[j][kv_first + d];
        }
      }
    }
  }
}

template <class T>
void store(const Rows<T>& rows, std::int64_t batch, Tensor& to) {
  T* out = to.values<T>().data() + batch * to.shape(1) * to.shape(2);
  for (const std::vector<T>& row : rows) out = std::copy(row.begin(), row.end(), out);
}

}  // namespace detail

/// The numbers that masks add to the logits: `mask` of rank 1 to 4 (or empty) and `key_mask` [batch, seqlen_k] (or
/// empty), both bool (true = attend) or added; -inf for later keys if causal. Nothing applies to the appended
/// keys, from seqlen_k on.
inline PerWeight added_by(const Tensor& mask, const Tensor& key_mask, bool causal, std::int64_t seqlen_k) {
  const auto value_of = [](const Tensor& numbers, std::span<const std::int64_t> index) {
    const double value = value_at(numbers, index);
    if (numbers.dtype() != DType::boolean) return value;
    return value != 0 ? 0.0 : -std::numeric_limits<double>::infinity();
  };
  return [=](std::int64_t batch, std::int64_t head, std::int64_t row, std::int64_t column) {
    if (column >= seqlen_k) return 0.0;
    double sum = causal && column > row ? -std::numeric_limits<double>::infinity() : 0.0;
    if (mask.rank() != 0) {
      const std::array position{batch, head, row, column};
      std::vector<std::int64_t> index(position.end() - mask.rank(), position.end());
      for (int dim = 0; dim < mask.rank(); ++dim) {
        if (mask.shape(dim) == 1) index[static_cast<std::size_t>(dim)] = 0;
      }
      sum += value_of(mask, index);
    }
    if (key_mask.rank() != 0) sum += value_of(key_mask, std::array{batch, column});
    return sum;
  };
}

template <class T>
NaiveResult<T> naive_module(const NaiveCall& call) {
  const ModuleConfig& config = call.config;
  const std::int64_t batch = call.query.shape[0], seqlen_q = call.query.shape[1];
  const std::int64_t columns =
      call.key.shape[1] + (call.state.contains("bias_k") ? 1 : 0) + (config.add_zero_attn ? 1 : 0);
  const bool projects_out = call.state.contains("out_proj.weight");
  NaiveResult<T> result{.output = Tensor(dtype_of<T>, {batch, seqlen_q, config.d_out}),
                        .weights = Tensor(dtype_of<T>, {batch, config.num_heads, seqlen_q, columns}),
                        .bound = Tensor(dtype_of<T>, {batch, seqlen_q, config.d_out})};
  for (std::int64_t b = 0; b < batch; ++b) {
    const auto key = detail::rows_of<T>(call.key, b), value = detail::rows_of<T>(call.value, b);
    const auto q = detail::project(detail::rows_of<T>(call.query, b), call.state, "W_query");
    const auto k = detail::with_appended(detail::project(key, call.state, "W_key"), call, "bias_k");
    const auto v = detail::with_appended(detail::project(value, call.state, "W_value"), call, "bias_v");
    auto abs_v = detail::with_appended(detail::project(value, call.state, "W_value", true), call, "bias_v");
    for (auto& row : abs_v) {
      for (T& number : row) number = std::abs(number);
    }
    const auto width = static_cast<std::size_t>(config.num_heads * config.head_dim);
    detail::Rows<T> contexts(q.size(), std::vector<T>(width)), bounds = contexts;
    detail::attend(call, b, q, k, v, abs_v, result.weights, contexts, bounds);
    detail::store(projects_out ? detail::project(contexts, call.state, "out_proj") : contexts, b, result.output);
    detail::store(projects_out ? detail::project(bounds, call.state, "out_proj", true) : bounds, b, result.bound);
  }
  return result;
}

}  // namespace saccade::test
