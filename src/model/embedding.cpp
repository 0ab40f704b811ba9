#include <algorithm>

#include "model/stack.h"

namespace saccade::model {

EmbeddingLayer::EmbeddingLayer(const StackTable& table, const Checkpoint& checkpoint, std::int64_t vocab_size)
    : position_offset_(table.embedding.position_offset), factor_(static_cast<float>(table.embedding.factor)) {
  const EmbeddingTable& embedding = table.embedding;
  tokens_ = checkpoint.tensor(weight_of(embedding.tokens), {vocab_size, embedding.dim});
  if (!embedding.positions.empty())
    positions_ = checkpoint.numbers(weight_of(embedding.positions), {embedding.num_positions, embedding.dim});
  if (!embedding.types.empty())
    types_ = checkpoint.numbers(weight_of(embedding.types), {embedding.num_types, embedding.dim});
  norm_ = NormLayer(table, checkpoint, std::string(embedding.norm), embedding.dim);
  if (embedding.projection)
    projection_ = packed(table, checkpoint, "", {{embedding.projection, table.d_model}}, embedding.dim);
}

Tensor EmbeddingLayer::operator()(std::span<const std::int64_t> tokens, std::span<const std::int64_t> positions,
                                  std::span<const std::int64_t> types, int num_threads) const {
  const std::int64_t dim = tokens_.shape[1];
  Tensor x = Tensor::uninitialized(DType::f32, {static_cast<std::int64_t>(tokens.size()), dim});
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    copy(tokens_.select(0, tokens[i]), x.mutable_view().select(0, at));
    float* const row = x.values<float>().data() + at * dim;
    if (factor_ != 1.0f)
      for (std::int64_t d = 0; d < dim; ++d) row[d] *= factor_;
    const auto add = [&](const Tensor& table, std::int64_t index) {
      const float* const from = table.values<float>().data() + index * dim;
      for (std::int64_t d = 0; d < dim; ++d) row[d] += from[d];
    };
    if (types_.rank() != 0) add(types_, types.empty() ? 0 : types[i]);
    if (positions_.rank() != 0) add(positions_, positions[i] + position_offset_);
  }
  if (norm_) norm_(x, x);
  return projection_ ? projection_.forward(x, num_threads) : std::move(x);
}

}  // namespace saccade::model
