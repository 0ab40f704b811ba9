// Attention of a few new tokens over a long cache, as fast as reading the cache once.
#pragma once

#include <cstdint>
#include <span>

#include "saccade/attention.h"
#include "saccade/tensor.h"

#pragma GCC visibility push(default)
namespace saccade {

/// attention() for few query rows and many keys: the same arguments q, k and v, options and result o, but computed
/// in an order that reads every key and value once, in place, for all query heads and rows that share them. The
/// keys are divided into splits of a fixed size, which are merged in ascending order. A row's bits therefore
/// depend on its q row, the keys it sees, the options and the instruction set; not on threads, batch, the other
/// new tokens or paging. They differ from those of attention() in the last bits, because sums over head_dim run in
/// another order. Where both must agree bit for bit, call attention() for new tokens too, which takes 1.3 to 4.5
/// times as long (one row, Granite Rapids).
///
/// Typical options for a cache: {.causal = Causal::bottom_right, .kv_lengths = lengths, .block_table = pages}.
void decode(const TensorView& q, const TensorView& k, const TensorView& v, const MutableTensorView& o,
            const AttentionOptions& options = {});

/// The same, but returns o as a new tensor of q's element type.
Tensor decode(const TensorView& q, const TensorView& k, const TensorView& v, const AttentionOptions& options = {});

/// Whether decode() is usually faster than attention(). With few rows and many keys, reading k and v takes longer
/// than computing with them, and decode() reads them in place. `seqlen_q`, `seqlen_k`: rows and keys. `group`:
/// query heads that share a kv head, whose rows count together. For 4096 keys of 128 numbers decode() takes 0.2 to
/// 0.85 of attention()'s time with up to 8 rows, 0.6 to 1.0 with 16, and 1.0 to 1.3 with 32; for 512 keys from
/// 0.35 (f32, one row) to 1.65 times as long (bf16, 16 rows): f32 and bf16, with AMX tiles and without (Granite
/// Rapids).
inline constexpr bool is_decode_faster(std::int64_t seqlen_q, std::int64_t seqlen_k, std::int64_t group) {
  constexpr std::int64_t kMaxRows = 16, kLeastKeys = 512, kKeysOfARow = 128;
  const std::int64_t rows = seqlen_q * group;
  return rows > 0 && rows <= kMaxRows && seqlen_k >= kLeastKeys && seqlen_k >= kKeysOfARow * rows;
}

/// The number of keys in a split of decode(). Splits begin at multiples of it.
inline constexpr std::int64_t kDecodeSplitKeys = 4096;
[[deprecated("renamed kDecodeSplitKeys")]] inline constexpr std::int64_t kDecodePieceKeys = kDecodeSplitKeys;

/// decode() in two steps, for a cache that several processes share: decode_states() computes the state of each
/// split of the keys, as decode() does before it merges them, and merge_decode_states() merges the splits in
/// ascending order. Together they are bit-identical to one call of decode() over all keys; on the reference back
/// end, which computes in f64, the states are rounded once more.
///
/// k and v are a part of the cache: the keys from options.origin.key on, which is a multiple of kDecodeSplitKeys;
/// options count from there as in attention(). Options without effect on states, such as sinks and lse, are
/// ignored. `states`: contiguous [ceil(seqlen_k / kDecodeSplitKeys), batch, num_heads, seqlen_q, head_dim_v + 3],
/// with axes of length 1 where q has none; f64 if q is f64, else f32. For each row: the sum of exp(s - m) v over
/// the split's keys; m, the largest logit of them, as the sum of two numbers; and the sum of exp(s - m). With
/// dropout, kept weights are scaled up by merge_decode_states() only. Exponentials have base e, so that any back
/// end can merge the states of any other.
///
/// Throws std::invalid_argument as decode() does, for states that do not fit, packed batches, weights and scores.
void decode_states(const TensorView& q, const TensorView& k, const TensorView& v, const MutableTensorView& states,
                   const AttentionOptions& options = {});

/// The same, but returns the states as a new tensor.
Tensor decode_states(const TensorView& q, const TensorView& k, const TensorView& v,
                     const AttentionOptions& options = {});

/// Merges the states of all splits of the keys, in ascending order, into o, and writes options.lse: sinks and the
/// scale of dropout apply here. Splits that no row sees may be left out. q, k, v and the options are those of any
/// one call of decode_states(): the contents of the tensors are not read.
void merge_decode_states(const TensorView& q, const TensorView& k, const TensorView& v, const TensorView& states,
                         const MutableTensorView& o, const AttentionOptions& options = {});

/// Merges two attention results of the same queries over different keys into the result over all of these keys:
/// lse = log(exp(lse_a) + exp(lse_b)), o = exp(lse_a - lse) o_a + exp(lse_b - lse) o_b. o_a, o_b and o have the
/// same shape ([..., head_dim_v] with the axes of attention()'s o); lse_a, lse_b and lse have the shape of
/// attention()'s lse for such an o in `layout`. o may be o_a or o_b, lse may be lse_a or lse_b. Element types: o
/// any floating type, lse f32 or f64. A part without keys has lse -inf and contributes nothing. Include a sink in
/// only one of the parts. Throws std::invalid_argument where shapes or types do not fit. (FlashInfer,
/// arXiv:2501.01005, section 2.2.) Sums are f32, or f64 if one of the o is.
void merge_states(const TensorView& o_a, const TensorView& lse_a, const TensorView& o_b, const TensorView& lse_b,
                  const MutableTensorView& o, const MutableTensorView& lse, Layout layout = Layout::bhsd);

/// The result of a call over some of the keys.
struct PartialResult {
  TensorView o{};    ///< the o of attention() or decode()
  TensorView lse{};  ///< AttentionOptions::lse of that call
};

/// The same for any number of parts, read once; none: o is 0 and lse -inf.
void merge_states(std::span<const PartialResult> parts, const MutableTensorView& o, const MutableTensorView& lse,
                  Layout layout = Layout::bhsd);

}  // namespace saccade
#pragma GCC visibility pop
