// Paths for problems of a few keys and dimensions, such as a 6 x 3 input with 3 x 4 projections, where packing,
// scratch memory and threads would cost more than the work. Lanes run along queries, so that nothing is summed
// across lanes. Every row takes the operations of forward.h in the same order, and so has the same bits.
#pragma once

#include "cpu/attention/softmax.h"
#include "cpu/policy/block_sizes.h"
#include "cpu/simd/math.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// The sum of x[0 ... n), in the order in which reduce_add adds forward.h's lanes: a call sums every kStep-th
/// number from j on.
template <int kStep = 1>
SACCADE_INLINE Vec sum_of_keys(const Vec* x, std::int64_t n, std::int64_t j = 0) {
  if constexpr (kWidth < 8 && kStep == kWidth) {  // a lane's own numbers, in order; wider vectors have at most two
    Vec sum = x[j];
    for (j += kWidth; j < n; j += kWidth) sum = add(sum, x[j]);
    return sum;
  } else if constexpr (kStep == kSmallKeys) {
    return x[j];
  } else {
    const Vec sum = sum_of_keys<2 * kStep>(x, n, j);
    return j + kStep < n ? add(sum, sum_of_keys<2 * kStep>(x, n, j + kStep)) : sum;
  }
}

/// Columns, from `begin` and before `end`, for one call of load_columns.
inline int columns_from(std::int64_t begin, std::int64_t end) {
  return static_cast<int>(std::min<std::int64_t>(4, end - begin));
}

/// Computes the scores of kKeys keys, and raises `largest` to them.
template <int kKeys>
SACCADE_INLINE void score_keys(const Vec* queries, std::int64_t head_dim, const float* k, std::int64_t k_stride,
                               Vec* scores, Vec& largest) {
  Vec sums[kKeys];
  SACCADE_UNROLL
  for (int j = 0; j < kKeys; ++j) sums[j] = zero();
  for (std::int64_t d = 0; d < head_dim; ++d) {
    SACCADE_UNROLL
    for (int j = 0; j < kKeys; ++j) sums[j] = fma_broadcast(k + j * k_stride + d, queries[d], sums[j]);
  }
  SACCADE_UNROLL
  for (int j = 0; j < kKeys; ++j) {
    scores[j] = canonical_nan(sums[j]);
    largest = max(largest, scores[j]);
  }
}

/// Computes kColumns columns of the output: the sums over the keys of weight times v, multiplied by `inverse`.
template <int kColumns>
SACCADE_INLINE void average_columns(const Vec* weights, std::int64_t seqlen_k, const float* v,
                                    std::int64_t v_stride, Vec inverse, Vec* out) {
  Vec sums[kColumns];
  SACCADE_UNROLL
  for (int c = 0; c < kColumns; ++c) sums[c] = zero();
  for (std::int64_t j = 0; j < seqlen_k; ++j) {
    SACCADE_UNROLL
    for (int c = 0; c < kColumns; ++c) sums[c] = fma_broadcast(v + j * v_stride + c, weights[j], sums[c]);
  }
  SACCADE_UNROLL
  for (int c = 0; c < kColumns; ++c) out[c] = mul(sums[c], inverse);
}

