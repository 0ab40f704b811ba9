// What a kernel is told about one call: plain structs that any device could be handed. Filled and checked by the
// public functions; kernels check nothing.
#pragma once

#include <cstdint>

namespace saccade {

/// A matrix a head: pointer and strides in elements; the innermost dimension is contiguous.
template <class T>
struct HeadedMatrix {
  T* data;
  std::int64_t batch_stride, head_stride, row_stride;

  T* head(std::int64_t batch, std::int64_t head) const { return data + batch * batch_stride + head * head_stride; }
  T* row(std::int64_t batch, std::int64_t head_index, std::int64_t row_index) const {
    return head(batch, head_index) + row_index * row_stride;
  }
};

enum class MaskType : std::uint8_t { none, boolean, f32, f64 };

/// A mask broadcast to [batch, num_heads, seqlen_q, seqlen_k]: stride 0 where it has no such dimension.
struct MaskParams {
  MaskType type = MaskType::none;
  const void* data = nullptr;
  std::int64_t batch_stride = 0, head_stride = 0, row_stride = 0, column_stride = 0;
};

struct AttentionParams {
  // Always set, and left uninitialised before: clearing them would be a tenth of the smallest call.
  std::int64_t batch, num_heads, num_kv_heads;
  std::int64_t seqlen_q, seqlen_k, head_dim, head_dim_v;
  HeadedMatrix<const float> q;  // [batch, num_heads, seqlen_q, head_dim]
  HeadedMatrix<const float> k;  // [batch, num_kv_heads, seqlen_k, head_dim]
  HeadedMatrix<const float> v;  // [batch, num_kv_heads, seqlen_k, head_dim_v]
  HeadedMatrix<float> o;        // [batch, num_heads, seqlen_q, head_dim_v]

  float scale = 1.0f;
  float softcap = 0.0f;  // 0: off

  bool causal = false;
  bool bottom_right = false;  // the offset follows from the lengths unless one was given
  std::int64_t query_offset = 0;
  const std::int64_t* query_offsets = nullptr;  // [batch]
  const std::int64_t* kv_lengths = nullptr;     // [batch]
  std::int64_t window_left = -1, window_right = -1;

  MaskParams mask;
  HeadedMatrix<const float> alibi_slopes{};  // a 1 x 1 matrix a head; data == nullptr: none
  const float* sinks = nullptr;              // [num_heads]

  double dropout_p = 0.0;
  std::uint64_t dropout_seed = 0;
  std::uint32_t dropout_offset = 0;

  HeadedMatrix<float> lse{};      // a row of seqlen_q numbers a head, row_stride between them; nullptr: not wanted
  HeadedMatrix<float> weights{};  // [batch, num_heads, seqlen_q, seqlen_k]; nullptr: not wanted
  bool weights_after_dropout = false;

  std::int64_t kv_length(std::int64_t b) const { return kv_lengths ? kv_lengths[b] : seqlen_k; }

  /// The position of query row 0 of batch entry b.
  std::int64_t offset(std::int64_t b) const {
    if (query_offsets) return query_offsets[b];
    return bottom_right ? kv_length(b) - seqlen_q : query_offset;
  }
};

struct LinearParams {
  std::int64_t rows = 0, d_in = 0, d_out = 0;
  const float* x = nullptr;  // [rows, d_in]
  std::int64_t x_stride = 0;
  const float* weight = nullptr;      // element (in, out) at in * weight_in_stride + out * weight_out_stride;
  std::int64_t weight_in_stride = 0;  // one of the two strides is 1
  std::int64_t weight_out_stride = 0;
  const float* bias = nullptr;  // [d_out]
  float* y = nullptr;           // [rows, d_out]
  std::int64_t y_stride = 0;
};

}  // namespace saccade
