#include "model/layers/distance_bias.h"

#include <algorithm>
#include <cmath>

namespace saccade::model {
namespace {

/// The bucket of a key `distance` after its query: one per small distance, then logarithmically wider ones up to
/// max_distance. If queries see keys on both sides, each side has half of the buckets. (The logarithm is in f32,
/// as in the training code of these models: buckets begin at whole numbers.)
std::int64_t bucket_of(std::int64_t distance, bool is_causal, const DistanceBiasTable& table) {
  const std::int64_t buckets = is_causal ? table.num_buckets : table.num_buckets / 2;
  const std::int64_t first = !is_causal && distance > 0 ? buckets : 0;
  const std::int64_t far = is_causal ? std::max<std::int64_t>(-distance, 0) : std::abs(distance);
  const std::int64_t exact = buckets / 2;
  if (far < exact) return first + far;
  const float share =
      std::log(static_cast<float>(far) / static_cast<float>(exact)) /
      static_cast<float>(std::log(static_cast<double>(table.max_distance) / static_cast<double>(exact)));
  return first +
         std::min(exact + static_cast<std::int64_t>(share * static_cast<float>(buckets - exact)), buckets - 1);
}

}  // namespace

DistanceBias::DistanceBias(const StackTable& table, const Checkpoint& checkpoint) {
  const DistanceBiasTable& own = table.distance_bias;
  if (own.name.empty()) return;
  const Tensor of_buckets = checkpoint.numbers(weight_of(own.name), {own.num_buckets, table.num_heads});
  max_distance_ = own.max_distance;
  biases_ = Tensor::uninitialized(DType::f32, {table.num_heads, 2 * max_distance_ + 1});
  for (std::int64_t head = 0; head < table.num_heads; ++head)
    for (std::int64_t distance = -max_distance_; distance <= max_distance_; ++distance)
      biases_.at<float>(head, distance + max_distance_) =
          of_buckets.at<float>(bucket_of(distance, table.is_causal, own), head);
}

void DistanceBias::add_to(AttentionOptions& options) const {
  if (biases_.rank() == 0) return;
  options.score_modifier = add_to_tile;
  options.score_context = const_cast<DistanceBias*>(this);  // only read
}

void DistanceBias::add_to_tile(void* self, const ScoreTile& tile) {
  const auto& bias = *static_cast<const DistanceBias*>(self);
  const std::int64_t most = bias.max_distance_;
  const float* const biases = bias.biases_.values<float>().data() + tile.head * bias.biases_.shape(1) + most;
  for (std::int64_t i = 0; i < tile.rows; ++i) {
    const std::int64_t first = tile.first_key - (tile.first_row + i + tile.offset);  // the distance of key 0
    float* const row = tile.row<float>(i);
    for (std::int64_t j = 0; j < tile.keys; ++j) row[j] += biases[std::clamp(first + j, -most, most)];
  }
}

}  // namespace saccade::model
