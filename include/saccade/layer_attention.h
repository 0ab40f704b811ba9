// The attention of one layer as a model's hooks see it, and changes of what its heads put out: a model without a
// head, or with weights of your own in it.
//
//     const HeadEdit edits[] = {{.place = {17, 5}}, {.place = {18, 6}, .replaced_by = Ablation::mean}};
//     const Tensor states =
//         model.hidden_states(input, {.on_attention = [&](const LayerAttention& layer) { edit_heads(layer, edits);
//         }});
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "saccade/attention_options.h"
#include "saccade/tensor.h"

#pragma GCC visibility push(default)
namespace saccade {

/// Which attention of a model: encoder self-attention, decoder self-attention, or cross-attention.
enum class AttentionKind : std::uint8_t { encoder, decoder, cross };

/// The attention of one layer in a forward pass, before the output projection.
struct LayerAttention {
  AttentionKind kind = AttentionKind::encoder;  ///< which of the model's
  std::int64_t layer = 0;                       ///< of the encoder or of the decoder
  /// [tokens, heads, head_dim], as attention() gets them: after the norms and rotations of the family.
  TensorView q{}, k{}, v{};
  /// With these, attention(q, k, v, options) gives o. More may be set in a copy, weights for example. What they
  /// point to is valid until the model's call returns.
  AttentionOptions options{};
  /// [tokens, num_heads, head_dim]. Changes take effect: setting a head's o to 0 ablates it.
  MutableTensorView o{};
  /// The projection of o that is added to the states: [num_heads, head_dim, d_model], f32, bf16 or f16.
  TensorView output_weight{};
};

/// A query head of a model; of an encoder-decoder, of its decoder, or in a HeadEdit as `kind` says.
struct HeadPlace {
  std::int64_t layer = 0, head = 0;  ///< from 0 on
  bool operator==(const HeadPlace&) const = default;
};

/// What replaces the output of an ablated head.
enum class Ablation : std::uint8_t {
  zero,
  mean,  ///< the mean of its output over the text, or over each of several, which loses what differs between
         ///< tokens
};

/// A change of one head; fill it with designated initializers.
struct HeadEdit {
  HeadPlace place{};  ///< which head
  /// Of which attention. Not given: of the self-attention that calls the hook, so of the only one of an encoder or
  /// a decoder, and of an encoder-decoder of the encoder in Model::encode() and of the decoder in
  /// Model::hidden_states(). Cross-attention is only changed by name.
  std::optional<AttentionKind> kind{};
  Ablation replaced_by = Ablation::zero;  ///< what replaces the output of the head, without `weights`
  /// f32 [tokens, keys] instead of the softmax: the output becomes their product with the head's values, of
  /// several texts those of all. Any strides; rows need not add up to 1.
  TensorView weights{};
};

/// Rewrites layer.o for those of `edits` that name layer.layer and layer.kind: later ones overrule earlier ones.
/// Throws std::invalid_argument for a head that the layer does not have, and for weights of another shape or type.
void edit_heads(const LayerAttention& layer, std::span<const HeadEdit> edits);

/// Receives the attention of a layer in a forward pass.
using OnAttention = std::function<void(const LayerAttention&)>;

}  // namespace saccade
#pragma GCC visibility pop
