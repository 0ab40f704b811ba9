// Paths for problems of a few keys and dimensions, where packing, scratch memory and threads would cost more than
// the work: a 6 x 3 input with 3 x 4 projections, say. Lanes run along queries, so that nothing is summed across
// them; every operation on a row is that of forward.h in the same order, so that its bits are the same.
#pragma once

#include "cpu/block_sizes.h"
#include "cpu/math.h"
#include "cpu/softmax.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

inline constexpr std::int64_t kSmallKeys = 16, kSmallHeadDim = 16;

inline bool is_small(const AttentionParams& p) {
  return p.seqlen_k > 0 && p.seqlen_k <= kSmallKeys && p.head_dim <= kSmallHeadDim &&
         p.head_dim_v <= kSmallHeadDim && p.is_plain;
}

/// The sum of x[0 ... n), added up as reduce_add adds the lanes in which forward.h keeps them.
inline Vec sum_of_keys(const Vec (&x)[kSmallKeys], std::int64_t n) {
  Vec sums[kSmallKeys];
  for (std::int64_t j = 0; j < n; ++j) sums[j] = x[j];
  if constexpr (kWidth == 1) {
    for (std::int64_t j = 1; j < n; ++j) sums[0] = add(sums[0], sums[j]);
  } else {
    for (std::int64_t half = kSmallKeys / 2; half > 0; half /= 2)
      for (std::int64_t j = 0; j + half < std::min(n, 2 * half); ++j) sums[j] = add(sums[j], sums[j + half]);
  }
  return sums[0];
}

/// Up to kWidth query rows of one head. kDims is head_dim and head_dim_v where it is not 0: loops of known length
/// keep the queries in registers. Returns whether all of o is finite.
template <int kDims>
bool forward_small_rows(const AttentionParams& p, const float* q, const float* k, const float* v, float* o,
                        int rows) {
  const std::int64_t head_dim = kDims ? kDims : p.head_dim, head_dim_v = kDims ? kDims : p.head_dim_v;
  const std::int64_t seqlen_k = p.seqlen_k, q_stride = p.q.row_stride, k_stride = p.k.row_stride;
  const std::int64_t v_stride = p.v.row_stride, o_stride = p.o.row_stride;
  alignas(64) float transposed[kSmallHeadDim * kWidth];  // [dim][query], first of q, then of o
  for (int i = 0; i < rows; ++i) {
    for (std::int64_t d = 0; d < head_dim; ++d) transposed[d * kWidth + i] = q[i * q_stride + d];
  }
  Vec queries[kDims ? kDims : kSmallHeadDim];
  const Vec factor = broadcast(static_cast<float>(p.scale * 1.4426950408889634074));
  for (std::int64_t d = 0; d < head_dim; ++d)
    queries[d] = canonical_nan(mul(load(transposed + d * kWidth), factor));

  Vec weights[kSmallKeys];
  Vec largest = broadcast(kNoMaximum);
  for (std::int64_t j = 0; j < seqlen_k; ++j) {
    Vec s = zero();
    for (std::int64_t d = 0; d < head_dim; ++d) s = fma_broadcast(k + j * k_stride + d, queries[d], s);
    weights[j] = canonical_nan(s);
    largest = max(largest, weights[j]);
  }
  for (std::int64_t j = 0; j < seqlen_k; ++j) weights[j] = exp2(sub(weights[j], largest));
  const Vec inverse = div(broadcast(1.0f), sum_of_keys(weights, seqlen_k));
  Vec out[kDims ? kDims : kSmallHeadDim];
  for (std::int64_t d = 0; d < head_dim_v; ++d) out[d] = zero();
  for (std::int64_t j = 0; j < seqlen_k; ++j) {
    for (std::int64_t d = 0; d < head_dim_v; ++d) out[d] = fma_broadcast(v + j * v_stride + d, weights[j], out[d]);
  }
  Vec finite = zero();  // stays 0 unless something is NaN or infinite
  for (std::int64_t d = 0; d < head_dim_v; ++d) {
    const Vec x = mul(out[d], inverse);
    finite = fma(x, zero(), finite);
    store(transposed + d * kWidth, x);
  }
  for (int i = 0; i < rows; ++i) {
    for (std::int64_t d = 0; d < head_dim_v; ++d) o[i * o_stride + d] = transposed[d * kWidth + i];
  }
  return (bits(is_nan(finite)) & ((1u << rows) - 1u)) == 0;  // lanes beyond are of no row
}

template <int kDims>
bool forward_small_head(const AttentionParams& p, std::int64_t batch, std::int64_t head) {
  const std::int64_t kv_head = p.num_heads == p.num_kv_heads ? head : head / (p.num_heads / p.num_kv_heads);
  const float* k = p.k.row<float>(batch, kv_head, 0);
  const float* v = p.v.row<float>(batch, kv_head, 0);
  bool finite = true;
  for (std::int64_t row = 0; row < p.seqlen_q; row += kWidth)
    finite &=
        forward_small_rows<kDims>(p, p.q.row<float>(batch, head, row), k, v, p.o.row<float>(batch, head, row),
                                  static_cast<int>(std::min<std::int64_t>(kWidth, p.seqlen_q - row)));
  return finite;
}

inline bool forward_small(const AttentionParams& p, std::int64_t batch, std::int64_t head) {
  switch (p.head_dim == p.head_dim_v ? p.head_dim : 0) {
    case 2:
      return forward_small_head<2>(p, batch, head);
    case 3:
      return forward_small_head<3>(p, batch, head);
    case 4:
      return forward_small_head<4>(p, batch, head);
    default:
      return forward_small_head<0>(p, batch, head);
  }
}

inline bool is_small_linear(const LinearParams& p) {
  return p.d_in <= kSmallHeadDim && p.d_out <= kWidth && p.rows <= 64 && p.weight_out_stride == 1;
}

/// kIn is d_in where it is not 0.
template <int kIn>
void linear_small_of(const LinearParams& p) {
  const std::int64_t d_in = kIn ? kIn : p.d_in, rows = p.rows, x_stride = p.x_stride, y_stride = p.y_stride;
  const int n = static_cast<int>(p.d_out);
  const float* x = p.x;
  float* y = p.y;
  Vec weight[kIn ? kIn : kSmallHeadDim];
  for (std::int64_t c = 0; c < d_in; ++c) weight[c] = load_first(p.weight + c * p.weight_in_stride, n);
  const Vec bias = p.bias ? load_first(p.bias, n) : zero();
  for (std::int64_t i = 0; i < rows; ++i) {
    Vec sum = bias;
    for (std::int64_t c = 0; c < d_in; ++c) sum = fma_broadcast(x + i * x_stride + c, weight[c], sum);
    store_first(y + i * y_stride, n, sum);
  }
}

inline void linear_small(const LinearParams& p) {
  switch (p.d_in) {
    case 2:
      return linear_small_of<2>(p);
    case 3:
      return linear_small_of<3>(p);
    case 4:
      return linear_small_of<4>(p);
    default:
      return linear_small_of<0>(p);
  }
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
