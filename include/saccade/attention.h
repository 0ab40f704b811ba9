// Exact scaled dot-product attention in linear memory.
#pragma once

#include <cstdint>
#include <optional>

#include "saccade/backend.h"
#include "saccade/tensor.h"

#pragma GCC visibility push(default)
namespace saccade {

/// Which keys a query may see by position. Query row i has position p = i + offset; key j is visible iff j <= p.
/// `top_left` aligns row 0 with key 0 (offset 0); `bottom_right` aligns the last row with the last key: offset =
/// (kv_lengths[b] or seqlen_k) - seqlen_q. A given query offset overrides either.
enum class Causal : std::uint8_t { none, top_left, bottom_right };

/// The order of the axes of q, k, v and o. Rank 4: bhsd is [batch, heads, seqlen, dim], bshd is
/// [batch, seqlen, heads, dim]. Rank 3 is the same without batch; rank 2 is [seqlen, dim] in both. The other two
/// are their old names.
enum class Layout : std::uint8_t {
  bhsd,
  bshd,
  bhld [[deprecated("use bhsd")]] = bhsd,
  blhd [[deprecated("use bshd")]] = bshd
};

/// A rectangle of scores of one head: rows and keys are indices into the batch entry (in a packed batch, into the
/// document), and row i has position i + offset. With an origin, all indices are those of the whole problem.
struct ScoreBlock {
  std::int64_t batch = 0, head = 0;           ///< batch entry (or document) and query head
  std::int64_t first_row = 0, first_key = 0;  ///< the indices of its first row and key
  std::int64_t rows = 0, keys = 0;            ///< how many rows and keys it has
  std::int64_t offset = 0;                    ///< position of a row minus its index
};

/// A ScoreBlock with its scores: key j of row i is at scores[i * stride + j], counted from first_row and
/// first_key.
struct ScoreTile : ScoreBlock {
  void* scores = nullptr;    ///< float; double where q is f64
  DType dtype = DType::f32;  ///< f32 or f64
  std::int64_t stride = 0;   ///< elements from one row to the next

  /// The scores of row i, from first_key on; T is float or double, as dtype says.
  template <class T>
  T* row(std::int64_t i) const {
    return static_cast<T*>(scores) + i * stride;
  }
};

/// What a score modifier does to a block: skip hides every key, full changes nothing, partial means that the
/// modifier must be called.
enum class BlockEffect : std::uint8_t { skip, full, partial };

/// Changes a tile of scores, after softcap and before ALiBi and mask, in place; -inf hides a key. `context` is
/// AttentionOptions::score_context. It is called from several threads at once, in any order, and also for keys
/// that causal, window or lengths hide. Its effect on a score may depend only on the score and its coordinates,
/// not on where the tile begins.
using ScoreModifier = void (*)(void* context, const ScoreTile& tile);

/// The derivative of a score modifier: turns the gradients of the modifier's output scores into gradients of its
/// input scores, in place. `scores` holds the input scores; both tiles cover the same block with the same stride.
/// It is called in the same way as the modifier. A modifier that only adds needs no derivative.
using ScoreModifierBackward = void (*)(void* context, const ScoreTile& scores, const ScoreTile& gradients);

/// Returns what the score modifier would do to a block, so that the call, or the whole block, can be skipped. Must
/// agree with the modifier: skip where it would hide everything, full where it would change nothing.
using ScoreBlockEffect = BlockEffect (*)(void* context, const ScoreBlock& block);

/// The stage at which AttentionOptions::scores reports scores, as in ONNX (Attention, opset 23,
/// qk_matmul_output_mode): scale * q . k; after softcap; after score modifier, biases and masks (hidden keys are
/// -inf); after softmax.
enum class ScoreStage : std::uint8_t { raw, softcapped, biased, probabilities };

/// Where the tensors of a call begin in a larger problem of which it computes a part. Rows, keys, heads and batch
/// entries then have the indices of the whole wherever an index matters: in positions, kv_starts and kv_lengths,
/// block_mask, score modifiers and dropout. The part thus hides, changes and drops exactly what the whole would.
/// Options with a value per batch entry or head (kv_lengths, alibi_slopes, sinks, ...) cover those of the call,
/// and `mask` its rows and keys.
///
/// A row's results have the bits that the whole would give them if the call has all keys that the row sees and
/// `key` is a multiple of kOriginAlignment. (kv_starts hides keys that were added in front for that purpose.)
struct Origin {
  std::int64_t batch = 0;      ///< the first batch entry, or document of a packed batch
  std::int64_t head = 0;       ///< the first query head
  std::int64_t num_heads = 0;  ///< query heads of the whole; 0: up to the last one of the call
  std::int64_t row = 0;        ///< the first query row of every batch entry
  std::int64_t key = 0;        ///< the first key of every batch entry; with dropout a multiple of 64

