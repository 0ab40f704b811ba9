// One forward call of an attention module, from its inputs to the data for the backward pass.
#pragma once

#include <optional>

#include "core/parallel.h"
#include "nn/attention_modules/appended_keys.h"
#include "saccade/attention_modules.h"

namespace saccade {

/// The inputs as views of rank 3, batch first.
struct AttentionModule::Inputs {
  TensorView query, key, value;
  bool has_batch = false;
  bool are_one = false;  ///< forward(x): query, key and value are the same
};

struct AttentionModule::ForwardCall {
  Tensor q, k, v, context;   ///< the projections, if needed after the call
  Tensor lse;                ///< [batch, num_heads, seqlen_q], including appended keys; empty if not needed
  Tensor weights;            ///< [batch, num_heads, seqlen_q, seqlen_k and the appended keys], if needed
  Tensor dropped;            ///< the same after dropout, if drawn over all weights
  AttentionOptions options;  ///< of attention()

  // Kept for the backward pass only.
  Tensor query, key, value;  ///< the inputs; key and value are empty if are_one
  bool has_batch = false, are_one = false;
  Tensor mask, kv_lengths;  ///< the tensors that `options` points to

  const Tensor& key_input() const { return are_one ? query : key; }
  const Tensor& value_input() const { return are_one ? query : value; }
};

/// The inputs and the output of attention: q, k, v [batch, seqlen, heads * head_dim] and context, like q.
struct AttentionModule::Projections {
  /// Allocates them: in `call` if it `keeps` them, else in memory kept between calls. The context is also in
  /// `call` if it is the output.
  Projections(const ModuleConfig& config, const Inputs& inputs, bool keeps, bool is_output, ForwardCall& call);

  std::optional<Workspace> workspace;
  MutableTensorView q, k, v, context;
};

/// [batch, seqlen, heads * head_dim] as [batch, seqlen, heads, head_dim]
template <class View>
View split_heads(const View& x, std::int64_t heads) {
  return x.reshaped({x.shape[0], x.shape[1], heads, x.shape[2] / heads});
}

/// The axes of a module's inputs and outputs as [batch, seqlen, width].
TensorView batch_first_view(const TensorView& x, const ModuleConfig& config);

/// Returns a result [batch, seqlen, width] with the axes of the inputs.
Tensor with_axes_of_inputs(Tensor x, bool has_batch, bool batch_first);

}  // namespace saccade
