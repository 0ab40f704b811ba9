// Exact scaled dot-product attention in linear memory.
#pragma once

#include <cstdint>
#include <optional>

#include "saccade/tensor.h"

namespace saccade {

/// Which keys a query may see by position. Query row i stands at position p = i + offset; key j is visible
/// iff j <= p. `top_left` puts row 0 at key 0 (offset 0); `bottom_right` puts the last row at the last key:
/// offset = (kv_lengths[b] or seqlen_k) - seqlen_q. A given query offset goes before either.
enum class Causal : std::uint8_t { none, top_left, bottom_right };

/// The order of the axes of q, k, v and o. Rank 4: bhld is [batch, heads, seqlen, dim], blhd is
/// [batch, seqlen, heads, dim]. Rank 3 is the same without batch; rank 2 is [seqlen, dim] in both.
enum class Layout : std::uint8_t { bhld, blhd };

/// Everything optional about attention(); fill it with designated initialisers.
///
/// The logits of row i (position p) and key j are, in this order:
///     s = scale * (q_i . k_j)  ->  softcap * tanh(s / softcap)  ->  - alibi_slope * |p - j|  ->  + float mask
/// and then keys hidden by causal, window, kv_lengths or a mask are excluded, the softmax taken over the rest
/// (with the sink's logit in the denominator), dropout applied, and the rows of v averaged.
struct AttentionOptions {
  /// Factor of the dot products; not given: 1 / sqrt(head_dim).
  std::optional<double> scale{};
  /// Bound of the logits; 0 switches it off. (Gemma 2, arXiv:2408.00118.)
  double softcap = 0.0;

  Causal causal = Causal::none;
  /// The position of query row 0; may be negative. Works without `causal` too.
  std::optional<std::int64_t> query_offset{};
  /// The same, one for each batch entry: i32 or i64 [batch]. Excludes query_offset.
  TensorView query_offsets{};
  /// Keys visible to the left and right of the row's position, inclusive: p - left <= j <= p + right;
  /// -1 leaves the side open.
  std::int64_t window_left = -1;
  std::int64_t window_right = -1;

  /// bool (true = attend) or f32/f64 (added; -inf hides), broadcast from the right against
  /// [batch, num_heads, seqlen_q, seqlen_k]: rank 1 is [seqlen_k]; lengths of 1 broadcast; any strides.
  TensorView mask{};
  /// Keys that count in each batch entry: i32 or i64 [batch], 0 <= length <= seqlen_k.
  TensorView kv_lengths{};
  /// Attention with linear biases (arXiv:2108.12409): f32 [num_heads] or [batch, num_heads].
  TensorView alibi_slopes{};
  /// One logit a head that takes part in the denominator only: f32 [num_heads].
  TensorView sinks{};

  /// The probability of dropping a weight, 0 <= p < 1; the kept ones are scaled by 1 / (1 - p).
  /// The draw is Philox4x32-10 by position (see dropout_keeps in random.h): it depends on seed, offset,
  /// batch entry, head, row and column, and on nothing else.
  double dropout_p = 0.0;
  std::uint64_t dropout_seed = 0;
  std::uint32_t dropout_offset = 0;

  /// Receives the natural logarithm of each row's softmax denominator: f32 [batch, num_heads, seqlen_q]
  /// (bhld order whatever the layout; without batch or heads where q has none). -inf for a row that sees nothing.
  MutableTensorView lse{};
  /// Receives the attention weights: f32 [batch, num_heads, seqlen_q, seqlen_k] (fewer axes as for lse).
  /// This is the one option that costs memory proportional to seqlen_q * seqlen_k: the caller's.
  MutableTensorView weights{};
  /// Report the weights as dropout left them instead of as softmax made them.
  bool weights_after_dropout = false;

  Layout layout = Layout::bhld;
  /// Threads of this call; 0: num_threads() of cpu.h. Results do not depend on it.
  int num_threads = 0;
};

/// o = softmax(scale * q k^T + ...) v for every batch entry and head.
///
/// Shapes (bhld): q [batch, num_heads, seqlen_q, head_dim], k [batch, num_kv_heads, seqlen_k, head_dim],
/// v [batch, num_kv_heads, seqlen_k, head_dim_v], o [batch, num_heads, seqlen_q, head_dim_v]; all of one rank
/// (2, 3 or 4) and all f32. The innermost dimension is contiguous, the others have any strides. num_heads
/// is a multiple of num_kv_heads, and query head h reads key head h / (num_heads / num_kv_heads).
///
/// A hidden key has no influence: NaN or Inf in it goes nowhere. A row that sees no key gives output 0 and lse
/// -inf. An empty batch, head or sequence gives an empty or zero output. A row's bits depend on its own inputs,
/// seqlen_k, the options and the instruction set; never on threads, batch or other rows.
///
/// Throws std::invalid_argument naming the argument, what was wanted and what came. Reads q, k, v and the
/// options' inputs, writes o, lse and weights; o must not overlap an input. Safe to call from several threads at once.
///
/// Sources: Vaswani et al., arXiv:1706.03762; online softmax, arXiv:1805.02867; FlashAttention-2, arXiv:2307.08691.
void attention(const TensorView& q, const TensorView& k, const TensorView& v, const MutableTensorView& o,
               const AttentionOptions& options = {});

/// The same, returning o in a tensor of its own.
Tensor attention(const TensorView& q, const TensorView& k, const TensorView& v,
                 const AttentionOptions& options = {});

}  // namespace saccade
