// The arguments of reference::attention(), checked and brought to one form.
#pragma once

#include <cstdint>
#include <vector>

#include "saccade/attention.h"
#include "saccade/tensor.h"

namespace saccade::reference {

/// One batch entry, or one document of a packed batch.
struct Sequence {
  std::int64_t index_in_q = 0, index_in_k = 0;  // of its batch entry in the tensors; a packed batch is one
  std::int64_t first_row = 0, first_key = 0;    // where it begins in that
  std::int64_t seqlen_q = 0, seqlen_k = 0;
  std::int64_t kv_length = 0;       // keys that count
  std::int64_t first_position = 0;  // where row 0 stands
  // The keys that are there. In pages there are none beyond the length, nor need there be any before the window.
  std::int64_t begin_key = 0, end_key = 0;
};

/// Whatever the caller's rank, layout and choice of options: what there is to compute.
struct Arguments {
  TensorView q;  // [batch, num_heads, seqlen_q, head_dim]; packed: [1, num_heads, total_q, head_dim]
  TensorView k;  // [batch, num_kv_heads, seqlen_k, head_dim]; in pages: [num_pages, num_kv_heads, page_size, ...]
  TensorView v;  // as k, with head_dim_v

  std::int64_t batch, num_heads, num_kv_heads;
  std::int64_t seqlen_q, seqlen_k;  // of the longest sequence
  std::int64_t head_dim, head_dim_v;

  double scale;
  std::vector<Sequence> sequences;        // [batch]
  bool is_packed;                         // o then is [total_q, num_heads, head_dim_v]
  bool is_paged;                          // k and v then are a pool of pages
  std::vector<std::int64_t> block_table;  // [batch, max_pages]
  TensorView mask;                        // [batch, num_heads, seqlen_q, seqlen_k] or not given
  TensorView block_mask;    // [batch, num_heads, blocks of seqlen_q, blocks of seqlen_k] or not given
  TensorView alibi_slopes;  // [batch, num_heads] or not given
  TensorView sinks;         // [num_heads] or not given
};

/// Throws std::invalid_argument, "[reference::attention] ...", for everything that attention() refuses but the
/// element types of q, k and v, which may be any.
Arguments checked_arguments(const TensorView& q, const TensorView& k, const TensorView& v,
                            const AttentionOptions& options);

/// The keys of a sequence that may be read, or its values: f64 [end_key - begin_key, dim]. `view` is a.k or a.v.
Tensor keys_of(const Arguments& a, const TensorView& view, std::int64_t batch, std::int64_t kv_head);

/// The view with lengths of 1, and dimensions missing on the left, repeated (stride 0) up to `shape`.
/// Throws std::invalid_argument naming `function` and `name` when that cannot be.
TensorView broadcast(const TensorView& view, std::span<const std::int64_t> shape, const char* function,
                     const char* name);

}  // namespace saccade::reference
