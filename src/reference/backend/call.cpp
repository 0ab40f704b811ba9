#include "reference/backend/call.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "core/quantized/rows.h"

namespace saccade::reference {
namespace {

template <class Void>
TensorView view_of(const StridedHeads<Void>& heads, std::int64_t batch, std::int64_t count, std::int64_t rows,
                   std::int64_t dim) {
  return TensorView(heads.data, heads.dtype, std::array{batch, count, rows, dim},
                    std::array<std::int64_t, 4>{heads.batch_stride, heads.head_stride, heads.row_stride, 1});
}

TensorView view_of(const PerHeadScalars& scalars, std::int64_t batch, std::int64_t heads) {
  if (!scalars.data) return {};
  if (batch == 0)
    return TensorView(scalars.data, scalars.dtype, std::array{heads}, std::array{scalars.head_stride});
  return TensorView(scalars.data, scalars.dtype, std::array{batch, heads},
                    std::array{scalars.batch_stride, scalars.head_stride});
}

TensorView view_of(const MaskParams& mask, const std::array<std::int64_t, 4>& shape) {
  if (mask.type == MaskType::none) return {};
  const DType dtype = mask.type == MaskType::boolean ? DType::boolean
                      : mask.type == MaskType::f32   ? DType::f32
                                                     : DType::f64;
  return TensorView(mask.data, dtype, shape,
                    std::array{mask.batch_stride, mask.head_stride, mask.row_stride, mask.column_stride});
}

Sequence sequence_of(const AttentionParams& p, std::int64_t b) {
  Sequence s;
  s.index_in_q = p.cu_seqlens_q ? 0 : b;
  s.index_in_k = p.cu_seqlens_k ? 0 : b;
  s.first_row = p.first_row(b);
  s.first_key = p.first_key(b);
  s.seqlen_q = p.rows(b);
  s.seqlen_k = p.keys(b);
  s.kv_start = p.kv_start(b);
  s.kv_length = p.kv_length(b);
  s.first_position = position_of_first_row(p, b);
  s.end_key = s.seqlen_k;
  if (p.block_table) {  // pages need not hold any other key
    const KeyRange readable = readable_keys(p, b);
    s.end_key = std::max<std::int64_t>(readable.end, 0);
    s.begin_key = std::clamp<std::int64_t>(readable.begin, 0, s.end_key);
  }
  return s;
}

/// The pages of the keys that are read, 0 elsewhere.
void read_pages(const AttentionParams& p, Arguments& a) {
  const std::int64_t max_pages = p.seqlen_k / p.page_size;
  a.block_table.assign(static_cast<std::size_t>(p.batch * max_pages), 0);
  std::int64_t pages = 1;
  for (std::int64_t b = 0; b < p.batch; ++b) {
    const Sequence& s = a.sequences[static_cast<std::size_t>(b)];
    for (std::int64_t j = s.begin_key; j < s.end_key; j = (j / p.page_size + 1) * p.page_size) {
      const std::int64_t page = p.block_table[b * p.block_table_stride + j / p.page_size];
      a.block_table[static_cast<std::size_t>(b * max_pages + j / p.page_size)] = page;
      pages = std::max(pages, page + 1);
    }
  }
  a.k = view_of(p.k, pages, p.num_kv_heads, p.page_size, p.head_dim);
  a.v = view_of(p.v, pages, p.num_kv_heads, p.page_size, p.head_dim_v);
}

std::shared_ptr<const Tensor> dequantized_by(const TensorView& view, const KvScales& of) {
  const auto plane = [&](const StridedHeads<const void>& heads, std::int64_t columns) {
    return heads.data ? view_of(heads, view.shape[0], view.shape[1], view.shape[2], columns) : TensorView();
  };
  if (view.dtype == DType::i4 && !of.multipliers.data) return nullptr;  // k in place of v, which inspect() lacks
  static constexpr float kOne = 1;  // the scales of channels are not the call's
  const TensorView one(&kOne, DType::f32, std::array<std::int64_t, 1>{1});
  return dequantized(view, of.scales.data ? plane(of.scales, 1) : one,
                     plane(of.multipliers, quantized_groups(view.shape[3])));
}

Arguments arguments_of(const AttentionParams& p) {
  Arguments a{};
  a.batch = p.batch;
  a.num_heads = p.num_heads;
  a.num_kv_heads = p.num_kv_heads;
  a.seqlen_q = p.seqlen_q;
  a.seqlen_k = p.seqlen_k;
  a.head_dim = p.head_dim;
  a.head_dim_v = p.head_dim_v;
  a.scale = p.scale;
  if (p.q.dtype != DType::f64) a.tiles = DType::f32;  // what ScoreTile promises to the caller's functions
  a.is_packed = p.cu_seqlens_q;
  a.is_paged = p.block_table;
  for (std::int64_t b = 0; b < p.batch; ++b) a.sequences.push_back(sequence_of(p, b));
  const bool packed_q = p.cu_seqlens_q, packed_k = p.cu_seqlens_k;
  a.q = view_of(p.q, packed_q ? 1 : p.batch, p.num_heads, packed_q ? p.cu_seqlens_q[p.batch] : p.seqlen_q,
                p.head_dim);
  const std::int64_t entries = packed_k ? 1 : p.batch, keys = packed_k ? p.cu_seqlens_k[p.batch] : p.seqlen_k;
  a.k = view_of(p.k, entries, p.num_kv_heads, keys, p.head_dim);
  a.v = view_of(p.v, entries, p.num_kv_heads, keys, p.head_dim_v);
  if (a.is_paged) read_pages(p, a);
  a.numbers = {dequantized_by(a.k, p.k_scales), dequantized_by(a.v, p.v_scales)};
  if (a.numbers[0]) a.k = *a.numbers[0];
  if (a.numbers[1]) a.v = *a.numbers[1];
  a.mask = view_of(p.mask, {p.batch, p.num_heads, p.seqlen_q, p.seqlen_k});
  const auto blocks = [](std::int64_t n, std::int64_t size) { return n / size + (n % size != 0); };
  a.block_mask = view_of(p.block_mask, {p.batch, p.num_heads, blocks(p.origin.row + p.seqlen_q, p.block_mask_q),
                                        blocks(p.origin.key + p.seqlen_k, p.block_mask_k)});
  a.alibi_slopes = view_of(p.alibi_slopes, p.batch, p.num_heads);
  a.sinks = view_of(p.sinks, 0, p.num_heads);
  return a;
}

AttentionOptions options_of(const AttentionParams& p) {
  AttentionOptions options;
  // Lists every member, so that the compiler reports a new member that is missing here.
  const auto& [softcap, alibi_slopes, mask] = static_cast<const ScoreChanges&>(p);
  static_cast<void>(std::tie(alibi_slopes, mask));  // arguments_of() has read them
  options.softcap = softcap;
  options.causal = p.causal ? Causal::top_left : Causal::none;  // sequences have the positions
  options.window_left = p.window_left;
  options.window_right = p.window_right;
  options.block_mask_q = p.block_mask_q;
  options.block_mask_k = p.block_mask_k;
  options.score_modifier = p.score_modifier;
  options.score_context = p.score_context;
  options.dropout_p = p.dropout_p;
  options.dropout_seed = p.dropout_seed;
  options.dropout_offset = p.dropout_offset;
  options.weights_after_dropout = p.weights_after_dropout;
  options.score_stage = p.score_stage;
  options.origin = p.origin;
  return options;
}

}  // namespace

Call::Call(const AttentionParams& p) : arguments(arguments_of(p)), options(options_of(p)) {}

void store(double x, const StridedHeads<void>& to, std::int64_t batch, std::int64_t head, std::int64_t row,
           std::int64_t i) {
  x += 0.0;  // -0 + 0 is 0
  with_element(to.dtype, [&]<class T>(T) {
    T& number = to.row<T>(batch, head, row)[i];
    if constexpr (std::is_same_v<T, double>)
      number = x;
    else
      number = T(static_cast<float>(x));
  });
}

}  // namespace saccade::reference
