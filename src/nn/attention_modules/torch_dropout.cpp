#include "nn/attention_modules/torch_dropout.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

namespace saccade {
namespace {

/// bool [batch, num_heads, seqlen_q, columns], drawn in the order of the published classes.
Tensor drawn_keep_mask(TorchGenerator& generator, TorchBuild build, double p, const DrawnDropout& call) {
  const auto shape = call.weights.dims();
  if (!call.independent_heads) return generator.dropout_mask(Shape(shape.begin(), shape.end()), p, build);
  Tensor keep(DType::boolean, Shape(shape.begin(), shape.end()));
  for (std::int64_t head = 0; head < shape[1]; ++head) {
    copy(generator.dropout_mask({shape[0], shape[2], shape[3]}, p, build), keep.mutable_view().select(1, head));
  }
  return keep;
}

/// sum += weight * value. Skips weights of 0 (hidden or dropped), whose values may be NaN.
void accumulate(float weight, const float* value, float* sum, std::int64_t head_dim) {
  if (weight == 0.0f) return;
  for (std::int64_t d = 0; d < head_dim; ++d) sum[d] += weight * value[d];
}

}  // namespace

Tensor drop_as_torch(TorchGenerator& generator, TorchBuild build, double p, const DrawnDropout& call) {
  const std::int64_t batch = call.weights.shape[0], num_heads = call.weights.shape[1];
  const std::int64_t seqlen_q = call.weights.shape[2], columns = call.weights.shape[3];
  const std::int64_t seqlen_k = call.v.shape[1], num_kv_heads = call.v.shape[2], head_dim = call.v.shape[3];
  const Tensor keep_mask = drawn_keep_mask(generator, build, p, call);
  const bool* keep = keep_mask.values<bool>().data();
  const auto factor = static_cast<float>(1.0 / (1.0 - p));
  Tensor dropped = Tensor::copy_of(call.weights);
  float* weights = dropped.values<float>().data();

  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t head = 0; head < num_heads; ++head) {
      const std::int64_t kv_head = head / (num_heads / num_kv_heads);
      for (std::int64_t i = 0; i < seqlen_q; ++i, weights += columns, keep += columns) {
        for (std::int64_t j = 0; j < columns; ++j) weights[j] = keep[j] ? weights[j] * factor : 0.0f;

        float* context = call.context.as<float>() + ((b * seqlen_q + i) * num_heads + head) * head_dim;
        std::fill_n(context, head_dim, 0.0f);
        for (std::int64_t j = 0; j < seqlen_k; ++j) {
          const float* value = call.v.as<float>() + ((b * seqlen_k + j) * num_kv_heads + kv_head) * head_dim;
          accumulate(weights[j], value, context, head_dim);
        }
        if (call.bias_v) {
          accumulate(weights[seqlen_k], call.bias_v.as<float>() + kv_head * head_dim, context, head_dim);
        }
      }
    }
  }
  return dropped;
}

void drop_as_torch_backward(const DrawnCall& call, const DrawnGradients& gradients,
                            const AttentionOptions& options) {
  const std::int64_t num_heads = call.weights.shape[1], seqlen_q = call.weights.shape[2];
  const std::int64_t columns = call.weights.shape[3];
  const std::int64_t seqlen_k = call.v.shape[1], num_kv_heads = call.v.shape[2], head_dim = call.v.shape[3];
  const double factor = 1.0 / (1.0 - options.dropout_p);
  const auto at = [](const TensorView& rows, std::int64_t offset) { return rows.as<float>() + offset; };
  const auto dot = [&](const float* a, const float* b) { return std::inner_product(a, a + head_dim, b, 0.0); };
  for (const MutableTensorView& gradient : {gradients.dq, gradients.dk, gradients.dv})
    std::fill_n(gradient.as<float>(), gradient.size(), 0.0f);
  for (std::int64_t row = 0; row < call.weights.size() / std::max<std::int64_t>(columns, 1); ++row) {
    const std::int64_t i = row % seqlen_q, head = row / seqlen_q % num_heads, b = row / seqlen_q / num_heads;
    const std::int64_t kv_head = head / (num_heads / num_kv_heads);
    const std::int64_t q_at = ((b * seqlen_q + i) * num_heads + head) * head_dim;
    const float* const q = at(call.q, q_at);
    const float* const dout = at(call.dout, q_at);
    const double delta = dot(dout, at(call.context, q_at));
    for (std::int64_t j = 0; j < seqlen_k; ++j) {
      const float weight = at(call.weights, row * columns)[j], dropped = at(call.dropped, row * columns)[j];
      if (weight == 0.0f) continue;
      const std::int64_t kv_at = ((b * seqlen_k + j) * num_kv_heads + kv_head) * head_dim;
      const double dweight = dropped != 0.0f ? factor * dot(dout, at(call.v, kv_at)) : 0.0;
      const auto dlogit = static_cast<float>(*options.scale * weight * (dweight - delta));
      accumulate(dlogit, at(call.k, kv_at), gradients.dq.as<float>() + q_at, head_dim);
      accumulate(dlogit, q, gradients.dk.as<float>() + kv_at, head_dim);
      accumulate(dropped, dout, gradients.dv.as<float>() + kv_at, head_dim);
    }
  }
}

}  // namespace saccade