/// Up to kWidth query rows of one head. kDims is head_dim and head_dim_v, or 0 for any: loops of constant length
/// keep the queries in registers. Returns whether all of o is finite.
template <int kDims>
bool forward_small_rows(const AttentionOperands& p, const float* q, const float* k, const float* v, float* o,
                        int rows) {
  constexpr int kMaxDims = kDims ? (kDims + 3) / 4 * 4 : kSmallHeadDim;
  const std::int64_t head_dim = kDims ? kDims : p.head_dim, head_dim_v = kDims ? kDims : p.head_dim_v;
  const std::int64_t seqlen_k = p.seqlen_k, q_stride = p.q.row_stride, k_stride = p.k.row_stride;
  const std::int64_t v_stride = p.v.row_stride, o_stride = p.o.row_stride;
  Vec queries[kMaxDims];
  const Vec factor = broadcast(static_cast<float>(p.scale * 1.4426950408889634074));
  for (std::int64_t d = 0; d < head_dim; d += 4)
    load_columns(q + d, q_stride, rows, columns_from(d, head_dim), queries + d);
  for (std::int64_t d = 0; d < head_dim; ++d) queries[d] = mul(queries[d], factor);

  Vec weights[kSmallKeys];
  Vec largest = broadcast(kNoMaximum);
  std::int64_t j = 0;
  if constexpr (kDims == 0) {  // sums over few dimensions are short enough for the processor to overlap
    for (; j + 4 <= seqlen_k; j += 4)
      score_keys<4>(queries, head_dim, k + j * k_stride, k_stride, weights + j, largest);
  }
  for (; j < seqlen_k; ++j) score_keys<1>(queries, head_dim, k + j * k_stride, k_stride, weights + j, largest);
  for (j = 0; j < seqlen_k; ++j) weights[j] = exp2(sub(weights[j], largest));
  const Vec inverse = div(broadcast(1.0f), sum_of_keys(weights, seqlen_k));
  Vec finite = zero();  // stays 0 unless something is NaN or infinite
  for (std::int64_t d = 0; d < head_dim_v; d += 4) {
    const int columns = columns_from(d, head_dim_v);
    Vec out[4];
    if (columns == 4) {
      average_columns<4>(weights, seqlen_k, v + d, v_stride, inverse, out);
    } else {
      for (int c = 0; c < columns; ++c)
        average_columns<1>(weights, seqlen_k, v + d + c, v_stride, inverse, out + c);
    }
    for (int c = 0; c < columns; ++c) finite = fma(out[c], zero(), finite);
    store_columns(o + d, o_stride, rows, columns, out);
  }
  return (bits(is_nan(finite)) & ((1u << rows) - 1u)) == 0;  // the other lanes hold no row
}

template <int kDims>
bool forward_small_head(const AttentionOperands& p, const QueryRows& rows) {
  const std::int64_t batch = rows.batch, head = rows.head, end = std::min(p.seqlen_q, rows.row + rows.rows);
  const std::int64_t kv_head = p.num_heads == p.num_kv_heads ? head : head / (p.num_heads / p.num_kv_heads);
  const float* k = p.k.row<float>(batch, kv_head, 0);
  const float* v = p.v.row<float>(batch, kv_head, 0);
  bool finite = true;
  for (std::int64_t row = rows.row; row < end; row += kWidth)
    finite &=
        forward_small_rows<kDims>(p, p.q.row<float>(batch, head, row), k, v, p.o.row<float>(batch, head, row),
                                  static_cast<int>(std::min<std::int64_t>(kWidth, end - row)));
  return finite;
}

inline bool forward_small(const AttentionOperands& p, const QueryRows& rows) {
  switch (p.head_dim == p.head_dim_v ? p.head_dim : 0) {
    case 2:
      return forward_small_head<2>(p, rows);
    case 3:
      return forward_small_head<3>(p, rows);
    case 4:
      return forward_small_head<4>(p, rows);
    default:
      return forward_small_head<0>(p, rows);
  }
}

/// kDepth is the depth, or 0 for any.
template <int kDepth>
void product_small_of(const ProductParams& p) {
  const std::int64_t depth = kDepth ? kDepth : p.depth, rows = p.rows;
  const std::int64_t a_stride = p.a_row_stride, c_stride = p.c_stride;
  const int n = static_cast<int>(p.columns);
  const float* a = static_cast<const float*>(p.a);
  const float* const all_b = static_cast<const float*>(p.b);
  float* c = static_cast<float*>(p.c);
  Vec b[kDepth ? kDepth : kSmallDepth];
  for (std::int64_t d = 0; d < depth; ++d) b[d] = load_first(all_b + d * p.b_depth_stride, n);
  const Vec bias = p.bias ? load_first(p.bias, n) : zero();
  for (std::int64_t i = 0; i < rows; ++i) {
    Vec sum = bias;
    for (std::int64_t d = 0; d < depth; ++d) sum = fma_broadcast(a + i * a_stride + d, b[d], sum);
    store_first(c + i * c_stride, n, sum);
  }
}

inline void product_small(const ProductParams& p) {
  switch (p.depth) {
    case 2:
      return product_small_of<2>(p);
    case 3:
      return product_small_of<3>(p);
    case 4:
      return product_small_of<4>(p);
    default:
      return product_small_of<0>(p);
  }
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
