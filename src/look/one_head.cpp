#include "look/one_head.h"

#include <cmath>

#include "saccade/linear.h"

namespace saccade::heads {

OneHead::OneHead(const LayerAttention& layer, std::int64_t head, int num_threads) : options(layer.options) {
  const std::int64_t kv_head = head / (layer.q.shape[1] / layer.k.shape[1]);
  q = layer.q.slice(1, head, head + 1);
  k = layer.k.slice(1, kv_head, kv_head + 1), v = layer.v.slice(1, kv_head, kv_head + 1);
  options.num_threads = num_threads;
  options.origin.head = head;  // a distance bias differs from head to head
  options.origin.num_heads = layer.q.shape[1];
}

Tensor OneHead::bias() const {
  if (options.score_modifier == nullptr) return {};
  const std::int64_t rows = q.shape[0], keys = k.shape[0];
  Tensor bias(DType::f32, {rows, keys});
  ScoreTile tile;
  tile.head = options.origin.head, tile.rows = rows, tile.keys = keys;
  tile.scores = bias.values<float>().data(), tile.stride = keys;
  options.score_modifier(options.score_context, tile);
  return bias;
}

double OneHead::weight(const Tensor& lse, std::int64_t query, std::int64_t key) const {
  if (options.window_left >= 0 && key < query - options.window_left) return 0.0;
  const std::int64_t dim = q.shape[2];
  const float* const row = q.as<float>() + query * q.strides[0];
  const float* const column = k.as<float>() + key * k.strides[0];
  double score = 0.0;
  for (std::int64_t d = 0; d < dim; ++d) score += static_cast<double>(row[d]) * column[d];
  score *= options.scale.value_or(1.0);
  if (const double cap = options.softcap; cap > 0) score = cap * std::tanh(score / cap);
  return std::exp(score - lse.at<float>(0, query));
}

Tensor value_norms(const LayerAttention& layer, std::int64_t head, const OneHead& one) {
  const Tensor weight = Tensor::copy_of(layer.output_weight.select(0, head), DType::f32);
  const Tensor values = Tensor::copy_of(one.v.select(1, 0));
  const Tensor moved =
      linear(values, weight, {.weight_layout = WeightLayout::in_out, .num_threads = one.options.num_threads});
  Tensor norms(DType::f32, {moved.shape(0)});
  for (std::int64_t i = 0; i < moved.shape(0); ++i) {
    double sum = 0.0;
    for (std::int64_t d = 0; d < moved.shape(1); ++d) sum += std::pow(moved.at<float>(i, d), 2);
    norms.at<float>(i) = static_cast<float>(std::sqrt(sum));
  }
  return norms;
}

}  // namespace saccade::heads
