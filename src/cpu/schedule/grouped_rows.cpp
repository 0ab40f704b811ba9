#include "cpu/schedule/grouped_rows.h"

#include <cstring>

#include "cpu/policy/threads.h"

namespace saccade::cpu {
namespace {

/// Heads of more rows fill blocks well enough, and with fewer keys than this for each row copies cost what they
/// save: 32 heads over 8 of 64 rows take 1.1 to 1.6 times as long (512 and 64 keys, Granite Rapids).
constexpr std::int64_t kMaxRows = 32, kKeysOfARow = 16;
/// Larger masks are not copied: memory does not grow with seqlen_q times seqlen_k.
constexpr std::size_t kMaxMask = 1 << 20;

template <class Void>
std::size_t row_bytes(const StridedHeads<Void>& matrix, std::int64_t width) {
  return matrix.data ? static_cast<std::size_t>(width) * size_of(matrix.dtype) : 0;
}

/// The bytes of all rows of a matrix, a multiple of 64.
template <class Void>
std::size_t bytes(const AttentionParams& p, const StridedHeads<Void>& matrix, std::int64_t width) {
  const auto rows = static_cast<std::size_t>(p.batch * p.num_heads * p.seqlen_q);
  return (rows * row_bytes(matrix, width) + 63) / 64 * 64;
}

template <class Void>
bool is_one_matrix(const AttentionParams& p, const StridedHeads<Void>& matrix) {
  return !matrix.data || matrix.head_stride == p.seqlen_q * matrix.row_stride;
}

/// Makes the rows of the heads of a group, `row_stride` apart, those of one head.
template <class Void>
void for_group(const AttentionParams& p, StridedHeads<Void>& matrix) {
  matrix.head_stride = p.num_heads / p.num_kv_heads * p.seqlen_q * matrix.row_stride;
}

/// A copy's place in memory: its rows are adjacent.
template <class Void>
StridedHeads<Void> dense(const AttentionParams& p, DType dtype, std::int64_t width, Void* data) {
  return {data, dtype, p.num_heads * p.seqlen_q * width, p.seqlen_q * width, width};
}

template <class From>
void copy_rows(const AttentionParams& p, const StridedHeads<From>& from, const StridedHeads<void>& to,
               std::int64_t width) {
  const std::int64_t heads = p.batch * p.num_heads;
  parallel_for(threads_for(heads, attention_threads(p)), heads, 0, [&](std::int64_t head, std::byte*) {
    const std::int64_t b = head / p.num_heads, h = head % p.num_heads;
    for (std::int64_t i = 0; i < p.seqlen_q; ++i)
      std::memcpy(to.address(b, h, i), from.address(b, h, i), row_bytes(from, width));
  });
}

// ---- Masks

/// Whether a mask tells the rows of a group apart.
bool needs_copy(const MaskParams& mask) {
  return mask.type != MaskType::none && (mask.head_stride != 0 || mask.row_stride != 0);
}

/// The sizes of a mask's copy: [batch, kv heads, rows of a group, keys], 1 where all are the same.
struct MaskShape {
  std::int64_t batch, heads, rows, keys;
  std::size_t element;

