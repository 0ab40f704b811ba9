// The parameters of one kernel call: plain structs that any device can use. The public functions check and fill
// them; kernels check nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "backend/kv_source.h"
#include "saccade/attention.h"
#include "saccade/decode.h"

namespace saccade {

/// One matrix per head: pointer, element type and strides in elements; the innermost dimension is contiguous. Void
/// is void or const void.
template <class Void>
struct StridedHeads {
  Void* data;
  DType dtype;
  std::int64_t batch_stride, head_stride, row_stride;

  template <class T>
  auto* row(std::int64_t batch, std::int64_t head, std::int64_t index) const {
    using Element = std::conditional_t<std::is_const_v<Void>, const T, T>;
    return static_cast<Element*>(data) + offset(batch, head, index);
  }
  /// The same, whatever the element type is.
  Void* address(std::int64_t batch, std::int64_t head, std::int64_t index) const {
    using Byte = std::conditional_t<std::is_const_v<Void>, const std::byte, std::byte>;
    return static_cast<Byte*>(data) + bytes_of(dtype, offset(batch, head, index));
  }

 private:
  std::int64_t offset(std::int64_t batch, std::int64_t head, std::int64_t index) const {
    return batch * batch_stride + head * head_stride + index * row_stride;
  }
};

/// Calls f(T{}) with the C++ type of f32 or f64. Traps on any other element type.
template <class F>
decltype(auto) with_f32_or_f64(DType dtype, const F& f) {
  if (dtype == DType::f64) return f(double{});
  if (dtype == DType::f32) return f(float{});
  __builtin_trap();
}

/// One number per head, or per batch entry and head: f32 or f64. data == nullptr: none.
struct PerHeadScalars : StridedHeads<const void> {
  double at(std::int64_t batch, std::int64_t head) const {
    return with_f32_or_f64(dtype, [&](auto number) { return double{*row<decltype(number)>(batch, head, 0)}; });
  }
};

/// The scales of quantized keys or values, one for each row, and the multipliers of rows of i4; nullptr: none.
struct KvScales {
  StridedHeads<const void> scales{}, multipliers{};  // f32, i8
};

enum class MaskType : std::uint8_t { none, boolean, f32, f64 };

/// A mask broadcast to [batch, num_heads, seqlen_q, seqlen_k] (a block mask: to its blocks); the stride of a
/// broadcast dimension is 0.
struct MaskParams {
  MaskType type = MaskType::none;
  const void* data = nullptr;
  std::int64_t batch_stride = 0, head_stride = 0, row_stride = 0, column_stride = 0;

  /// The offset of a row of a head, in elements.
  std::int64_t row(std::int64_t batch, std::int64_t head, std::int64_t index) const {
    return batch * batch_stride + head * head_stride + index * row_stride;
  }
};

/// What every call has: tensors and their lengths. Its members are not initialized: set all of them.
struct AttentionOperands {
  std::int64_t batch, num_heads, num_kv_heads;
  std::int64_t seqlen_q, seqlen_k;  // of the longest document, in a packed batch
  std::int64_t head_dim, head_dim_v;
  StridedHeads<const void> q;  // [batch, num_heads, seqlen_q, head_dim]
  StridedHeads<const void> k;  // [batch, num_kv_heads, seqlen_k, head_dim]; paged: pages instead of batch
  StridedHeads<const void> v;  // [batch, num_kv_heads, seqlen_k, head_dim_v]
  StridedHeads<void> o;        // [batch, num_heads, seqlen_q, head_dim_v]
  double scale;
};

/// The options that change the logit of every query row and key. Without them, only scores at the edge of what a
/// row sees need extra work.
struct ScoreChanges {
  double softcap = 0.0;  // 0: off
  PerHeadScalars alibi_slopes{};
  MaskParams mask{};

  /// Lists every member, so that the compiler reports a new member that is missing here.
  bool any() const {
    const auto& [softcap_, alibi_slopes_, mask_] = *this;
    return softcap_ != 0.0 || alibi_slopes_.data || mask_.type != MaskType::none;
  }
};

struct AttentionParams : AttentionOperands, ScoreChanges {
  KvScales k_scales{}, v_scales{};
  DType given_q = DType::f32;  // the type of the caller's q, where `q` is a transform of it
  bool causal = false;
  bool bottom_right = false;  // the offset follows from the lengths unless given
  std::int64_t query_offset = 0;
  const std::int64_t* query_offsets = nullptr;  // [batch]
  const std::int64_t* kv_lengths = nullptr;     // [batch]
  const std::int64_t* kv_starts = nullptr;      // [batch]
  const std::int64_t* cu_seqlens_q = nullptr;   // [batch + 1]
  const std::int64_t* cu_seqlens_k = nullptr;   // [batch + 1]
  std::int64_t window_left = -1, window_right = -1;
  // Above 0: rows of several query heads as rows of one head; row i has the position of row i % rows_of_head.
  std::int64_t rows_of_head = 0;

