#include "saccade/head_scores.h"

#include <array>
#include <limits>

#include "core/check.h"

namespace saccade {
namespace {

void check_weights(const char* function, const TensorView& weights) {
  if (weights.rank != 4 || weights.shape[2] != weights.shape[3])
    refuse(function, "weights must be [batch, num_heads, seqlen, seqlen], got ", to_string(weights.dims()));
}

/// For each head the mean weight of key_of(batch entry, query) over the queries for which that is a key (-1: the
/// query does not count).
template <class KeyOf>
Tensor mean_weights(const TensorView& weights, const KeyOf& key_of) {
  const std::int64_t num_heads = weights.shape[1];
  Tensor sums(DType::f64, {num_heads});
  std::int64_t count = 0;
  for (std::int64_t b = 0; b < weights.shape[0]; ++b) {
    for (std::int64_t i = 0; i < weights.shape[2]; ++i) {
      const std::int64_t key = key_of(b, i);
      if (key < 0) continue;
      ++count;
      for (std::int64_t head = 0; head < num_heads; ++head)
        sums.at<double>(head) += value_at(weights, std::array{b, head, i, key});
    }
  }
  for (double& sum : sums.values<double>())
    sum = count > 0 ? sum / static_cast<double>(count) : std::numeric_limits<double>::quiet_NaN();
  return sums;
}

}  // namespace

Tensor induction_scores(const TensorView& weights, const TensorView& tokens) {
  check_weights("induction_scores", weights);
  check_dtype("induction_scores", "tokens", tokens, DType::i64);
  check_shape("induction_scores", "tokens", tokens, {weights.shape[0], weights.shape[2]});
  return mean_weights(weights, [&](std::int64_t b, std::int64_t i) -> std::int64_t {
    const TensorView row = tokens.select(0, b);
    const auto token = [&](std::int64_t at) { return row.as<std::int64_t>()[at * row.strides[0]]; };
    std::int64_t follower = -1;
    for (std::int64_t earlier = 0; earlier < i; ++earlier) {
      if (token(earlier) != token(i)) continue;
      if (follower >= 0) return -1;
      follower = earlier + 1;
    }
    return follower;
  });
}

Tensor previous_token_scores(const TensorView& weights) {
  check_weights("previous_token_scores", weights);
  return mean_weights(weights, [](std::int64_t, std::int64_t i) { return i - 1; });
}

}  // namespace saccade