  bool operator==(const Origin&) const = default;
};

/// See Origin. The keys of a split of decode(), and a multiple of the key blocks of all other calls.
inline constexpr std::int64_t kOriginAlignment = 4096;

/// Everything optional about attention(); fill it with designated initializers.
///
/// The logits of row i (position p) and key j are, in this order:
///     s = scale * (q_i . k_j)  ->  softcap * tanh(s / softcap)  ->  score modifier  ->  - alibi_slope * |p - j|
///       ->  + float mask
/// Then keys hidden by causal, window, kv_starts, kv_lengths or a mask are excluded, the softmax is taken over the
/// rest (with the sink's logit in the denominator), dropout is applied, and the rows of v are averaged. Options
/// combine, except for those in attention_conflicts.h: pages (block_table) have no gradients, for example.
struct AttentionOptions {
  /// Factor of the dot products; default: 1 / sqrt(head_dim).
  std::optional<double> scale{};
  /// Bound of the logits; 0 switches it off. (Gemma 2, arXiv:2408.00118.)
  double softcap = 0.0;

  Causal causal = Causal::none;
  /// The position of query row 0; may be negative. Works without `causal` too.
  std::optional<std::int64_t> query_offset{};
  /// The position of row 0 in each batch entry: i32 or i64 [batch]. Excludes query_offset.
  TensorView query_offsets{};
  /// Keys visible to the left and right of the row's position, inclusive: p - left <= j <= p + right;
  /// -1 leaves the side open.
  std::int64_t window_left = -1, window_right = -1;

  /// bool (true = attend) or f32/f64 (added; -inf hides), broadcast from the right against
  /// [batch, num_heads, seqlen_q, seqlen_k]: rank 1 is [seqlen_k]; lengths of 1 broadcast; any strides.
  TensorView mask{};
  /// A bool for each block of block_mask_q query rows and block_mask_k keys (by index; the last blocks may be cut
  /// short), true = attend: [ceil(seqlen_q / block_mask_q), ceil(seqlen_k / block_mask_k)], broadcast from the
  /// right like mask. Blocks that hide everything cost nothing. With an origin they are the blocks from row 0 and
  /// key 0 of the whole to the last row and key of the call.
  TensorView block_mask{};
  std::int64_t block_mask_q = 128, block_mask_k = 128;  ///< rows and keys of a block of block_mask, at least 1
  /// A function that changes scores; see ScoreModifier.
  ScoreModifier score_modifier = nullptr;
  /// For attention_backward() only. Without it, the modifier may only add values that do not depend on the score.
  ScoreModifierBackward score_modifier_backward = nullptr;
  ScoreBlockEffect score_block_effect = nullptr;  ///< for which blocks score_modifier need not be called
  void* score_context = nullptr;                  ///< what these functions are called with
  /// Number of keys in each batch entry: i32 or i64 [batch], 0 <= length <= seqlen_k.
  TensorView kv_lengths{};
  /// The first key of each batch entry; those before it are padding, which no row sees: i32 or i64 [batch], 0 <=
  /// start <= seqlen_k. Positions still count from key 0.
  TensorView kv_starts{};

  /// Sequences packed end to end ("documents"), which do not see each other: i32 or i64 [batch + 1], the offset at
  /// which each document begins in q and in k, starting at 0, then the total; never decreasing. Give both or
  /// neither. The tensors are then q [total_q, num_heads, head_dim], k and v [total_k, num_kv_heads, ...], o like
  /// q, in every `layout`. Rows, keys and positions count from the beginning of the document. seqlen_q and
  /// seqlen_k, the sizes of masks, weights and scores, are those of the longest document.
  TensorView cu_seqlens_q{}, cu_seqlens_k{};
  /// Keys and values in pages of a pool: i32 [batch, max_pages]; key j of a batch entry is row j % page_size of
  /// page block_table[batch, j / page_size]. k and v are then [num_pages, num_kv_heads, page_size, dim] (bshd:
  /// [num_pages, page_size, num_kv_heads, dim]), rank 4; kv_lengths is required, and seqlen_k is max_pages *
  /// page_size. Entries are not read if kv_starts, kv_lengths or window_left hides their keys from all rows.
  /// (Paged attention, arXiv:2309.06180.) Excludes cu_seqlens_k.
  TensorView block_table{};
  /// The scales of quantized k and v (i8, i4 or f8e4m3; see quantize.h): a number of k is its scale times the
  /// stored number. f32, broadcast from the right against [batch, num_kv_heads, seqlen_k, head_dim] of k or v,
  /// packed [num_kv_heads, total_k, head_dim], with pages [num_pages, num_kv_heads, page_size, head_dim] (bhsd
  /// order for any layout): one scale for the tensor, or for each head, token, head and token, or head and
  /// channel (with pages the same for all pages); not for each token and channel. Required for i8 and i4; default
  /// for f8e4m3: 1.
  TensorView k_scale{}, v_scale{};
  /// The multipliers of groups of 16 numbers of i4: i8 [..., groups], with the other axes as for k_scale, all of
  /// them. KvCache::options() sets them.
  TensorView k_multipliers{}, v_multipliers{};
  /// k holds Hadamard transforms of keys (hadamard() in quantize.h): the queries are transformed likewise, which
  /// leaves the scores as they are. v_rotated: v holds transforms of values, and o is transformed back.
  bool k_rotated = false, v_rotated = false;
  /// Attention with linear biases (arXiv:2108.12409): f32 or f64 [num_heads] or [batch, num_heads]; alibi_slopes()
  /// returns the standard ones.
  TensorView alibi_slopes{};
  /// One logit per head that only adds to the denominator: f32 or f64 [num_heads].
  TensorView sinks{};

