#include "heads.h"

#include <algorithm>

#include "saccade/attention.h"

namespace saccade::web {
namespace {

/// The weights of a layer: [heads, tokens, keys], as attention() of its q, k and v has them.
Tensor weights_of(const LayerAttention& layer) {
  const std::int64_t tokens = layer.q.shape[0], heads = layer.q.shape[1];
  AttentionOptions options = layer.options;
  std::int64_t keys = layer.k.shape[0];
  if (const TensorView& begins = options.cu_seqlens_k; begins.rank != 0) {
    keys = 0;  // of the longest sequence
    const Tensor at = Tensor::copy_of(begins, DType::i64);
    for (std::int64_t i = 0; i + 1 < at.size(); ++i)
      keys = std::max(keys, at.values<std::int64_t>()[static_cast<std::size_t>(i + 1)] -
                                at.values<std::int64_t>()[static_cast<std::size_t>(i)]);
  }
  Tensor weights(DType::f32, {heads, tokens, keys});
  options.weights = weights;
  attention(layer.q, layer.k, layer.v, options);
  return weights;
}

}  // namespace

HeadCall::HeadCall(const saccade_tensor* places, const saccade_tensor* weights, bool wants_weights)
    : wants_weights_(wants_weights) {
  const std::vector<std::int64_t> numbers = numbers_of("edits", "places", places);
  for (std::size_t i = 0; 3 * i < numbers.size(); ++i) {
    HeadEdit& edit = edits_.emplace_back();
    edit.place = {numbers[3 * i], numbers[3 * i + 1]};
    if (numbers[3 * i + 2] == 1) edit.replaced_by = Ablation::mean;
    if (numbers[3 * i + 2] == 2) edit.weights = c_api::view_of("edits", "by", weights + i);
  }
}

void HeadCall::operator()(const LayerAttention& layer) {
  edit_heads(layer, edits_);
  num_layers_ = std::max(num_layers_, layer.layer + 1);
  if (!wants_weights_) return;
  Tensor weights = weights_of(layer);
  for (const HeadEdit& edit : edits_)
    if (edit.place.layer == layer.layer && edit.weights.rank != 0)
      copy(edit.weights, weights.mutable_view().select(0, edit.place.head));
  weights_.emplace_back("weights" + std::to_string(layer.layer), std::move(weights));
}

std::vector<std::pair<std::string, Tensor>> HeadCall::results(const char* name, Tensor first) {
  for (const HeadEdit& edit : edits_)
    if (edit.place.layer < 0 || edit.place.layer >= num_layers_)
      refuse("edits", "layer must be below ", num_layers_, ", but it is ", edit.place.layer);
  weights_.emplace(weights_.begin(), name, std::move(first));
  return std::move(weights_);
}

}  // namespace saccade::web
