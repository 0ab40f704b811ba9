// Attention over keys that arrive in blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "saccade/attention.h"

#pragma GCC visibility push(default)
namespace saccade {

/// The softmax of every query row over the keys so far: its running maximum m and sum l, and its output O before
/// the division by l, unrounded. Keys may be added block by block, as they are read or received, and never need to
/// be in memory all at once:
///
///     AttentionState state;
///     for (key = 0; key < seqlen_k; key += 4096)
///       state.add(q, k of keys [key, key + 4096), v of the same, {..., .origin = {.key = key}});
///     state.finish(o, {..., .lse = lse});
///
/// If every block begins at a multiple of kOriginAlignment and blocks come in ascending order, o and lse have the
/// bits that one call of attention() over all keys gives (but see finish()). Blocks of any size in any order give
/// the same up to rounding, within the rule of compare.h.
///
/// Memory for each row and query head, in f32 numbers (f64 for f64): head_dim_v, rounded up to a multiple of at
/// most 32, plus 2 to 32, for any number of keys; about twice that on level avx512amx.
///
/// Objects may be moved but not copied, and are used by one thread at a time.
///
/// Source: online softmax, arXiv:1805.02867; the order is FlashAttention-2's, arXiv:2307.08691.
class AttentionState {
 public:
  /// The state before the first key. `output`: the element type that finish() will write, on which the arithmetic
  /// of some instruction sets depends; default: q's.
  explicit AttentionState(std::optional<DType> output = {});
  ~AttentionState();
  AttentionState(AttentionState&&) noexcept;
  AttentionState& operator=(AttentionState&&) noexcept;

  /// Adds keys and their values v: every row of q attends to those of k that it sees. Shapes, element types and
  /// options are those of attention(). k may have no keys. `q` must be the same in all calls, values included.
  ///
  /// `options` must be the same too, except for what belongs to the keys of the call: origin.key, the index of its
  /// first key among all keys, from which positions, dropout, block masks and score modifiers count; `mask`, whose
  /// keys are those of the call; scales and multipliers of quantized keys and values, too, but for scales of the
  /// channels of v, and with a q of bf16 for scales of the channels of k if the first call had none; kv_starts and
  /// kv_lengths, which count all keys but may not exceed those of the call; block_mask; cu_seqlens_k.
  /// Causal::bottom_right needs a query offset, because a state does not know where the keys end. lse and sinks
  /// take effect in finish().
  ///
  /// Throws std::invalid_argument as attention() does, for a shape, element type, option or instruction set
  /// (active_isa()) that differs from the first call's, and for options.weights, options.scores and
  /// options.block_table. The state is then unchanged. After any other exception, such as std::bad_alloc or one of
  /// a score modifier, the state may be incomplete: add() and finish() then throw std::invalid_argument.
  void add(const TensorView& q, const TensorView& k, const TensorView& v,
           const AttentionOptions& options = kDefaultAttentionOptions);

  /// Writes o, the output over all keys so far, with the shape of q but v's last dimension, and options.lse. A row
  /// that has seen no key gives 0 and -inf. Only the options lse, sinks and num_threads are read; the others are
  /// those of add(). More keys may be added afterward.
  ///
  /// Level avx512amx: where a row meets a key or value that tiles cannot hold (not finite, or below 2^-100 or so
  /// in magnitude) only after its first block, its last bits may differ from those of attention().
  ///
  /// Throws std::invalid_argument if add() was never called, and if a shape or type does not fit.
  void finish(const MutableTensorView& o, const AttentionOptions& options = kDefaultAttentionOptions);

  /// The memory of the state in bytes; 0 before the first add().
  std::size_t bytes() const;

 private:
  class Rows;
  std::unique_ptr<Rows> rows_;  // nullptr: moved from
};

}  // namespace saccade
#pragma GCC visibility pop
