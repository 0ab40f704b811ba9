#include "attention/arguments.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "backend/backend.h"
#include "backend/visibility.h"
#include "core/axes.h"
#include "core/check.h"
#include "core/conflicts.h"
#include "core/quantized/rows.h"

namespace saccade {
namespace {

/// The index of each dimension of q, k, v or o; -1: absent, which counts as length 1.
struct AxisNumbers {
  int batch, heads, seqlen, dim;
};

/// `bshd`: true also for a packed batch, whatever the layout option.
AxisNumbers axes_of(const TensorView& view, bool bshd) {
  if (view.rank == 2) return {-1, -1, 0, 1};
  const int outer = view.rank - 3;  // heads and seqlen
  return {outer - 1, bshd ? outer + 1 : outer, bshd ? outer : outer + 1, outer + 2};
}

std::int64_t length(const TensorView& view, int axis) { return axis < 0 ? 1 : view.shape[axis]; }
std::int64_t stride(const TensorView& view, int axis) { return axis < 0 ? 0 : view.strides[axis]; }

template <class Void>
StridedHeads<Void> matrix_of(const TensorView& view, Void* data, const AxisNumbers& axes) {
  return {data, view.dtype, stride(view, axes.batch), stride(view, axes.heads), view.strides[axes.seqlen]};
}

/// A fast path: whether a view of the right type clearly passes check_tensor, if its batch is not packed.
bool is_usual(const TensorView& view, bool has_right_type) {
  return view.rank >= 2 && view.rank <= 4 && has_right_type && has_usual_memory(view);
}

bool is_usual_kv_type(DType dtype) { return is_kv_type(dtype) && dtype != DType::i4; }

/// `packed`: [total, heads, dim], whatever the layout option. `is_kv`: k or v.
[[gnu::cold, gnu::noinline]] void check_tensor(std::string_view function, std::string_view name,
                                               const TensorView& view, bool packed, bool is_kv) {
  if (packed ? view.rank != 3 : view.rank < 2 || view.rank > 4)
    refuse(function, name, packed ? " must be [total, heads, dim] in a packed batch" : " must have rank 2, 3 or 4",
           ", but it has shape ", to_string(view.dims()));
  if (is_kv)
    check_kv_type(function, name, view.dtype);
  else if (!is_floating(view.dtype))
    refuse(function, name, " must be f32, bf16, f16 or f64, but it is ", name_of(view.dtype));
  check_memory(function, name, view);
  if (is_kv) check_int4_strides(function, name, view);
}

void expect_equal(std::string_view function, const char* name, const char* what, std::int64_t got,
                  const char* other, std::int64_t wanted) {
  if (got != wanted) refuse(function, name, " has ", what, ' ', got, " but ", other, " has ", wanted);
}

/// Throws unless the CPU can read these numbers, which checks inspect.
void check_readable(std::string_view function, std::string_view name, const TensorView& view) {
  const Backend& backend = active_backend();
  if (!backend.reads(view.device))
    refuse(function, name, " must be in memory that the CPU may read, but back end ", backend.name(),
           " keeps it on its device");
}

/// Copies an i32 or i64 view of `count` numbers into `out`.
void read_integers(std::string_view function, std::string_view name, const TensorView& view, std::int64_t count,
                   std::vector<std::int64_t>& out) {
  if (view.dtype != DType::i32 && view.dtype != DType::i64)
    refuse(function, name, " must be i32 or i64, but it is ", name_of(view.dtype));
  check_shape(function, name, view, {count});
  if (view.data == nullptr && count > 0) refuse(function, name, " has no data (null pointer)");
  check_readable(function, name, view);
  out.resize(static_cast<std::size_t>(count));
  for (std::int64_t b = 0; b < count; ++b)
    out[static_cast<std::size_t>(b)] = view.dtype == DType::i64 ? view.as<std::int64_t>()[b * view.strides[0]]
                                                                : view.as<std::int32_t>()[b * view.strides[0]];
}

/// Reads the offsets of the documents of a packed batch; returns the longest length.
std::int64_t read_cu_seqlens(std::string_view function, std::string_view name, const TensorView& view,
                             std::string_view tensor, std::int64_t total, std::vector<std::int64_t>& out) {
  if (view.rank != 1 || view.shape[0] < 1)
    refuse(function, name, " must have shape [documents + 1], but it has shape ", to_string(view.dims()));
  read_integers(function, name, view, view.shape[0], out);
  if (out.front() != 0 || out.back() != total)
    refuse(function, name, " must begin with 0 and end with the ", total, " rows of ", tensor,
           ", but it runs from ", out.front(), " to ", out.back());
  std::int64_t longest = 0;
  for (std::size_t i = 1; i < out.size(); ++i) {
    if (out[i] < out[i - 1]) refuse(function, name, " must never fall, but ", out[i], " follows ", out[i - 1]);
    longest = std::max(longest, out[i] - out[i - 1]);
  }
  return longest;
}

void fill_documents(std::string_view function, const AttentionOptions& options,
                    std::vector<std::int64_t>& cu_seqlens_q, std::vector<std::int64_t>& cu_seqlens_k,
                    AttentionParams& p) {
  if (!options.cu_seqlens_q) return;
  p.seqlen_q = read_cu_seqlens(function, "cu_seqlens_q", options.cu_seqlens_q, "q", p.seqlen_q, cu_seqlens_q);
  p.cu_seqlens_q = cu_seqlens_q.data();
  p.batch = static_cast<std::int64_t>(cu_seqlens_q.size()) - 1;
  if (!options.cu_seqlens_k) return;
  p.seqlen_k = read_cu_seqlens(function, "cu_seqlens_k", options.cu_seqlens_k, "k", p.seqlen_k, cu_seqlens_k);
  p.cu_seqlens_k = cu_seqlens_k.data();
  if (cu_seqlens_k.size() != cu_seqlens_q.size())
    refuse(function, "cu_seqlens_k has ", cu_seqlens_k.size() - 1, " documents but cu_seqlens_q has ",
           cu_seqlens_q.size() - 1);
}

void fill_pages(std::string_view function, const AttentionOptions& options, AttentionParams& p) {
  const TensorView& table = options.block_table;
  if (!table) return;
  check_dtype(function, "block_table", table, DType::i32);
  if (table.rank != 2 || table.shape[0] != p.batch)
    refuse(function, "block_table must have shape [", p.batch, ", max_pages], but it has shape ",
           to_string(table.dims()));
  check_memory(function, "block_table", table);
  check_readable(function, "block_table", table);
  p.page_size = p.seqlen_k;
  if (p.page_size < 1) refuse(function, "pages of k must hold at least 1 key");
  if (table.shape[1] > kMaxLength / p.page_size)
    refuse(function, "block_table names ", table.shape[1], " pages of ", p.page_size,
           " keys, more than 2^40 keys");
  p.block_table = table.as<std::int32_t>();
  p.block_table_stride = table.strides[0];
  p.seqlen_k = table.shape[1] * p.page_size;
}

/// Checks that every page that a call may read is in the pool.
void check_pages(std::string_view function, std::int64_t num_pages, const AttentionParams& p) {
  for (std::int64_t b = 0; b < p.batch; ++b) {
    const KeyRange keys = readable_keys(p, b);
    if (keys.begin >= keys.end) continue;
    for (std::int64_t page = keys.begin / p.page_size; page <= (keys.end - 1) / p.page_size; ++page) {
      const std::int32_t entry = p.block_table[b * p.block_table_stride + page];
      if (entry < 0 || entry >= num_pages)
        refuse(function, "block_table[", b, ", ", page, "] must be one of the ", num_pages, " pages, but it is ",
               entry);
    }
  }
}

constexpr std::int64_t kFarthest = std::int64_t{1} << 60;

void fill_origin(std::string_view function, const AttentionOptions& options, AttentionParams& p) {
  const Origin& origin = options.origin;
  for (const auto& [name, value] : {std::pair{"batch", origin.batch},
                                    {"head", origin.head},
                                    {"num_heads", origin.num_heads},
                                    {"row", origin.row},
                                    {"key", origin.key}})
    if (value < 0 || value > kMaxLength) refuse(function, "origin.", name, " must be from 0 to 2^40, got ", value);
  if (origin.num_heads > 0 && origin.num_heads < origin.head + p.num_heads)
    refuse(function, "origin.num_heads is ", origin.num_heads, " but the call has heads up to ",
           origin.head + p.num_heads);
  if (options.dropout_p > 0.0 && origin.key % 64 != 0)
    refuse(function, "origin.key must be a multiple of 64 with dropout, got ", origin.key);
  p.origin = origin;
  if (origin.num_heads == 0) p.origin.num_heads = origin.head + p.num_heads;
}

void fill_positions(std::string_view function, const AttentionOptions& options,
                    std::vector<std::int64_t>& query_offsets, AttentionParams& p) {
  p.causal = options.causal != Causal::none;
  const auto check_offset = [&](const char* name, std::int64_t offset) {
    if (offset < -kFarthest || offset > kFarthest)
      refuse(function, name, " must be within 2^60 of 0, got ", offset);
  };
  const std::int64_t of_origin = options.origin.row - options.origin.key;
  if (options.query_offsets) {
    read_integers(function, "query_offsets", options.query_offsets, p.batch, query_offsets);
    for (std::int64_t& offset : query_offsets) {
      check_offset("query_offsets", offset);
      offset += of_origin;
    }
    p.query_offsets = query_offsets.data();
  } else if (options.query_offset || options.causal != Causal::bottom_right) {
    const std::int64_t offset = options.query_offset.value_or(0);
    check_offset("query_offset", offset);
    p.query_offset = offset + of_origin;
  } else {
    if (options.origin.row != 0 || options.origin.key != 0)
      refuse(function, "an origin at row ", options.origin.row, " and key ", options.origin.key,
             " needs query_offset: bottom_right does not know where the whole ends");
    p.bottom_right = true;
  }
  for (const auto& [name, value] :
       {std::pair{"window_left", options.window_left}, {"window_right", options.window_right}})
    if (value < -1) refuse(function, name, " must be -1 (open) or at least 0, got ", value);
  p.window_left = std::min(options.window_left, kFarthest);
  p.window_right = std::min(options.window_right, kFarthest);
}

/// Reads one number of keys for each batch entry; nullptr if there are none.
const std::int64_t* read_numbers_of_keys(std::string_view function, std::string_view name, const TensorView& view,
                                         const AttentionParams& p, std::vector<std::int64_t>& numbers) {
  if (!view) return nullptr;
  read_integers(function, name, view, p.batch, numbers);
  for (std::int64_t b = 0; b < p.batch; ++b) {
    std::int64_t& keys = numbers[static_cast<std::size_t>(b)];
    const std::int64_t most = p.origin.key + p.keys(b);
    if (keys < 0 || keys > most)
      refuse(function, name, " must lie between 0 and ", p.origin.key > 0 ? "origin.key + " : "",
             "seqlen_k = ", most, ", but one is ", keys);
    keys = std::max<std::int64_t>(keys - p.origin.key, 0);
  }
  return numbers.data();
}

/// Sets a mask's strides over `full`, with 0 where it broadcasts.
void fill_broadcast(std::string_view function, std::string_view name, std::string_view axes,
                    const TensorView& mask, const std::int64_t (&full)[4], MaskParams& out) {
  std::int64_t* const strides[4] = {&out.batch_stride, &out.head_stride, &out.row_stride, &out.column_stride};
  if (mask.rank > 4) refuse(function, name, " must have rank 1 to 4, but it has shape ", to_string(mask.dims()));
  for (int i = 0; i < mask.rank; ++i) {
    const int axis = 4 - mask.rank + i;
    if (mask.shape[i] != full[axis] && mask.shape[i] != 1)
      refuse(function, name, " must broadcast to ", axes, " = ", to_string(full), ", but it has shape ",
             to_string(mask.dims()));
    *strides[axis] = mask.shape[i] == 1 ? 0 : mask.strides[i];
  }
  if (mask.data == nullptr && mask.size() > 0) refuse(function, name, " has no data (null pointer)");
  out.data = mask.data;
}

void fill_mask(std::string_view function, const TensorView& mask, AttentionParams& p) {
  switch (mask.dtype) {
    case DType::boolean:
      p.mask.type = MaskType::boolean;
      break;
    case DType::f32:
      p.mask.type = MaskType::f32;
      break;
    case DType::f64:
      p.mask.type = MaskType::f64;
      break;
    default:
      refuse(function, "mask must be bool, f32 or f64, but it is ", name_of(mask.dtype));
  }
  fill_broadcast(function, "mask", "[batch, heads, seqlen_q, seqlen_k]", mask,
                 {p.batch, p.num_heads, p.seqlen_q, p.seqlen_k}, p.mask);
}

void fill_block_mask(std::string_view function, const AttentionOptions& options, AttentionParams& p) {
  check_dtype(function, "block_mask", options.block_mask, DType::boolean);
  if (options.block_mask_q < 1 || options.block_mask_k < 1)
    refuse(function, "block_mask_q and block_mask_k must be at least 1, but they are ", options.block_mask_q,
           " and ", options.block_mask_k);
  p.block_mask_q = options.block_mask_q;
  p.block_mask_k = options.block_mask_k;
  const auto blocks = [](std::int64_t n, std::int64_t size) { return n / size + (n % size != 0); };  // of any size
  fill_broadcast(function, "block_mask", "[batch, heads, blocks of seqlen_q, blocks of seqlen_k]",
                 options.block_mask,
                 {p.batch, p.num_heads, blocks(p.origin.row + p.seqlen_q, p.block_mask_q),
                  blocks(p.origin.key + p.seqlen_k, p.block_mask_k)},
                 p.block_mask);
  p.block_mask.type = MaskType::boolean;
}

void check_head_numbers(std::string_view function, std::string_view name, const TensorView& view) {
  if (view.dtype != DType::f32 && view.dtype != DType::f64)
    refuse(function, name, " must be f32 or f64, but it is ", name_of(view.dtype));
}

/// A tensor over the keys or values of a call, in bhsd order, with a stride of 0 where it broadcasts.
struct OverKeys {
  StridedHeads<const void> rows{};
  std::int64_t dim_stride = 0;
};

/// `tensor`: k or v, with `dims` in its last axis; `broadcasts`: whether lengths of 1 stand for any length.
OverKeys over_keys(std::string_view function, std::string_view name, const TensorView& view, DType dtype,
                   const TensorView& tensor, std::int64_t dims, bool broadcasts, const AttentionOptions& options) {
  check_dtype(function, name, view, dtype);
  const bool packed = bool(options.cu_seqlens_k);
  const TensorView like = as_bhsd(tensor, packed ? Layout::bshd : options.layout);
  const std::array<std::int64_t, 4> full{like.shape[0], like.shape[1], like.shape[2], dims};
  const int rank = broadcasts ? view.rank : tensor.rank;
  if (view.rank > tensor.rank || view.rank < 1 || view.rank != rank)
    refuse(function, name, " must have ", broadcasts ? "1 to " : "", tensor.rank, " axes, but it has shape ",
           to_string(view.dims()));
  OverKeys result{.rows = {view.data, dtype, 0, 0, 0}};
  std::int64_t* const strides[] = {&result.rows.batch_stride, &result.rows.head_stride, &result.rows.row_stride,
                                   &result.dim_stride};
  for (int i = 0; i < view.rank; ++i) {
    const int axis = 4 - view.rank + i;
    const auto at = static_cast<std::size_t>(axis);
    if (view.shape[i] != full[at] && !(broadcasts && view.shape[i] == 1))
      refuse(function, name, broadcasts ? " must broadcast to " : " must have shape ",
             to_string(std::span(full).last(static_cast<std::size_t>(tensor.rank))), ", but it has shape ",
             to_string(view.dims()));
    *strides[axis] = view.shape[i] == 1 ? 0 : view.strides[i];
  }
  if (view.data == nullptr && view.size() > 0) refuse(function, name, " has no data (null pointer)");
  return result;
}

/// The names of the options of a quantized tensor, for messages.
struct ScaleNames {
  std::string_view tensor, scale, multipliers;
};

/// The scales of k or v; those of channels go to `channels`.
KvScales read_scales(std::string_view function, const ScaleNames& names, const TensorView& tensor,
                     const TensorView& scale, const TensorView& multipliers, const AttentionOptions& options,
                     ChannelScales& channels) {
  if (!is_quantized(tensor.dtype)) {
    if (scale || multipliers)
      refuse(function, scale ? names.scale : names.multipliers, " was given, but ", names.tensor, " is ",
             name_of(tensor.dtype), ", which has no scales");
    return {};
  }
  if (tensor.dtype != DType::f8e4m3 && !scale)
    refuse(function, names.tensor, " is ", name_of(tensor.dtype), ", which needs ", names.scale);
  if ((tensor.dtype == DType::i4) != bool(multipliers))
    refuse(function, names.tensor, " is ", name_of(tensor.dtype), ", which ", multipliers ? "has no " : "needs ",
           names.multipliers);
  const std::int64_t dim = tensor.shape[static_cast<std::size_t>(tensor.rank - 1)];
  KvScales result;
  if (scale) {
    const OverKeys all = over_keys(function, names.scale, scale, DType::f32, tensor, dim, true, options);
    if (all.dim_stride != 0 && all.rows.row_stride != 0)
      refuse(function, names.scale,
             " must have one scale for each token or for each channel, not for both, but it "
             "has shape ",
             to_string(scale.dims()));
    if (all.dim_stride != 0 && options.block_table && all.rows.batch_stride != 0)
      refuse(function, names.scale, " must have the same scales of channels for all pages, but it has shape ",
             to_string(scale.dims()));
    if (all.dim_stride != 0)
      channels = {all.rows, all.dim_stride};
    else
      result.scales = all.rows;
  }
  if (multipliers) {
    check_memory(function, names.multipliers, multipliers);
    result.multipliers = over_keys(function, names.multipliers, multipliers, DType::i8, tensor,
                                   quantized_groups(dim), false, options)
                             .rows;
  }
  return result;
}

void fill_head_numbers(std::string_view function, const AttentionOptions& options, AttentionParams& p) {
  if (const TensorView& slopes = options.alibi_slopes) {
    check_head_numbers(function, "alibi_slopes", slopes);
    if (slopes.rank == 2)
      check_shape(function, "alibi_slopes", slopes, {p.batch, p.num_heads});
    else
      check_shape(function, "alibi_slopes", slopes, {p.num_heads});
    p.alibi_slopes = {slopes.data, slopes.dtype, slopes.rank == 2 ? slopes.strides[0] : 0,
                      slopes.strides[slopes.rank - 1], 0};
  }
  if (options.sinks) {
    check_head_numbers(function, "sinks", options.sinks);
    check_shape(function, "sinks", options.sinks, {p.num_heads});
    check_memory(function, "sinks", options.sinks);
    p.sinks = {options.sinks.data, options.sinks.dtype, 0, options.sinks.strides[0], 0};
  }
}

void fill_numbers(std::string_view function, const AttentionOptions& options, AttentionParams& p) {
  if (!(options.softcap >= 0.0) || !std::isfinite(options.softcap))
    refuse(function, "softcap must be 0 (off) or a positive number, got ", options.softcap);
  if (!(options.dropout_p >= 0.0 && options.dropout_p < 1.0))
    refuse(function, "dropout_p must be at least 0 and below 1, got ", options.dropout_p);
  p.softcap = options.softcap;
  p.score_modifier = options.score_modifier;
  p.score_block_effect = options.score_block_effect;
  p.score_context = options.score_context;
  p.dropout_p = options.dropout_p;
  p.dropout_seed = options.dropout_seed;
  p.dropout_offset = options.dropout_offset;
}

void fill_outputs(std::string_view function, const AttentionOptions& options, const TensorView& q,
                  AttentionParams& p) {
  const auto output = [&](std::string_view name, const MutableTensorView& view, bool per_key) {
    check_per_head(function, name, view, q, per_key, p);
    return matrix_per_head(view, view.mutable_data(), q);
  };
  if (options.lse) p.lse = output("lse", options.lse, false);
  if (options.weights) p.weights = output("weights", options.weights, true);
  p.weights_after_dropout = options.weights_after_dropout;
  if (options.scores) p.scores = output("scores", options.scores, true);
  p.score_stage = options.score_stage;
}

}  // namespace

AttentionOperands check_operands(const TensorView& q, const TensorView& k, const TensorView& v,
                                 const TensorView& o, void* o_data, const AttentionOptions& options,
                                 std::string_view function) {
  const bool packed_q = bool(options.cu_seqlens_q), packed_k = bool(options.cu_seqlens_k);
  const bool paged = bool(options.block_table);
  if (packed_q || packed_k || paged) check_combination(function, options);  // these decide the expected shapes
  if (o.rank != q.rank || (!paged && (k.rank != q.rank || v.rank != q.rank)))
    refuse(function, "q, k, v and o must have the same rank, but they have shapes ", to_string(q.dims()), ", ",
           to_string(k.dims()), ", ", to_string(v.dims()), " and ", to_string(o.dims()));
  if (paged && (k.rank != 4 || v.rank != 4))
    refuse(function, "k and v must be pages of rank 4 with a block_table, but they have shapes ",
           to_string(k.dims()), " and ", to_string(v.dims()));
  if (packed_q || packed_k || !is_usual(q, is_floating(q.dtype)) || !is_usual(k, is_usual_kv_type(k.dtype)) ||
      !is_usual(v, is_usual_kv_type(v.dtype)) || !is_usual(o, is_floating(o.dtype))) {
    check_tensor(function, "q", q, packed_q, false);
    check_tensor(function, "k", k, packed_k, true);
    check_tensor(function, "v", v, packed_k, true);
    check_tensor(function, "o", o, packed_q, false);
  }
  const bool bshd = options.layout == Layout::bshd;
  const AxisNumbers q_axes = axes_of(q, bshd || packed_q), k_axes = axes_of(k, bshd || packed_k);
  AttentionOperands p;
  p.batch = length(q, q_axes.batch);
  p.num_heads = length(q, q_axes.heads);
  p.num_kv_heads = length(k, k_axes.heads);
  p.seqlen_q = q.shape[q_axes.seqlen];
  p.seqlen_k = k.shape[k_axes.seqlen];
  p.head_dim = q.shape[q_axes.dim];
  p.head_dim_v = v.shape[k_axes.dim];
  const std::int64_t kv_batch = length(k, k_axes.batch);
  expect_equal(function, "k", "head_dim", k.shape[k_axes.dim], "q", p.head_dim);
  expect_equal(function, "v", paged ? "page size" : "seqlen", v.shape[k_axes.seqlen], "k", p.seqlen_k);
  expect_equal(function, "v", "heads", length(v, k_axes.heads), "k", p.num_kv_heads);
  if (!paged) expect_equal(function, "k", "batch", kv_batch, "q", p.batch);
  expect_equal(function, "v", paged ? "pages" : "batch", length(v, k_axes.batch), "k", kv_batch);
  expect_equal(function, "o", "batch", length(o, q_axes.batch), "q", p.batch);
  expect_equal(function, "o", "heads", length(o, q_axes.heads), "q", p.num_heads);
  expect_equal(function, "o", "seqlen", o.shape[q_axes.seqlen], "q", p.seqlen_q);
  expect_equal(function, "o", "head_dim_v", o.shape[q_axes.dim], "v", p.head_dim_v);
  if (p.head_dim < 1)
    refuse(function, "q must have a head_dim of at least 1, but it has shape ", to_string(q.dims()));
  if (p.head_dim_v < 1)
    refuse(function, "v must have a head_dim_v of at least 1, but it has shape ", to_string(v.dims()));
  p.scale = options.scale ? *options.scale : 1.0 / std::sqrt(static_cast<double>(p.head_dim));
  if (!std::isfinite(p.scale)) refuse(function, "scale must be a finite number, got ", p.scale);
  if (p.num_heads != p.num_kv_heads && p.num_heads > 0 &&
      (p.num_kv_heads == 0 || p.num_heads % p.num_kv_heads != 0))
    refuse(function, "q has ", p.num_heads, " heads, which is no multiple of the ", p.num_kv_heads, " heads of k");
  if (p.seqlen_q > kMaxLength || p.seqlen_k > kMaxLength || p.head_dim > kMaxLength || p.head_dim_v > kMaxLength)
    refuse(function, "no dimension of q, k and v may be longer than 2^40");
  const bool doubles = q.dtype == DType::f64;
  if ((k.dtype == DType::f64) != doubles || (v.dtype == DType::f64) != doubles ||
      (o.dtype == DType::f64) != doubles)
    refuse(function, "q, k, v and o must all be f64 or none, but they are ", name_of(q.dtype), ", ",
           name_of(k.dtype), ", ", name_of(v.dtype), " and ", name_of(o.dtype));
  if (options.num_threads < 0) refuse(function, "num_threads must be 0 or more, got ", options.num_threads);
  p.q = matrix_of(q, q.data, q_axes);
  p.k = matrix_of(k, k.data, k_axes);
  p.v = matrix_of(v, v.data, k_axes);
  p.o = matrix_of(o, o_data, q_axes);
  return p;
}

bool has_operands_only(const AttentionOptions& options) {
  // Lists every option, so that the compiler reports a new option that is missing here.
  const auto& [scale, softcap, causal, query_offset, query_offsets, window_left, window_right, mask, block_mask,
               block_mask_q, block_mask_k, score_modifier, score_modifier_backward, score_block_effect,
               score_context, kv_lengths, kv_starts, cu_seqlens_q, cu_seqlens_k, block_table, k_scale, v_scale,
               k_multipliers, v_multipliers, k_rotated, v_rotated, alibi_slopes, sinks, dropout_p, dropout_seed,
               dropout_offset, lse, weights, weights_after_dropout, scores, score_stage, origin, layout, backend,
               num_threads] = options;
  // Read by check_operands() or attention(), or without effect unless another option is set.
  static_cast<void>(std::tie(scale, layout, backend, num_threads, origin, block_mask_q, block_mask_k,
                             score_modifier_backward, score_context, dropout_seed, dropout_offset,
                             weights_after_dropout, score_stage));
  return causal == Causal::none && window_left == -1 && window_right == -1 && softcap == 0.0 && dropout_p == 0.0 &&
         !score_modifier && !score_block_effect && !query_offset && !k_rotated && !v_rotated &&
         (k_scale.rank | v_scale.rank | k_multipliers.rank | v_multipliers.rank | mask.rank | block_mask.rank |
          query_offsets.rank | kv_lengths.rank | kv_starts.rank | cu_seqlens_q.rank | cu_seqlens_k.rank |
          block_table.rank | alibi_slopes.rank | sinks.rank | lse.rank | weights.rank | scores.rank) == 0;
}

void check_per_head(std::string_view function, std::string_view name, const TensorView& view, const TensorView& q,
                    bool per_key, const AttentionParams& p) {
  check_dtype(function, name, view, q.dtype == DType::f64 ? DType::f64 : DType::f32);
  const std::int64_t rows = p.cu_seqlens_q ? q.shape[0] : p.seqlen_q;
  const std::int64_t full[4] = {p.batch, p.num_heads, rows, p.seqlen_k};
  const std::int64_t* const wanted = full + (4 - q.rank);
  const int wanted_rank = q.rank - (per_key ? 0 : 1);
  if (view.rank != wanted_rank || !std::equal(wanted, wanted + wanted_rank, view.shape.begin()))
    refuse(function, name, " must have shape ",
           to_string(std::span(wanted, static_cast<std::size_t>(wanted_rank))), ", but it has shape ",
           to_string(view.dims()));
  if (per_key) check_memory(function, name, view);
  if (view.data == nullptr && view.size() > 0) refuse(function, name, " has no data (null pointer)");
}

AttentionArguments::AttentionArguments(const AttentionOperands& operands, const TensorView& q, const TensorView& k,
                                       const TensorView& v, const AttentionOptions& options,
                                       std::string_view function, Outputs outputs)
    : params{operands, ScoreChanges{}}, k_rotated(options.k_rotated), v_rotated(options.v_rotated && v) {
  AttentionParams& p = params;
  p.given_q = operands.q.dtype;
  check_combination(function, options);
  if ((k_rotated || v_rotated) && q.dtype == DType::f64)
    refuse(function, k_rotated ? "k" : "v", "_rotated was given, but q is f64: transforms are computed in f32");
  fill_numbers(function, options, p);
  fill_documents(function, options, cu_seqlens_q_, cu_seqlens_k_, p);
  fill_pages(function, options, p);
  fill_origin(function, options, p);
  fill_positions(function, options, query_offsets_, p);
  p.kv_lengths = read_numbers_of_keys(function, "kv_lengths", options.kv_lengths, p, kv_lengths_);
  p.kv_starts = read_numbers_of_keys(function, "kv_starts", options.kv_starts, p, kv_starts_);
  if (options.mask) fill_mask(function, options.mask, p);
  if (options.block_mask) fill_block_mask(function, options, p);
  fill_head_numbers(function, options, p);
  p.k_scales = read_scales(function, {"k", "k_scale", "k_multipliers"}, k, options.k_scale, options.k_multipliers,
                           options, k_channels);
  p.v_scales = p.k_scales;  // k stands in for v
  if (v)
    p.v_scales = read_scales(function, {"v", "v_scale", "v_multipliers"}, v, options.v_scale,
                             options.v_multipliers, options, v_channels);
  if (outputs == Outputs::written) fill_outputs(function, options, q, p);
  if (options.block_table) check_pages(function, k.shape[0], p);
}

Tensor output_like(std::string_view function, const TensorView& q, const TensorView& v) {
  if (q.rank < 2 || q.rank > 4 || v.rank < 2 || v.rank > 4)
    refuse(function, "q, k and v must have rank 2, 3 or 4, but q and v have shapes ", to_string(q.dims()), " and ",
           to_string(v.dims()));
  if (!is_floating(q.dtype)) refuse(function, "q must be f32, bf16, f16 or f64, but it is ", name_of(q.dtype));
  Shape shape(q.dims().begin(), q.dims().end());
  shape.back() = v.shape[v.rank - 1U];
  return Tensor::uninitialized(q.dtype, shape);
}

}  // namespace saccade