  /// The probability of dropping a weight, 0 <= p < 1; kept weights are scaled by 1 / (1 - p). The mask is drawn
  /// by Philox4x32-10 (see dropout_keeps in random.h) and depends only on seed, offset, batch entry, head, row and
  /// column.
  double dropout_p = 0.0;
  std::uint64_t dropout_seed = 0;    ///< determines which weights are dropped
  std::uint32_t dropout_offset = 0;  ///< so does this number, which counts calls with one seed, for example

  /// Receives the natural logarithm of each row's softmax denominator: [batch, num_heads, seqlen_q], packed
  /// [num_heads, total_q] (bhsd order for any layout; without batch or heads where q has none), f32, or f64
  /// for f64 inputs. -inf for a row that sees nothing.
  MutableTensorView lse{};
  /// Receives the attention weights: [batch, num_heads, seqlen_q, seqlen_k], packed [num_heads, total_q, seqlen_k]
  /// (fewer axes and dtype as for lse). Only this option and scores need memory proportional to seqlen_q *
  /// seqlen_k, which the caller provides.
  MutableTensorView weights{};
  /// Report the weights after dropout instead of after softmax.
  bool weights_after_dropout = false;
  /// Receives the scores of the stage below; shape and dtype as for weights. Keys beyond a document's end or a
  /// paged sequence's length get -inf (probabilities: 0).
  MutableTensorView scores{};
  ScoreStage score_stage = ScoreStage::raw;  ///< of scores

  /// Where this call begins in a larger problem. With a row or key other than 0, Causal::bottom_right needs a
  /// query offset, and kv_starts and kv_lengths may be up to key + seqlen_k. A key excludes block_table.
  Origin origin{};

  Layout layout = Layout::bhsd;  ///< of q, k, v and o
  /// The back end of this call: "reference", or a list such as "reference,cpu". Default: that of the BackendScope,
  /// the process, or SACCADE_BACKEND; see backend.h.
  BackendChoice backend{};
  /// Threads of this call; 0: num_threads() of runtime.h. Results do not depend on it.
  int num_threads = 0;
};

/// The default options. A constant, because AttentionOptions is larger than the tensors of the smallest problems.
inline constexpr AttentionOptions kDefaultAttentionOptions{};

/// o = softmax(scale * q k^T + ...) v for every batch entry and head.
///
/// Shapes (bhsd): q [batch, num_heads, seqlen_q, head_dim], k [batch, num_kv_heads, seqlen_k, head_dim],
/// v [batch, num_kv_heads, seqlen_k, head_dim_v], o [batch, num_heads, seqlen_q, head_dim_v]; all of one rank
/// (2, 3 or 4). The innermost dimension is contiguous, the others have any strides. num_heads
/// is a multiple of num_kv_heads, and query head h reads key head h / (num_heads / num_kv_heads).
///
/// Element types: each of q, k, v and o is f32, bf16 or f16, in any combination, or all are f64. k and v may also
/// be quantized, with k_scale and v_scale, unless q is f64: i8, i4 or f8e4m3. Products and softmax are computed in
/// f32 (f64 for f64); k and v widen exactly and o is rounded once. Where q is bf16, k and v are bf16 or quantized,
/// and the machine multiplies bf16 (levels avx512bf16, avx512amx and neonbf16), the weights may be rounded to bf16
/// before the product with v, and bf16 denormals may count as 0.
///
/// A hidden key has no influence, even if it holds NaN or Inf. A row that sees no key gives output 0 and lse -inf.
/// An empty batch, head or sequence gives an empty or zero output. A row's bits depend only on its q row, the keys
/// that it sees, the options and the instruction set, never on threads, batch, seqlen_q, other rows, packing or
/// paging.
///
/// Throws std::invalid_argument that names the argument, what was expected and what was given. Reads q, k, v and
/// the options' inputs, writes o, lse and weights; o must not overlap an input. Safe to call from several threads
/// at once.
///
/// Sources: Vaswani et al., arXiv:1706.03762; online softmax, arXiv:1805.02867; FlashAttention-2,
/// arXiv:2307.08691.
void attention(const TensorView& q, const TensorView& k, const TensorView& v, const MutableTensorView& o,
               const AttentionOptions& options = kDefaultAttentionOptions);

/// The same, returning o as a new tensor of q's element type.
Tensor attention(const TensorView& q, const TensorView& k, const TensorView& v,
                 const AttentionOptions& options = kDefaultAttentionOptions);

/// The standard slopes of ALiBi (arXiv:2108.12409): f32 [num_heads], the geometric sequence 2^(-8 i / n), i = 1
/// ... n, for a power of two; other head counts use those of the next lower power of two, then every other one of
/// the next higher, as in the paper's code.
Tensor alibi_slopes(std::int64_t num_heads);

}  // namespace saccade
#pragma GCC visibility pop
