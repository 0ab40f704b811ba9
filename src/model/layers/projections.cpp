#include "model/layers/projections.h"

#include <algorithm>

namespace saccade::model {
namespace {

/// The shape of a weight in memory.
Shape weight_shape(WeightLayout layout, std::int64_t d_in, std::int64_t d_out) {
  return layout == WeightLayout::out_in ? Shape{d_out, d_in} : Shape{d_in, d_out};
}

/// Views joined along a dimension, in their own type if they share one.
Tensor joined(const std::vector<TensorView>& views, int dim) {
  DType dtype = views.front().dtype;
  Shape shape(views.front().dims().begin(), views.front().dims().end());
  shape[static_cast<std::size_t>(dim)] = 0;
  for (const TensorView& view : views) {
    if (view.dtype != dtype) dtype = DType::f32;
    shape[static_cast<std::size_t>(dim)] += view.shape[static_cast<std::size_t>(dim)];
  }
  Tensor result = Tensor::uninitialized(dtype, shape);
  std::int64_t at = 0;
  for (const TensorView& view : views) {
    const std::int64_t end = at + view.shape[static_cast<std::size_t>(dim)];
    copy(view, result.mutable_view().slice(dim, at, end));
    at = end;
  }
  return result;
}

}  // namespace

PackedLinear packed(const StackTable& table, const Checkpoint& checkpoint, const std::string& prefix,
                    const std::vector<Part>& parts, std::int64_t d_in, Activation activation) {
  std::vector<TensorView> weights;
  std::vector<Tensor> biases;
  bool has_bias = false;
  for (const Part& part : parts) {
    const std::string name = prefix + std::string(part.projection.name);
    weights.push_back(checkpoint.tensor(name + ".weight", weight_shape(table.weight_layout, d_in, part.d_out)));
    has_bias |= part.projection.has_bias;
    biases.push_back(part.projection.has_bias ? checkpoint.numbers(name + ".bias", {part.d_out})
                                              : Tensor(DType::f32, {part.d_out}));
  }
  PackedLinearOptions options{.weight_layout = table.weight_layout, .activation = activation};
  const Tensor bias = has_bias ? joined({biases.begin(), biases.end()}, 0) : Tensor();
  if (has_bias) options.bias = bias;
  if (weights.size() == 1) return PackedLinear(weights.front(), options);
  return PackedLinear(joined(weights, table.weight_layout == WeightLayout::out_in ? 0 : 1), options);
}

PackedLinear packed_qkv(const StackTable& table, const Checkpoint& checkpoint, const std::string& prefix,
                        const AttentionTable& attention) {
  const std::int64_t d_q = table.num_heads * table.head_dim, d_kv = table.num_kv_heads * table.head_dim;
  if (!attention.fused)
    return packed(table, checkpoint, prefix,
                  {{attention.query, d_q}, {attention.key, d_kv}, {attention.value, d_kv}}, table.d_model);
  if (attention.fused_order == FusedOrder::parts)
    return packed(table, checkpoint, prefix, {{attention.fused, d_q + 2 * d_kv}}, table.d_model);
  // [heads][query, key, value][head_dim], which becomes [query, key, value][heads][head_dim].
  const std::string name = prefix + std::string(attention.fused.name);
  const TensorView by_head = checkpoint.tensor(name + ".weight", {3 * d_q, table.d_model});
  const Tensor weight =
      Tensor::copy_of(by_head.reshaped({table.num_heads, 3, table.head_dim, table.d_model}).transposed(0, 1));
  PackedLinearOptions options;
  Tensor bias;
  if (attention.fused.has_bias) {
    const Tensor biases = checkpoint.numbers(name + ".bias", {3 * d_q});
    bias = Tensor::copy_of(biases.view().reshaped({table.num_heads, 3, table.head_dim}).transposed(0, 1))
               .reshaped({3 * d_q});
    options.bias = bias;
  }
  return PackedLinear(weight.view().reshaped({3 * d_q, table.d_model}), options);
}

}  // namespace saccade::model
