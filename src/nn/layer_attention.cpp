#include "saccade/layer_attention.h"

#include <algorithm>
#include <array>
#include <vector>

#include "core/check.h"

namespace saccade {
namespace {

constexpr const char* kFunction = "edit_heads";

float* row_of(const MutableTensorView& o, std::int64_t i) { return o.as<float>() + i * o.strides[0]; }

/// Where each text begins among the rows of a layer, and where the last one ends.
std::vector<std::int64_t> begins_of_texts(const LayerAttention& layer) {
  const TensorView& begins = layer.options.cu_seqlens_q;
  if (begins.rank == 0) return {0, layer.o.shape[0]};
  const Tensor numbers = Tensor::copy_of(begins, DType::i64);
  return {numbers.values<std::int64_t>().begin(), numbers.values<std::int64_t>().end()};
}

/// Every row of a text becomes the mean of all, or zeros.
void ablate(const MutableTensorView& o, Ablation replaced_by) {
  const std::int64_t tokens = o.shape[0], dim = o.shape[1];
  std::vector<float> row(static_cast<std::size_t>(dim));
  for (std::int64_t i = 0; replaced_by == Ablation::mean && i < tokens; ++i)
    for (std::int64_t d = 0; d < dim; ++d)
      row[static_cast<std::size_t>(d)] += row_of(o, i)[d * o.strides[1]] / static_cast<float>(tokens);
  for (std::int64_t i = 0; i < tokens; ++i)
    for (std::int64_t d = 0; d < dim; ++d) row_of(o, i)[d * o.strides[1]] = row[static_cast<std::size_t>(d)];
}

/// The rows become sums of values with these weights.
void mix(const MutableTensorView& o, const TensorView& values, const TensorView& weights) {
  for (std::int64_t i = 0; i < o.shape[0]; ++i)
    for (std::int64_t d = 0; d < o.shape[1]; ++d) {
      double sum = 0.0;
      for (std::int64_t j = 0; j < values.shape[0]; ++j)
        sum += value_at(weights, std::array{i, j}) * value_at(values, std::array{j, d});
      row_of(o, i)[d * o.strides[1]] = static_cast<float>(sum);
    }
}

bool is_of(const HeadEdit& edit, const LayerAttention& layer) {
  if (edit.place.layer != layer.layer) return false;
  return edit.kind ? *edit.kind == layer.kind : layer.kind != AttentionKind::cross;
}

}  // namespace

void edit_heads(const LayerAttention& layer, std::span<const HeadEdit> edits) {
  const std::int64_t heads = layer.o.shape[1];
  for (const HeadEdit& edit : edits) {
    if (!is_of(edit, layer)) continue;
    const std::int64_t head = edit.place.head;
    if (head < 0 || head >= heads)
      refuse(kFunction, "head must be below ", heads, ", the heads of layer ", layer.layer, ", but it is ", head);
    const MutableTensorView o = layer.o.select(1, head);
    if (edit.weights.rank == 0) {
      const std::vector<std::int64_t> begins = begins_of_texts(layer);
      for (std::size_t i = 0; i + 1 < begins.size(); ++i)
        ablate(o.slice(0, begins[i], begins[i + 1]), edit.replaced_by);
      continue;
    }
    check_dtype(kFunction, "weights", edit.weights, DType::f32);
    check_shape(kFunction, "weights", edit.weights, {layer.o.shape[0], layer.v.shape[0]});
    check_data(kFunction, "weights", edit.weights);
    mix(o, layer.v.select(1, head / (heads / layer.v.shape[1])), edit.weights);
  }
}

}  // namespace saccade