  const std::int32_t* block_table = nullptr;  // [batch, ...]
  std::int64_t block_table_stride = 0, page_size = 0;

  MaskParams block_mask{};  // boolean, one element per block
  std::int64_t block_mask_q = 1, block_mask_k = 1;
  ScoreModifier score_modifier = nullptr;
  ScoreBlockEffect score_block_effect = nullptr;
  void* score_context = nullptr;
  PerHeadScalars sinks{};

  double dropout_p = 0.0;
  std::uint64_t dropout_seed = 0;
  std::uint32_t dropout_offset = 0;

  // Added to the indices that a score modifier, a block mask and dropout see; positions and lengths include it
  // already.
  Origin origin{};

  StridedHeads<void> lse{};      // seqlen_q numbers per head, row_stride apart; nullptr: not requested
  StridedHeads<void> weights{};  // [batch, num_heads, seqlen_q, seqlen_k]; nullptr: not requested
  StridedHeads<void> scores{};   // the same
  bool weights_after_dropout = false;
  ScoreStage score_stage = ScoreStage::raw;

  bool has_rows() const { return batch > 0 && num_heads > 0 && seqlen_q > 0; }
  /// How many query rows and keys a batch entry has, and where its first row and key are in the tensors.
  std::int64_t rows(std::int64_t b) const {
    return cu_seqlens_q ? cu_seqlens_q[b + 1] - cu_seqlens_q[b] : seqlen_q;
  }
  std::int64_t keys(std::int64_t b) const {
    return cu_seqlens_k ? cu_seqlens_k[b + 1] - cu_seqlens_k[b] : seqlen_k;
  }
  std::int64_t first_row(std::int64_t b) const { return cu_seqlens_q ? cu_seqlens_q[b] : 0; }
  std::int64_t first_key(std::int64_t b) const { return cu_seqlens_k ? cu_seqlens_k[b] : 0; }

  /// The first valid key, and the number of keys up to the last valid one.
  std::int64_t kv_start(std::int64_t b) const { return kv_starts ? kv_starts[b] : 0; }
  std::int64_t kv_length(std::int64_t b) const { return kv_lengths ? kv_lengths[b] : keys(b); }

  /// The random generator's inputs for a row's dropout, except the column: see dropout_keeps().
  std::uint32_t dropout_head(std::int64_t b, std::int64_t head) const {
    return static_cast<std::uint32_t>((b + origin.batch) * origin.num_heads + head + origin.head);
  }
  std::uint32_t dropout_row(std::int64_t i) const { return static_cast<std::uint32_t>(i + origin.row); }

  /// Row i of the batch entry b in q, o, lse, weights or scores.
  template <class T, class Void>
  auto* row_of(const StridedHeads<Void>& matrix, std::int64_t b, std::int64_t head, std::int64_t i) const {
    return matrix.template row<T>(b, head, first_row(b) + i);
  }

  /// The keys and the values of a batch entry and kv head.
  KvSource key_source(std::int64_t b, std::int64_t kv_head) const {
    return source_of(k, k_scales, head_dim, b, kv_head);
  }
  KvSource value_source(std::int64_t b, std::int64_t kv_head) const {
    return source_of(v, v_scales, head_dim_v, b, kv_head);
  }

  /// Whether a row's position decides which keys it sees.
  bool hides_by_position() const { return causal || window_left >= 0 || window_right >= 0; }
  /// Whether every score needs work, not only those at the edge of what a row sees.
  bool changes_every_score() const { return ScoreChanges::any() || score_modifier; }
  bool has_sink() const { return sinks.data != nullptr; }
  /// The logit of a head's sink; -inf: none.
  double sink(std::int64_t head) const {
    return has_sink() ? sinks.at(0, head) : -std::numeric_limits<double>::infinity();
  }
  bool saves_scores() const { return weights.data || scores.data; }
  /// Whether scores are saved before any key is hidden.
  bool saves_hidden() const {
    return scores.data && (score_stage == ScoreStage::raw || score_stage == ScoreStage::softcapped);
  }

