#include "explanation.h"

#include <saccade/linear.h>
#include <saccade/reference.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace saccade::cli {
namespace {

// Queries, keys and values before they are split into heads: [tokens, num_heads * head_dim].
struct Projections {
  Tensor q, k, v;
};

Tensor with_row_appended(const Tensor& matrix, const TensorView& row) {
  Tensor longer(matrix.dtype(), {matrix.shape(0) + 1, matrix.shape(1)});
  copy(matrix, longer.mutable_view().slice(0, 0, matrix.shape(0)));
  copy(row.reshaped({matrix.shape(1)}), longer.mutable_view().select(0, matrix.shape(0)));
  return longer;
}

void require_width(const std::string& whose, const Tensor& vectors, const std::string& taker, std::int64_t width) {
  if (vectors.shape(1) == width) return;
  refuse("{} have {} numbers each, but {} {}", whose, vectors.shape(1), taker, width);
}

Projections project(AttentionModule& module, const Tensor& x, const Tensor& keys) {
  const ModuleConfig& config = module.config();
  require_width("the tokens", x, fmt::format("the {} takes", module.name()), config.d_in);
  require_width("the keys", keys, fmt::format("the {} takes", module.name()), config.key_width);
  module.eval();
  ModuleOutput steps = module.forward(x, keys, keys, {.steps = true});
  return {std::move(steps.q), std::move(steps.k), std::move(steps.v)};
}

// torch.nn.MultiheadAttention may append a trained key and value, which every query sees.
void append_trained_key(const StateDict& state, Projections& projections, std::vector<std::string>& key_names) {
  if (!state.contains("bias_k")) return;
  projections.k = with_row_appended(projections.k, state.at("bias_k"));
  projections.v = with_row_appended(projections.v, state.at("bias_v"));
  key_names.emplace_back("(bias)");
}

// bool [queries, keys]: visible under the causal mask; every query sees a key that the module appended.
Tensor visible_keys(const Explanation& explanation, std::int64_t queries, std::int64_t keys, bool causal) {
  Tensor mask(DType::boolean, {queries, keys});
  std::ranges::fill(mask.values<bool>(), true);
  const auto own_keys = static_cast<std::int64_t>(explanation.keys().names.size());
  if (causal)
    copy(reference::causal_mask(queries, own_keys, explanation.request.alignment),
         mask.mutable_view().slice(1, 0, own_keys));
  return mask;
}

Tensor normalized_by_sum(const Tensor& logits, const std::vector<std::string>& query_names) {
  Tensor counted = logits;  // hidden keys count as 0
  std::ranges::replace(counted.values<double>(), -std::numeric_limits<double>::infinity(), 0.0);
  Tensor weights = reference::normalized_by_sum(counted);
  for (std::int64_t row = 0; row < weights.shape(0); ++row) {
    const std::span<const double> numbers = weights.values<double>().subspan(
        static_cast<std::size_t>(row * weights.shape(1)), static_cast<std::size_t>(weights.shape(1)));
    if (std::ranges::all_of(numbers, [](double w) { return std::isfinite(w); })) continue;
    refuse("the scores of query {} '{}' add up to 0 and cannot be divided by their sum", row,
           query_names[static_cast<std::size_t>(row)]);
  }
  return weights;
}

Tensor columns(const Tensor& matrix, std::int64_t begin, std::int64_t count) {
  return Tensor::copy_of(matrix.view().slice(1, begin, begin + count));
}

HeadSteps explain_head(Explanation& explanation, Tensor q, Tensor k, Tensor v, const Tensor& mask) {
  ExplainRequest& request = explanation.request;
  HeadSteps head{.q = std::move(q), .k = std::move(k), .v = std::move(v)};
  head.scores = reference::scores(head.q, head.k);
  head.logits = reference::masked(reference::scaled(head.scores, explanation.scale), mask);
  head.weights = request.normalization == Normalization::softmax
                     ? reference::softmax(head.logits)
                     : normalized_by_sum(head.logits, request.queries.names);
  const Tensor keep = request.dropout_generator.dropout_mask(head.weights.shape(), request.dropout);
  head.dropped = reference::dropout(head.weights, keep, request.dropout);
  head.contexts = reference::context_vectors(head.dropped, head.v);
  return head;
}

// Concatenates the heads' contexts and applies the output projection.
Tensor joined_output(const StateDict& state, const std::vector<HeadSteps>& heads, std::int64_t head_dim) {
  Tensor joined(DType::f32, {heads.front().contexts.shape(0), head_dim * static_cast<std::int64_t>(heads.size())});
  for (std::size_t i = 0; i < heads.size(); ++i) {
    const std::int64_t begin = static_cast<std::int64_t>(i) * head_dim;
    copy(heads[i].contexts, joined.mutable_view().slice(1, begin, begin + head_dim));
  }
  if (!state.contains("out_proj.weight")) return joined;
  LinearOptions options;
  if (state.contains("out_proj.bias")) options.bias = state.at("out_proj.bias");
  return linear(joined, state.at("out_proj.weight"), options);
}

void explain_module(Explanation& explanation) {
  ExplainRequest& request = explanation.request;
  AttentionModule& module = *request.module;
  const ModuleConfig& config = module.config();
  const StateDict state = module.state_dict();
  Projections projections = project(module, request.queries.vectors, explanation.keys().vectors);
  append_trained_key(state, projections, explanation.key_names);
  explanation.scale = request.scale.value_or(1.0 / std::sqrt(static_cast<double>(config.head_dim)));

  request.causal = request.causal || config.causal;
  const Tensor mask = visible_keys(explanation, projections.q.shape(0), projections.k.shape(0), request.causal);
  const std::int64_t sharing = config.num_heads / config.num_kv_heads;
  for (std::int64_t head = 0; head < config.num_heads; ++head) {
    const std::int64_t own = head * config.head_dim;
    const std::int64_t shared = head / sharing * config.head_dim;
    explanation.heads.push_back(explain_head(explanation, columns(projections.q, own, config.head_dim),
                                             columns(projections.k, shared, config.head_dim),
                                             columns(projections.v, shared, config.head_dim), mask));
  }
  if (config.num_heads > 1 || state.contains("out_proj.weight")) {
    explanation.output = joined_output(state, explanation.heads, config.head_dim);
  }
}

void explain_simple_form(Explanation& explanation) {
  const ExplainRequest& request = explanation.request;
  const Tensor& x = request.queries.vectors;
  const Tensor& keys = explanation.keys().vectors;
  require_width("the keys", keys, "the tokens have", x.shape(1));
  explanation.scale = request.scale.value_or(1.0);
  const Tensor mask = visible_keys(explanation, x.shape(0), keys.shape(0), request.causal);
  explanation.heads.push_back(explain_head(explanation, x, keys, keys, mask));
}

}  // namespace

Tensor Explanation::all_weights() const {
  const Tensor& first = heads.front().dropped;
  Tensor all(DType::f64, {static_cast<std::int64_t>(heads.size()), first.shape(0), first.shape(1)});
  for (std::size_t i = 0; i < heads.size(); ++i) {
    copy(heads[i].dropped, all.mutable_view().select(0, static_cast<std::int64_t>(i)));
  }
  return all;
}

Explanation explain(ExplainRequest request) {
  Explanation explanation;
  explanation.request = std::move(request);
  explanation.key_names = explanation.keys().names;
  if (explanation.request.module) {
    explain_module(explanation);
  } else {
    explain_simple_form(explanation);
  }
  return explanation;
}

}  // namespace saccade::cli
