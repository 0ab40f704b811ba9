#include "nn/attention_modules/appended_keys.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

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

/// The factor that dropout applies to a weight: 0 or 1 / (1 - p).
double dropout_factor(const AttentionOptions& options, std::int64_t batch_head, std::int64_t row,
                      std::int64_t column) {
  const double p = options.dropout_p;
  if (p == 0.0) return 1.0;
  const bool keep =
      dropout_keeps(options.dropout_seed, options.dropout_offset, static_cast<std::uint32_t>(batch_head),
                    static_cast<std::uint32_t>(row), static_cast<std::uint32_t>(column), p);
  return keep ? 1.0 / (1.0 - p) : 0.0;
}

/// Returns the logarithm of the denominator with the appended keys.
double merge_row(const Row& row, const float* bias_k, const float* bias_v, bool zero, std::int64_t seqlen_k,
                 const AttentionOptions& options) {
  const double bias_logit =
      bias_k ? *options.scale * dot(row.q, bias_k, row.head_dim) : -std::numeric_limits<double>::infinity();
  const double largest = std::max({row.lse, bias_logit, zero ? 0.0 : row.lse});
  const double denominator =
      std::exp(row.lse - largest) + std::exp(bias_logit - largest) + (zero ? std::exp(-largest) : 0.0);
  const double lse = largest + std::log(denominator);

  const auto shrink = static_cast<float>(std::exp(row.lse - lse));
  const double bias_weight = std::exp(bias_logit - lse);
  const double bias_factor = bias_k ? dropout_factor(options, row.batch_head, row.index, seqlen_k) : 0.0;
  for (std::int64_t d = 0; d < row.head_dim; ++d) {
    row.context[d] *= shrink;
    if (bias_v) row.context[d] += static_cast<float>(bias_weight * bias_factor) * bias_v[d];
  }

  if (!row.weights) return lse;
  const bool dropped = options.weights_after_dropout;
  std::for_each_n(row.weights, seqlen_k, [&](float& weight) { weight *= shrink; });
  float* column = row.weights + seqlen_k;
  if (bias_k) *column++ = static_cast<float>(bias_weight * (dropped ? bias_factor : 1.0));
  if (zero) {
    const std::int64_t index = column - row.weights;
    *column = static_cast<float>(std::exp(-lse) *
                                 (dropped ? dropout_factor(options, row.batch_head, row.index, index) : 1.0));
  }
  return lse;
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
  float* lse = rows.lse.as<float>();
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
      lse[score_row] =
          static_cast<float>(merge_row(row, bias_k ? bias_k + bias_offset : nullptr,
                                       bias_v ? bias_v + bias_offset : nullptr, keys.zero, seqlen_k, options));
    }
  }
}

void appended_keys_backward(const AppendedKeys& keys, const AttendedRowsBackward& rows,
                            const AppendedKeyGradients& gradients, std::int64_t seqlen_k,
                            const AttentionOptions& options) {
  const std::int64_t batch = rows.q.shape[0], seqlen_q = rows.q.shape[1], num_heads = rows.q.shape[2];
  const std::int64_t head_dim = rows.q.shape[3], num_kv_heads = keys.bias_k.size() / head_dim;
  const std::int64_t columns = seqlen_k + keys.count();
  // Sums over all rows, in order and in double precision, so that the number of rows does not matter.
  std::vector<double> dbias_k(static_cast<std::size_t>(keys.bias_k.size())), dbias_v(dbias_k.size());
  for (std::int64_t batch_head = 0; batch_head < batch * num_heads; ++batch_head) {
    const std::int64_t head = batch_head % num_heads;
    const std::int64_t bias_offset = head / (num_heads / num_kv_heads) * head_dim;
    const float* const bias_k = keys.bias_k.as<float>() + bias_offset;
    const float* const bias_v = keys.bias_v.as<float>() + bias_offset;
    for (std::int64_t i = 0; i < seqlen_q; ++i) {
      const std::int64_t at = ((batch_head / num_heads * seqlen_q + i) * num_heads + head) * head_dim;
      const std::int64_t score_row = batch_head * seqlen_q + i;
      const float* const q = rows.q.as<float>() + at;
      const float* const dout = rows.dout.as<float>() + at;
      const double weight = std::exp(*options.scale * dot(q, bias_k, head_dim) - rows.lse.as<float>()[score_row]);
      const double factor = rows.dropped ? (rows.dropped.as<float>()[score_row * columns + seqlen_k] != 0.0f) /
                                               (1.0 - options.dropout_p)
                                         : dropout_factor(options, batch_head, i, seqlen_k);
      const double delta = dot(dout, rows.context.as<float>() + at, head_dim);
      const double dlogit = *options.scale * weight * (factor * dot(dout, bias_v, head_dim) - delta);
      float* const dq = gradients.dq.as<float>() + at;
      for (std::int64_t d = 0; d < head_dim; ++d) {
        const auto to = static_cast<std::size_t>(bias_offset + d);
        dbias_v[to] += weight * factor * dout[d];
        dbias_k[to] += dlogit * q[d];
        dq[d] += static_cast<float>(dlogit * bias_k[d]);
      }
    }
  }
  for (std::size_t d = 0; d < dbias_k.size(); ++d) {
    gradients.dbias_k.as<float>()[d] += static_cast<float>(dbias_k[d]);
    gradients.dbias_v.as<float>()[d] += static_cast<float>(dbias_v[d]);
  }
}

}  // namespace saccade