 private:
  KvSource source_of(const StridedHeads<const void>& matrix, const KvScales& of, std::int64_t dim, std::int64_t b,
                     std::int64_t kv_head) const {
    const std::int64_t entry = block_table ? 0 : b, first = first_key(b);
    KvSource source{
        .data = matrix.address(entry, kv_head, first), .dtype = matrix.dtype, .row_stride = matrix.row_stride};
    if (block_table) {
      source.pages = block_table + b * block_table_stride;
      source.page_size = page_size;
      source.page_stride = matrix.batch_stride;
    }
    if (!is_quantized(matrix.dtype)) return source;
    source.dim = dim;
    if (of.scales.data) {
      source.scales = of.scales.row<float>(entry, kv_head, first);
      source.scale_stride = of.scales.row_stride;
      source.scale_page_stride = of.scales.batch_stride;
    }
    if (of.multipliers.data) {
      source.multipliers = of.multipliers.row<std::int8_t>(entry, kv_head, first);
      source.multiplier_stride = of.multipliers.row_stride;
      source.multiplier_page_stride = of.multipliers.batch_stride;
    }
    return source;
  }
};

/// The partial results of decode() over some splits of the keys, in order: [splits, batch, num_heads, seqlen_q,
/// row_size(head_dim_v)], f32 or f64. Each row holds o, the sum of exp(s - m) v over the keys of the split that it
/// sees (without the dropped ones, and without scaling up the others); m, their largest logit, in natural units,
/// stored as the sum of two numbers so that a back end with another unit recovers its exact m; and l, the sum of
/// exp(s - m). A row that sees no key has the lowest number, 0, and 0.
struct DecodeStates {
  void* data = nullptr;
  std::int64_t splits = 0;

  static constexpr std::int64_t row_size(std::int64_t head_dim_v) { return head_dim_v + 3; }
};

/// The lse of some rows: f32 or f64.
struct PerRowScalars : StridedHeads<const void> {
  double at(std::int64_t batch, std::int64_t head, std::int64_t i) const {
    return with_f32_or_f64(dtype, [&](auto number) { return double{*row<decltype(number)>(batch, head, i)}; });
  }
};

/// A result over some of the keys.
struct MergePart {
  StridedHeads<const void> o;
  PerRowScalars lse;
};

/// The parameters of merge_states(). If any o is f64, all are.
struct MergeParams {
  std::int64_t batch = 0, heads = 0, rows = 0, dim = 0;  // of o: [batch, heads, rows, dim]
  const MergePart* parts = nullptr;
  std::int64_t count = 0;  // of parts
  StridedHeads<void> o{}, lse{};
};

/// The parameters of a backward pass. There is at least one key.
struct BackwardParams {
  AttentionParams attention;        // its o and outputs are not set
  StridedHeads<const void> lse{};   // the lse of the forward pass, as AttentionParams::lse
  StridedHeads<const void> o;       // the o of the forward pass
  StridedHeads<const void> dout;    // as o
  StridedHeads<const void> dlse{};  // as lse; nullptr: 0
  StridedHeads<void> dq{};          // as q; nullptr: not requested
  StridedHeads<void> dk{}, dv{};    // as k and v; nullptr: neither is requested
  ScoreModifierBackward score_modifier_backward = nullptr;
  MaskParams dmask{};               // strides as those of the mask, with the kernels' element type
  void* dmask_data = nullptr;       // zeros, to add to; nullptr: not requested
  StridedHeads<void> dsink{};       // one number per head; nullptr: not requested
  StridedHeads<void> dslopes{};     // the same, or
  bool dslopes_of_entries = false;  // one number per batch entry and head

  bool wants_rows() const { return dq.data != nullptr; }
  bool wants_keys() const { return dk.data != nullptr; }
};

/// The parameters of inspect(); nullptr or 0: not requested. Results have the kernels' element type.
struct InspectParams {
  AttentionParams attention;                 // v is k with head_dim_v 0; o, weights and dropout are unused
  StridedHeads<const void> lse{};            // the denominators if known, as AttentionParams::lse
  const std::int64_t* rows = nullptr;        // [row_count], ascending: rows of q
  const std::int64_t* row_places = nullptr;  // [row_count]: the index of each row in row_weights
  std::int64_t row_count = 0;
  StridedHeads<void> row_weights{};  // [batch, num_heads, row_count, seqlen_k], zeros
  std::int64_t top_k = 0;
  StridedHeads<void> top_keys{};                           // [batch, num_heads, seqlen_q, top_k], i32 or i64
  StridedHeads<void> top_weights{};                        // the same shape
  StridedHeads<void> entropy{}, max_weight{}, distance{};  // [batch, num_heads, seqlen_q, 1]
  // Sums over the rows of a head.
  StridedHeads<void> received{};  // [batch, num_heads, seqlen_k, 1]
  StridedHeads<void> mean_distance{},
      pooled{};  // [batch, num_heads, 1], [batch, num_heads, pool_rows * pool_keys]
  std::int64_t pool_rows = 0, pool_keys = 0;
  bool pool_max = false;
};

}  // namespace saccade
