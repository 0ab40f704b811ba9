#include "model/layers/embedding.h"

#include <algorithm>

namespace saccade::model {
namespace {

void add_row(const float* from, float* to, std::int64_t dim) {
  for (std::int64_t d = 0; d < dim; ++d) to[d] += from[d];
}

/// A convolution over three frames as a projection of their states, side by side: [d_out, 3 * d_in].
PackedLinear packed_convolution(const Checkpoint& checkpoint, std::string_view name, std::int64_t d_in,
                                std::int64_t d_out) {
  const TensorView weight = checkpoint.tensor(weight_of(name), {d_out, d_in, 3});
  const Tensor bias = checkpoint.numbers(std::string(name) + ".bias", {d_out});
  return PackedLinear(Tensor::copy_of(weight.transposed(1, 2)).reshaped({d_out, 3 * d_in}),
                      {.bias = bias, .activation = Activation::gelu});
}

/// The input rows of a convolution over three frames of x, whose first and last rows are padding: row t is rows
/// stride * t to stride * t + 2 of x, which are contiguous in memory.
TensorView windows_of(const Tensor& x, std::int64_t stride) {
  const std::int64_t dim = x.shape(1), rows = (x.shape(0) - 3) / stride + 1;
  return {x.data(), x.dtype(), Shape{rows, 3 * dim}, Shape{stride * dim, 1}};
}

}  // namespace

TokenEmbedding::TokenEmbedding(const StackTable& table, const Checkpoint& checkpoint, std::int64_t vocab_size)
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

Tensor TokenEmbedding::operator()(std::span<const std::int64_t> tokens, std::span<const std::int64_t> positions,
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
      add_row(table.values<float>().data() + index * dim, row, dim);
    };
    if (types_.rank() != 0) add(types_, types.empty() ? 0 : types[i]);
    if (positions_.rank() != 0) add(positions_, positions[i] + position_offset_);
  }
  if (norm_) norm_(x, x);
  return projection_ ? projection_.forward(x, num_threads) : std::move(x);
}

ImageEmbedding::ImageEmbedding(const StackTable& table, const Checkpoint& checkpoint)
    : table_(table.image),
      class_token_(checkpoint.numbers(std::string(table_.class_token), {1, 1, table.d_model})),
      positions_(checkpoint.numbers(std::string(table_.positions), {1, table_.num_tokens(), table.d_model})) {
  const std::int64_t side = table_.patch_size;
  const TensorView weight =
      checkpoint.tensor(weight_of(table_.patches), {table.d_model, table_.channels, side, side});
  const Tensor bias = checkpoint.numbers(std::string(table_.patches) + ".bias", {table.d_model});
  projection_ = PackedLinear(weight.reshaped({table.d_model, table_.channels * side * side}), {.bias = bias});
}

Tensor ImageEmbedding::operator()(const TensorView& pixels, int num_threads) const {
  const std::int64_t images = pixels.shape[0], side = table_.patch_size, grid = table_.size / side,
                     tokens = table_.num_tokens(), dim = projection_.d_out();
  Tensor x = Tensor::uninitialized(DType::f32, {images * tokens, dim});
  for (std::int64_t image = 0; image < images; ++image) {
    // [channels, rows, y, columns, x] -> [rows, columns, channels, y, x]
    const Shape parts{table_.channels, grid, side, grid, side};
    const Tensor patches = Tensor::copy_of(
        pixels.select(0, image).reshaped(parts).transposed(0, 1).transposed(1, 3).transposed(2, 3));
    const std::int64_t first = image * tokens;
    copy(class_token_.view().select(0, 0), x.mutable_view().slice(0, first, first + 1));
    projection_.forward(patches.view().reshaped({tokens - 1, projection_.d_in()}),
                        x.mutable_view().slice(0, first + 1, first + tokens), num_threads);
    add_row(positions_.values<float>().data(), x.values<float>().data() + first * dim, tokens * dim);
  }
  return x;
}

AudioEmbedding::AudioEmbedding(const StackTable& table, const Checkpoint& checkpoint)
    : first_(packed_convolution(checkpoint, table.sound.first, table.sound.num_bins, table.d_model)),
      second_(packed_convolution(checkpoint, table.sound.second, table.d_model, table.d_model)),
      positions_(
          checkpoint.numbers(weight_of(table.sound.positions), {table.sound.num_positions, table.d_model})) {}

Tensor AudioEmbedding::operator()(const TensorView& features, int num_threads) const {
  const std::int64_t sequences = features.shape[0], frames = features.shape[2], dim = first_.d_out();
  Tensor x = Tensor::uninitialized(DType::f32, {sequences * frames / 2, dim});
  Tensor padded(DType::f32, {frames + 2, features.shape[1]}), middle(DType::f32, {frames + 2, dim});
  for (std::int64_t sequence = 0; sequence < sequences; ++sequence) {
    copy(features.select(0, sequence).transposed(0, 1), padded.mutable_view().slice(0, 1, frames + 1));
    first_.forward(windows_of(padded, 1), middle.mutable_view().slice(0, 1, frames + 1), num_threads);
    const std::int64_t begin = sequence * frames / 2, end = begin + frames / 2;
    second_.forward(windows_of(middle, 2), x.mutable_view().slice(0, begin, end), num_threads);
    add_row(positions_.values<float>().data(), x.values<float>().data() + begin * dim, (end - begin) * dim);
  }
  return x;
}

}  // namespace saccade::model
