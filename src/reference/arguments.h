// The arguments of reference::attention(), checked and converted to one form.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "saccade/attention.h"
#include "saccade/tensor.h"

namespace saccade::reference {

/// One batch entry, or one document of a packed batch.
struct Sequence {
  std::int64_t index_in_q = 0, index_in_k = 0;  // its batch entry in the tensors; a packed batch is one entry
  std::int64_t first_row = 0, first_key = 0;    // its start in that entry
  std::int64_t seqlen_q = 0, seqlen_k = 0;
  std::int64_t kv_start = 0, kv_length = 0;  // valid keys: [kv_start, kv_length)
  std::int64_t first_position = 0;           // the position of row 0
  // The existing keys. Pages need not hold keys beyond the length or before the window.
  std::int64_t begin_key = 0, end_key = 0;
};

/// The problem in one form, whatever the caller's rank, layout and options.
struct Arguments {
  TensorView q;  // [batch, num_heads, seqlen_q, head_dim]; packed: [1, num_heads, total_q, head_dim]
  TensorView k;  // [batch, num_kv_heads, seqlen_k, head_dim]; in pages: [num_pages, num_kv_heads, page_size, ...]
  TensorView v;  // as k, with head_dim_v

  /// The numbers of k and v where these are quantized or transformed.
  std::array<std::shared_ptr<const Tensor>, 2> numbers;
  /// The scale of each row of v, as often as it has dimensions; nullptr: they have none.
  std::shared_ptr<const Tensor> value_scales;

  std::int64_t batch, num_heads, num_kv_heads;
  std::int64_t seqlen_q, seqlen_k;  // of the longest sequence
  std::int64_t head_dim, head_dim_v;

  double scale;
  std::vector<Sequence> sequences;        // [batch]
  bool is_packed;                         // o is [total_q, num_heads, head_dim_v]
  bool is_paged;                          // k and v are pools of pages
  std::vector<std::int64_t> block_table;  // [batch, max_pages]
  TensorView mask;                        // [batch, num_heads, seqlen_q, seqlen_k] or not given
  TensorView block_mask;    // [batch, num_heads, blocks of seqlen_q, blocks of seqlen_k] or not given
  TensorView alibi_slopes;  // [batch, num_heads] or not given
  TensorView sinks;         // [num_heads] or not given

  /// The element type of the tiles that a score modifier gets: that of the arithmetic, or f32, which kernels pass.
  std::optional<DType> tiles{};

  /// The logit of a head's sink, if there are sinks.
  std::optional<double> sink(std::int64_t head) const {
    return sinks ? std::optional(value_at(sinks, std::array{head})) : std::nullopt;
  }
};

/// Throws std::invalid_argument, "[reference::attention] ...", for everything that attention() rejects except the
/// element types of q, k and v, which may be any. `transforms` is the type in which k and v are transformed: f64,
/// or f32 as naive code does it.
Arguments checked_arguments(const TensorView& q, const TensorView& k, const TensorView& v,
                            const AttentionOptions& options, DType transforms = DType::f64);

/// The keys of a sequence that may be read, or their values: f64 [end_key - begin_key, dim]. `view` is a.k or a.v.
Tensor keys_of(const Arguments& a, const TensorView& view, std::int64_t batch, std::int64_t kv_head);

/// The numbers that a quantized view of k or v [entries, heads, rows, dim] stands for; nullptr for other types.
std::shared_ptr<const Tensor> dequantized(const TensorView& view, const TensorView& scale,
                                          const TensorView& multipliers);

/// The view expanded to `shape`: dimensions of length 1, and missing ones on the left, get stride 0. Throws
/// std::invalid_argument with `function` and `name` if that is impossible.
TensorView broadcast(const TensorView& view, std::span<const std::int64_t> shape, const char* function,
                     const char* name);

}  // namespace saccade::reference
