// One head of a layer, and quantities computed from its queries, keys and values.
#pragma once

#include "saccade/attention.h"
#include "saccade/model.h"

namespace saccade::heads {

/// Views of one head of a layer, each [tokens, 1, head_dim].
struct OneHead {
  TensorView q, k, v;
  AttentionOptions options;

  OneHead(const LayerAttention& layer, std::int64_t head, int num_threads);

  /// What a score modifier adds, which depends on the position only: [queries, keys]; rank 0 without one.
  Tensor bias() const;
  /// The weight of one key for one query, for a head with only a scale, a window and a softcap. lse: [1,
  /// queries], AttentionOptions::lse.
  double weight(const Tensor& lse, std::int64_t query, std::int64_t key) const;
};

/// The norm of what each key of a head adds to the states, |v W_O|: f32 [keys].
Tensor value_norms(const LayerAttention& layer, std::int64_t head, const OneHead& one);

}  // namespace saccade::heads
