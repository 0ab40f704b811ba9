// The arguments of reference::attention(), checked and brought to one form.
#pragma once

#include <cstdint>
#include <vector>

#include "saccade/attention.h"
#include "saccade/tensor.h"

namespace saccade::reference {

/// Whatever the caller's rank, layout and choice of options: what there is to compute.
struct Arguments {
  TensorView q;  // [batch, num_heads, seqlen_q, head_dim]
  TensorView k;  // [batch, num_kv_heads, seqlen_k, head_dim]
  TensorView v;  // [batch, num_kv_heads, seqlen_k, head_dim_v]

  std::int64_t batch, num_heads, num_kv_heads;
  std::int64_t seqlen_q, seqlen_k;
  std::int64_t head_dim, head_dim_v;

  double scale;
  std::vector<std::int64_t> first_positions;  // [batch]: where query row 0 stands
  std::vector<std::int64_t> kv_lengths;       // [batch]
  TensorView mask;                            // [batch, num_heads, seqlen_q, seqlen_k] or not given
  TensorView alibi_slopes;                    // [batch, num_heads] or not given
  TensorView sinks;                           // [num_heads] or not given
};

/// Throws std::invalid_argument, "[reference::attention] ...", for everything that attention() refuses.
Arguments checked_arguments(const TensorView& q, const TensorView& k, const TensorView& v,
                            const AttentionOptions& options);

/// The view with lengths of 1, and dimensions missing on the left, repeated (stride 0) up to `shape`.
/// Throws std::invalid_argument naming `function` and `name` when that cannot be.
TensorView broadcast(const TensorView& view, std::span<const std::int64_t> shape, const char* function,
                     const char* name);

}  // namespace saccade::reference
