// One forward call of an attention module, from its inputs to what the backward pass needs of it.
#pragma once

#include "modules/appended_keys.h"
#include "saccade/modules.h"

namespace saccade {

/// The inputs as views of rank 3, batch first.
struct AttentionModule::Inputs {
  TensorView query, key, value;
  bool has_batch = false;
  bool are_one = false;  ///< forward(x): query, key and value are the same
};

struct AttentionModule::Call {
  Tensor q, k, v;            ///< [batch, seqlen, heads * head_dim]
  Tensor context;            ///< [batch, seqlen_q, num_heads * head_dim]
  Tensor lse;                ///< [batch, num_heads, seqlen_q], appended keys included; empty where nobody needs it
  Tensor weights;            ///< [batch, num_heads, seqlen_q, seqlen_k and the appended keys], where needed
  Tensor dropped;            ///< the same after dropout, where that was drawn over all weights
  AttentionOptions options;  ///< of attention()

  // Kept for the backward pass only.
  Tensor query, key, value;  ///< the inputs; key and value are empty where all are one
  bool has_batch = false, are_one = false;
  Tensor mask, kv_lengths;  ///< what options view

  const Tensor& key_input() const { return are_one ? query : key; }
  const Tensor& value_input() const { return are_one ? query : value; }
};

/// [batch, seqlen, heads * head_dim] as [batch, seqlen, heads, head_dim]
inline TensorView split_heads(const Tensor& x, std::int64_t heads) {
  return x.view().reshaped({x.shape(0), x.shape(1), heads, x.shape(2) / heads});
}
inline MutableTensorView split_heads(Tensor& x, std::int64_t heads) {
  return x.mutable_view().reshaped({x.shape(0), x.shape(1), heads, x.shape(2) / heads});
}

/// The axes of a module's inputs and outputs as [batch, seqlen, width].
TensorView batch_first_view(const TensorView& x, const ModuleConfig& config);

/// Gives a result [batch, seqlen, width] the axes that the inputs had.
Tensor with_axes_of_inputs(Tensor x, bool has_batch, bool batch_first);

}  // namespace saccade
