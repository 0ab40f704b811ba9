#include "modules/appended_keys.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "saccade/random.h"

namespace saccade {
namespace {

/// One row of one head.
struct Row {
  std::int64_t batch_head, index, head_dim;
  const float* q;
  float* context;
  float* weights;  ///< may be null
  double lse;
};

double dot(const float* a, const float* b, std::int64_t n) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

/// What dropout makes of a weight of 1 in this place: 0 or 1 / (1 - p).
double dropout_factor(const AttentionOptions& options, const Row& row, std::int64_t column) {
  const double p = options.dropout_p;
  if (p == 0.0) return 1.0;
  const bool keep =
      dropout_keeps(options.dropout_seed, options.dropout_offset, static_cast<std::uint32_t>(row.batch_head),
                    static_cast<std::uint32_t>(row.index), static_cast<std::uint32_t>(column), p);
  return keep ? 1.0 / (1.0 - p) : 0.0;
}

void merge_row(const Row& row, const float* bias_k, const float* bias_v, bool zero, std::int64_t seqlen_k,
               const AttentionOptions& options) {
  const double bias_logit =
      bias_k ? *options.scale * dot(row.q, bias_k, row.head_dim) : -std::numeric_limits<double>::infinity();
  const double largest = std::max({row.lse, bias_logit, zero ? 0.0 : row.lse});
  const double denominator =
      std::exp(row.lse - largest) + std::exp(bias_logit - largest) + (zero ? std::exp(-largest) : 0.0);
  const double lse = largest + std::log(denominator);

  const auto shrink = static_cast<float>(std::exp(row.lse - lse));
  const double bias_weight = std::exp(bias_logit - lse);
  const double bias_factor = bias_k ? dropout_factor(options, row, seqlen_k) : 0.0;
  for (std::int64_t d = 0; d < row.head_dim; ++d) {
    row.context[d] *= shrink;
    if (bias_v) row.context[d] += static_cast<float>(bias_weight * bias_factor) * bias_v[d];
  }

  if (!row.weights) return;
  const bool dropped = options.weights_after_dropout;
  std::for_each_n(row.weights, seqlen_k, [&](float& weight) { weight *= shrink; });
  float* column = row.weights + seqlen_k;
  if (bias_k) *column++ = static_cast<float>(bias_weight * (dropped ? bias_factor : 1.0));
  if (zero) {
    const std::int64_t index = column - row.weights;
    *column = static_cast<float>(std::exp(-lse) * (dropped ? dropout_factor(options, row, index) : 1.0));
  }
}

}  // namespace

void merge_appended_keys(const AppendedKeys& keys, const AttendedRows& rows, std::int64_t seqlen_k,
                         const AttentionOptions& options) {
  const std::int64_t batch = rows.q.shape[0], seqlen_q = rows.q.shape[1], num_heads = rows.q.shape[2];
  const std::int64_t head_dim = rows.q.shape[3];
  const std::int64_t num_kv_heads = keys.bias_k ? keys.bias_k.size() / head_dim : num_heads;
  const float* bias_k = keys.bias_k ? keys.bias_k.as<float>() : nullptr;
  const float* bias_v = keys.bias_v ? keys.bias_v.as<float>() : nullptr;
  const float* q = rows.q.as<float>();
  const float* lse = rows.lse.as<float>();
  float* context = rows.context.as<float>();
  float* weights = rows.weights ? rows.weights.as<float>() : nullptr;

  for (std::int64_t batch_head = 0; batch_head < batch * num_heads; ++batch_head) {
    const std::int64_t head = batch_head % num_heads;
    const std::int64_t bias_offset = head / (num_heads / num_kv_heads) * head_dim;
    for (std::int64_t i = 0; i < seqlen_q; ++i) {
      const std::int64_t at = ((batch_head / num_heads * seqlen_q + i) * num_heads + head) * head_dim;
      const std::int64_t score_row = batch_head * seqlen_q + i;
      const Row row{.batch_head = batch_head,
                    .index = i,
                    .head_dim = head_dim,
                    .q = q + at,
                    .context = context + at,
                    .weights = weights ? weights + score_row * (seqlen_k + keys.count()) : nullptr,
                    .lse = lse[score_row]};
      merge_row(row, bias_k ? bias_k + bias_offset : nullptr, bias_v ? bias_v + bias_offset : nullptr, keys.zero,
                seqlen_k, options);
    }
  }
}

}  // namespace saccade
