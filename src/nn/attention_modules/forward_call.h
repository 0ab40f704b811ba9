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
  /// Allocates them in `call`, which keeps them.
  Projections(const ModuleConfig& config, const Inputs& inputs, ForwardCall& call);

  /// Takes memory that is kept between calls. `output`: the context if it is given, for a module without an output
  /// projection.
  Projections(const ModuleConfig& config, const Inputs& inputs, const MutableTensorView& output);

  std::optional<Workspace> workspace;
  MutableTensorView q, k, v, context;
};

/// [batch, seqlen, heads * head_dim] as [batch, seqlen, heads, head_dim]. x is contiguous. Made without
/// TensorView::reshaped, whose checks took 0.15 of a call with six tokens of three numbers.
template <class View>
View split_heads(const View& x, std::int64_t heads) {
  View result = x;
  const std::int64_t head_dim = x.shape[2] / heads;
  result.rank = 4;
  result.shape[2] = heads;
  result.strides[2] = head_dim;
  result.shape[3] = head_dim;
  result.strides[3] = 1;
  return result;
}

/// The axes of a module's inputs and outputs as [batch, seqlen, width].
TensorView batch_first_view(const TensorView& x, const ModuleConfig& config);

/// Returns a result [batch, seqlen, width] with the axes of the inputs.
Tensor with_axes_of_inputs(Tensor x, bool has_batch, bool batch_first);

}  // namespace saccade