  MaskShape(const AttentionParams& p)
      : batch(p.mask.batch_stride != 0 ? p.batch : 1),
        heads(p.mask.head_stride != 0 ? p.num_kv_heads : 1),
        rows(p.num_heads / p.num_kv_heads * p.seqlen_q),
        keys(p.mask.column_stride != 0 ? p.seqlen_k : 1),
        element(p.mask.type == MaskType::boolean ? 1
                : p.mask.type == MaskType::f32   ? 4
                                                 : 8) {}
  std::size_t bytes() const { return static_cast<std::size_t>(batch * heads * rows * keys) * element; }
};

void copy_mask_row(const MaskParams& mask, std::int64_t from, const MaskShape& shape, std::byte* to) {
  const auto* const row =
      static_cast<const std::byte*>(mask.data) + from * static_cast<std::int64_t>(shape.element);
  if (shape.keys == 1 || mask.column_stride == 1)
    std::memcpy(to, row, static_cast<std::size_t>(shape.keys) * shape.element);
  else
    for (std::int64_t j = 0; j < shape.keys; ++j, to += shape.element)
      std::memcpy(to, row + j * mask.column_stride * static_cast<std::int64_t>(shape.element), shape.element);
}

/// The mask for the rows of groups, copied to `to`.
MaskParams copy_mask(const AttentionParams& p, std::byte* to) {
  const MaskShape shape(p);
  MaskParams copy{p.mask.type, to, 0, 0, shape.keys, p.mask.column_stride != 0 ? 1 : 0};
  if (shape.heads > 1) copy.head_stride = shape.rows * shape.keys;
  if (shape.batch > 1) copy.batch_stride = shape.heads * shape.rows * shape.keys;
  const std::int64_t group = p.num_heads / p.num_kv_heads;
  for (std::int64_t b = 0; b < shape.batch; ++b)
    for (std::int64_t h = 0; h < shape.heads; ++h)
      for (std::int64_t i = 0; i < shape.rows; ++i, to += static_cast<std::size_t>(shape.keys) * shape.element)
        copy_mask_row(p.mask, p.mask.row(b, h * group + i / p.seqlen_q, i % p.seqlen_q), shape, to);
  return copy;
}

}  // namespace

bool GroupedRows::suit(const AttentionParams& p) {
  if (!p.has_rows() || p.num_heads <= p.num_kv_heads || p.seqlen_q > kMaxRows ||
      p.seqlen_k < kKeysOfARow * p.seqlen_q)
    return false;
  const bool by_head = p.alibi_slopes.data || p.block_mask.data || p.score_modifier || p.has_sink() ||
                       p.dropout_p > 0.0 || p.saves_scores();
  const bool has_heads_for_threads = p.batch * p.num_kv_heads >= attention_threads(p);
  return !by_head && !p.cu_seqlens_q && has_heads_for_threads &&
         (!needs_copy(p.mask) || MaskShape(p).bytes() <= kMaxMask);
}

GroupedRows::GroupedRows(const AttentionParams& p) : p_(p), grouped_(p) {
  if (!is_one_matrix(p, p.q) || !is_one_matrix(p, p.o) || !is_one_matrix(p, p.lse)) {
    rows_.emplace(bytes(p, p.q, p.head_dim) + bytes(p, p.o, p.head_dim_v) + bytes(p, p.lse, 1));
    std::byte* const q = rows_->data();
    std::byte* const o = q + bytes(p, p.q, p.head_dim);
    std::byte* const lse = o + bytes(p, p.o, p.head_dim_v);
    copy_rows(p, p.q, dense<void>(p, p.q.dtype, p.head_dim, q), p.head_dim);
    grouped_.q = dense<const void>(p, p.q.dtype, p.head_dim, q);
    grouped_.o = dense<void>(p, p.o.dtype, p.head_dim_v, o);
    if (p.lse.data) grouped_.lse = dense<void>(p, p.lse.dtype, 1, lse);
  }
  if (needs_copy(p.mask)) {
    mask_.emplace(MaskShape(p).bytes());
    grouped_.mask = copy_mask(p, mask_->data());
  }
  for_group(p, grouped_.q), for_group(p, grouped_.o), for_group(p, grouped_.lse);
  grouped_.num_heads = p.num_kv_heads;
  grouped_.seqlen_q = p.num_heads / p.num_kv_heads * p.seqlen_q;
  grouped_.rows_of_head = p.seqlen_q;
}

void GroupedRows::write() const {
  if (!rows_) return;
  const std::int64_t width = p_.head_dim_v;
  copy_rows(p_, dense<void>(p_, p_.o.dtype, width, grouped_.o.data), p_.o, width);
  if (p_.lse.data) copy_rows(p_, dense<void>(p_, p_.lse.dtype, 1, grouped_.lse.data), p_.lse, 1);
}

}  // namespace saccade::cpu
