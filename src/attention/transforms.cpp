#include "attention/transforms.h"

#include <algorithm>
#include <array>

#include "core/parallel.h"
#include "core/quantized/rows.h"

namespace saccade {
namespace {

/// Calls f(batch, head, row) for each row of q, on several threads.
template <class F>
void for_rows(const AttentionParams& p, std::int64_t columns, const F& f) {
  const std::int64_t heads = p.batch * p.num_heads;
  for_blocks(heads * p.seqlen_q, columns, [&](std::int64_t row, std::int64_t end) {
    for (; row < end; ++row) {
      const std::int64_t batch = row / p.seqlen_q / p.num_heads, i = row % p.seqlen_q;
      if (i < p.rows(batch)) f(batch, row / p.seqlen_q % p.num_heads, i);
    }
  });
}

/// Multiplies a row by the scales of its channels.
void multiply_channels(const ChannelScales& scales, std::int64_t batch, std::int64_t kv_head, float* row,
                       std::int64_t dim) {
  if (!scales.rows.data) return;
  const float* const factors = scales.rows.row<float>(batch, kv_head, 0);
  for (std::int64_t d = 0; d < dim; ++d) row[d] *= factors[d * scales.dim_stride];
}

TensorView row_view(const void* data, DType dtype, std::int64_t dim) {
  return TensorView(data, dtype, std::array{dim});
}

/// A tensor for the rows of a call, and the kernels' view of it. All documents of a packed batch are one entry.
template <class Void>
StridedHeads<Void> heads_of(Tensor& rows, std::int64_t columns) {
  const std::int64_t head = rows.shape(2) * columns, entry = rows.shape(0) == 1 ? 0 : rows.shape(1) * head;
  return {rows.data(), rows.dtype(), entry, head, columns};
}
Tensor rows_for(const AttentionParams& p, DType dtype, std::int64_t columns) {
  const std::int64_t entries = p.cu_seqlens_q ? 1 : p.batch;
  const std::int64_t rows = p.cu_seqlens_q ? p.cu_seqlens_q[p.batch] : p.seqlen_q;
  return Tensor::uninitialized(dtype, {entries, p.num_heads, rows, columns});
}

}  // namespace

TransformedCall::TransformedCall(const AttentionArguments& arguments, bool reads_q, Bf16Queries bf16)
    : params(arguments.params), arguments_(arguments) {
  const AttentionParams& given = arguments.params;
  const std::int64_t group = given.num_kv_heads > 0 ? given.num_heads / given.num_kv_heads : 1;
  const std::int64_t dim = given.head_dim;
  const bool copies_q = changes_q(arguments, bf16);
  if (copies_q) params.q.dtype = DType::f32;  // also where nothing reads q: kernels and score units depend on it
  if (copies_q && reads_q) {
    q_ = rows_for(given, DType::f32, dim);
    params.q = heads_of<const void>(q_, dim);
    for_rows(given, dim, [&](std::int64_t batch, std::int64_t head, std::int64_t i) {
      const std::int64_t at = given.first_row(batch) + i;
      auto* const row = static_cast<float*>(const_cast<void*>(params.q.address(batch, head, at)));
      copy(row_view(given.q.address(batch, head, at), given.q.dtype, dim),
           MutableTensorView(row, DType::f32, std::array{dim}));
      if (arguments.k_rotated) quantize_kernels().hadamard(row, dim);
      multiply_channels(arguments.k_channels, batch, head / group, row, dim);
    });
  }
  if (!arguments.v_rotated && !arguments.v_channels.rows.data) return;
  params.o.dtype = DType::f32;  // also where nothing writes o: the choice of kernels depends on it
  if (!given.o.data) return;
  o_ = rows_for(given, DType::f32, given.head_dim_v);
  params.o = heads_of<void>(o_, given.head_dim_v);
}

void TransformedCall::write_o() const {
  if (!o_.data()) return;
  const AttentionParams& given = arguments_.params;
  const std::int64_t dim = given.head_dim_v, group = given.num_heads / given.num_kv_heads;
  for_rows(given, dim, [&](std::int64_t batch, std::int64_t head, std::int64_t i) {
    const std::int64_t at = given.first_row(batch) + i;
    auto* const row = static_cast<float*>(params.o.address(batch, head, at));
    // A row that sees no key stays 0, whatever the scales.
    if (std::any_of(row, row + dim, [](float x) { return x != 0; }))
      multiply_channels(arguments_.v_channels, batch, head / group, row, dim);
    if (arguments_.v_rotated) quantize_kernels().hadamard(row, dim);
    copy(row_view(row, DType::f32, dim),
         MutableTensorView(given.o.address(batch, head, at), given.o.dtype, std::array{dim}));
  });
}

}  // namespace saccade
