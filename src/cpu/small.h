// Paths for problems of a few keys and dimensions, where packing, scratch memory and threads would cost more than
// the work: a 6 x 3 input with 3 x 4 projections, say. Lanes run along queries, so that nothing is summed across
// them.
#pragma once

#include "cpu/block_sizes.h"
#include "cpu/math.h"
#include "cpu/softmax.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

inline constexpr std::int64_t kSmallKeys = 16, kSmallHeadDim = 16;

inline bool is_small(const AttentionParams& p) {
  return p.seqlen_k > 0 && p.seqlen_k <= kSmallKeys && p.head_dim <= kSmallHeadDim &&
         p.head_dim_v <= kSmallHeadDim && !p.causal && p.window_left < 0 && p.window_right < 0 &&
         p.kv_lengths == nullptr && p.softcap == 0.0f && p.mask.type == MaskType::none &&
         p.alibi_slopes.data == nullptr && p.sinks == nullptr && p.dropout_p == 0.0 && p.lse.data == nullptr &&
         p.weights.data == nullptr;
}

/// Up to kWidth query rows of one head.
inline void forward_small_rows(const AttentionParams& p, const float* q, const float* k, const float* v, float* o,
                               int rows) {
  alignas(64) float transposed[kSmallHeadDim * kWidth];  // [dim][query], first of q, then of o
  for (int i = 0; i < rows; ++i)
    for (std::int64_t d = 0; d < p.head_dim; ++d) transposed[d * kWidth + i] = q[i * p.q.row_stride + d];

  Vec scores[kSmallKeys];
  Vec largest = broadcast(kNoMaximum);
  const Vec factor = broadcast(static_cast<float>(double{p.scale} * 1.4426950408889634));
  for (std::int64_t j = 0; j < p.seqlen_k; ++j) {
    Vec s = zero();
    for (std::int64_t d = 0; d < p.head_dim; ++d)
      s = fma(broadcast_from(k + j * p.k.row_stride + d), load(transposed + d * kWidth), s);
    scores[j] = canonical_nan(mul(s, factor));
    largest = max(largest, scores[j]);
  }
  Vec sum = zero();
  for (std::int64_t j = 0; j < p.seqlen_k; ++j) {
    scores[j] = exp2(sub(scores[j], largest));
    sum = add(sum, scores[j]);
  }
  const Vec inverse = div(broadcast(1.0f), sum);
  for (std::int64_t d = 0; d < p.head_dim_v; ++d) {
    Vec x = zero();
    for (std::int64_t j = 0; j < p.seqlen_k; ++j)
      x = fma(broadcast_from(v + j * p.v.row_stride + d), scores[j], x);
    store(transposed + d * kWidth, mul(x, inverse));
  }
  for (int i = 0; i < rows; ++i)
    for (std::int64_t d = 0; d < p.head_dim_v; ++d) o[i * p.o.row_stride + d] = transposed[d * kWidth + i];
}

inline void forward_small(const AttentionParams& p, std::int64_t batch, std::int64_t head) {
  const std::int64_t kv_head = head / (p.num_heads / p.num_kv_heads);
  const float* k = p.k.head(batch, kv_head);
  const float* v = p.v.head(batch, kv_head);
  for (std::int64_t row = 0; row < p.seqlen_q; row += kWidth)
    forward_small_rows(p, p.q.row(batch, head, row), k, v, p.o.row(batch, head, row),
                       static_cast<int>(std::min<std::int64_t>(kWidth, p.seqlen_q - row)));
}

inline bool is_small_linear(const LinearParams& p) {
  return p.d_in <= 16 && p.d_out <= kWidth && p.rows <= 64 && p.weight_out_stride == 1;
}

inline void linear_small(const LinearParams& p) {
  const int n = static_cast<int>(p.d_out);
  const Vec bias = p.bias ? load_first(p.bias, n) : zero();
  for (std::int64_t i = 0; i < p.rows; ++i) {
    Vec y = bias;
    for (std::int64_t c = 0; c < p.d_in; ++c)
      y = fma(broadcast_from(p.x + i * p.x_stride + c), load_first(p.weight + c * p.weight_in_stride, n), y);
    store_first(p.y + i * p.y_stride, n, y);
  }
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
