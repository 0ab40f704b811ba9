#include "attention_arguments.h"

#include <algorithm>
#include <cmath>

#include "check.h"

namespace saccade {
namespace {

constexpr std::string_view kName = "attention";

/// One of q, k, v and o in bhld order, missing axes of length 1.
template <class T>
struct Axes {
  std::int64_t batch, heads, seqlen, dim;
  HeadedMatrix<T> matrix;
};

[[gnu::cold, gnu::noinline]] void check_tensor(std::string_view name, const TensorView& view) {
  if (view.rank < 2 || view.rank > 4)
    refuse(kName, name, " must have rank 2, 3 or 4, but it has shape ", to_string(view.dims()));
  check_dtype(kName, name, view, DType::f32);
  check_memory(kName, name, view);
}

template <class T>
Axes<T> axes_of(std::string_view name, const TensorView& view, T* data, Layout layout) {
  const int dim = view.rank - 1;
  if (view.rank < 2 || view.rank > 4 || !is_usual_f32(view)) check_tensor(name, view);
  if (view.rank == 2) return {1, 1, view.shape[0], view.shape[1], {data, 0, 0, view.strides[0]}};
  const bool blhd = layout == Layout::blhd;
  const int heads = blhd ? dim - 1 : dim - 2, seqlen = blhd ? dim - 2 : dim - 1;
  const bool batched = view.rank == 4;
  return {batched ? view.shape[0] : 1,
          view.shape[heads],
          view.shape[seqlen],
          view.shape[dim],
          {data, batched ? view.strides[0] : 0, view.strides[heads], view.strides[seqlen]}};
}

void expect_equal(std::string_view name, std::string_view what, std::int64_t got, std::string_view other,
                  std::int64_t wanted) {
  if (got != wanted) refuse(kName, name, " has ", what, ' ', got, " but ", other, " has ", wanted);
}

void fill_shapes(const TensorView& q, const TensorView& k, const TensorView& v, const MutableTensorView& o,
                 const AttentionOptions& options, AttentionParams& p) {
  if (k.rank != q.rank || v.rank != q.rank || o.rank != q.rank)
    refuse(kName, "q, k, v and o must have the same rank, but they have shapes ", to_string(q.dims()), ", ",
           to_string(k.dims()), ", ", to_string(v.dims()), " and ", to_string(o.dims()));
  const auto qa = axes_of("q", q, static_cast<const float*>(q.data), options.layout);
  const auto ka = axes_of("k", k, static_cast<const float*>(k.data), options.layout);
  const auto va = axes_of("v", v, static_cast<const float*>(v.data), options.layout);
  const auto oa = axes_of("o", o, static_cast<float*>(o.mutable_data()), options.layout);
  expect_equal("k", "head_dim", ka.dim, "q", qa.dim);
  expect_equal("v", "seqlen", va.seqlen, "k", ka.seqlen);
  expect_equal("v", "heads", va.heads, "k", ka.heads);
  expect_equal("k", "batch", ka.batch, "q", qa.batch);
  expect_equal("v", "batch", va.batch, "q", qa.batch);
  expect_equal("o", "batch", oa.batch, "q", qa.batch);
  expect_equal("o", "heads", oa.heads, "q", qa.heads);
  expect_equal("o", "seqlen", oa.seqlen, "q", qa.seqlen);
  expect_equal("o", "head_dim_v", oa.dim, "v", va.dim);
  if (qa.dim < 1) refuse(kName, "q must have a head_dim of at least 1, but it has shape ", to_string(q.dims()));
  if (va.dim < 1) refuse(kName, "v must have a head_dim_v of at least 1, but it has shape ", to_string(v.dims()));
  if (qa.heads != ka.heads && qa.heads > 0 && (ka.heads == 0 || qa.heads % ka.heads != 0))
    refuse(kName, "q has ", qa.heads, " heads, which is no multiple of the ", ka.heads, " heads of k");
  constexpr std::int64_t kLongest = std::int64_t{1} << 40;
  if (qa.seqlen > kLongest || ka.seqlen > kLongest || qa.dim > kLongest || va.dim > kLongest)
    refuse(kName, "no dimension may be longer than 2^40");
  p.batch = qa.batch;
  p.num_heads = qa.heads;
  p.num_kv_heads = ka.heads;
  p.seqlen_q = qa.seqlen;
  p.seqlen_k = ka.seqlen;
  p.head_dim = qa.dim;
  p.head_dim_v = va.dim;
  p.q = qa.matrix;
  p.k = ka.matrix;
  p.v = va.matrix;
  p.o = oa.matrix;
}

/// Copies an i32 or i64 [batch] view into `out`.
void read_integers(std::string_view name, const TensorView& view, std::int64_t batch,
                   std::vector<std::int64_t>& out) {
  if (view.dtype != DType::i32 && view.dtype != DType::i64)
    refuse(kName, name, " must be i32 or i64, but it is ", name_of(view.dtype));
  check_shape(kName, name, view, {batch});
  if (view.data == nullptr && batch > 0) refuse(kName, name, " has no data (null pointer)");
  out.resize(static_cast<std::size_t>(batch));
  for (std::int64_t b = 0; b < batch; ++b)
    out[static_cast<std::size_t>(b)] = view.dtype == DType::i64 ? view.as<std::int64_t>()[b * view.strides[0]]
                                                                : view.as<std::int32_t>()[b * view.strides[0]];
}

constexpr std::int64_t kFarthest = std::int64_t{1} << 60;

void fill_positions(const AttentionOptions& options, std::vector<std::int64_t>& query_offsets,
                    std::vector<std::int64_t>& kv_lengths, AttentionParams& p) {
  p.causal = options.causal != Causal::none;
  if (options.query_offset && options.query_offsets)
    refuse(kName, "query_offset and query_offsets were both given; only one may be");
  const auto check_offset = [](std::int64_t offset) {
    if (offset < -kFarthest || offset > kFarthest)
      refuse(kName, "query_offset must be within 2^60 of 0, got ", offset);
  };
  if (options.query_offset) {
    check_offset(*options.query_offset);
    p.query_offset = *options.query_offset;
  } else if (options.query_offsets) {
    read_integers("query_offsets", options.query_offsets, p.batch, query_offsets);
    for (std::int64_t offset : query_offsets) check_offset(offset);
    p.query_offsets = query_offsets.data();
  } else {
    p.bottom_right = options.causal == Causal::bottom_right;
  }
  if (options.kv_lengths) {
    read_integers("kv_lengths", options.kv_lengths, p.batch, kv_lengths);
    for (std::int64_t length : kv_lengths)
      if (length < 0 || length > p.seqlen_k)
        refuse(kName, "kv_lengths must lie between 0 and seqlen_k = ", p.seqlen_k, ", but one is ", length);
    p.kv_lengths = kv_lengths.data();
  }
  for (const auto& [name, value] :
       {std::pair{"window_left", options.window_left}, {"window_right", options.window_right}})
    if (value < -1) refuse(kName, name, " must be -1 (open) or at least 0, got ", value);
  p.window_left = std::min(options.window_left, kFarthest);
  p.window_right = std::min(options.window_right, kFarthest);
}

void fill_mask(const TensorView& mask, AttentionParams& p) {
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
      refuse(kName, "mask must be bool, f32 or f64, but it is ", name_of(mask.dtype));
  }
  const std::int64_t full[4] = {p.batch, p.num_heads, p.seqlen_q, p.seqlen_k};
  std::int64_t* const strides[4] = {&p.mask.batch_stride, &p.mask.head_stride, &p.mask.row_stride,
                                    &p.mask.column_stride};
  if (mask.rank > 4) refuse(kName, "mask must have rank 1 to 4, but it has shape ", to_string(mask.dims()));
  for (int i = 0; i < mask.rank; ++i) {
    const int axis = 4 - mask.rank + i;
    if (mask.shape[i] != full[axis] && mask.shape[i] != 1)
      refuse(kName, "mask must broadcast to [batch, heads, seqlen_q, seqlen_k] = ", to_string(full),
             ", but it has shape ", to_string(mask.dims()));
    *strides[axis] = mask.shape[i] == 1 ? 0 : mask.strides[i];
  }
  if (mask.data == nullptr && mask.size() > 0) refuse(kName, "mask has no data (null pointer)");
  p.mask.data = mask.data;
}

void fill_head_numbers(const AttentionOptions& options, AttentionParams& p) {
  if (const TensorView& slopes = options.alibi_slopes) {
    check_dtype(kName, "alibi_slopes", slopes, DType::f32);
    if (slopes.rank == 2)
      check_shape(kName, "alibi_slopes", slopes, {p.batch, p.num_heads});
    else
      check_shape(kName, "alibi_slopes", slopes, {p.num_heads});
    p.alibi_slopes = {slopes.as<float>(), slopes.rank == 2 ? slopes.strides[0] : 0,
                      slopes.strides[slopes.rank - 1], 0};
  }
  if (options.sinks) {
    check_dtype(kName, "sinks", options.sinks, DType::f32);
    check_shape(kName, "sinks", options.sinks, {p.num_heads});
    check_memory(kName, "sinks", options.sinks);
    p.sinks = options.sinks.as<float>();
  }
}

void fill_numbers(const AttentionOptions& options, AttentionParams& p) {
  const double scale = options.scale ? *options.scale : 1.0 / std::sqrt(static_cast<double>(p.head_dim));
  if (!std::isfinite(scale)) refuse(kName, "scale must be a finite number, got ", scale);
  if (!(options.softcap >= 0.0) || !std::isfinite(options.softcap))
    refuse(kName, "softcap must be 0 (off) or a positive number, got ", options.softcap);
  if (!(options.dropout_p >= 0.0 && options.dropout_p < 1.0))
    refuse(kName, "dropout_p must be at least 0 and below 1, got ", options.dropout_p);
  if (options.num_threads < 0) refuse(kName, "num_threads must be 0 or more, got ", options.num_threads);
  p.scale = static_cast<float>(scale);
  p.softcap = static_cast<float>(options.softcap);
  p.dropout_p = options.dropout_p;
  p.dropout_seed = options.dropout_seed;
  p.dropout_offset = options.dropout_offset;
}

/// Checks that an output of the call has the axes of q and then seqlen_q (and seqlen_k).
HeadedMatrix<float> output_per_head(std::string_view name, const MutableTensorView& view, int rank,
                                    bool rows_of_keys, const AttentionParams& p) {
  check_dtype(kName, name, view, DType::f32);
  const std::int64_t full[4] = {p.batch, p.num_heads, p.seqlen_q, p.seqlen_k};
  const std::int64_t* const wanted = full + (4 - rank);
  const int wanted_rank = rank - (rows_of_keys ? 0 : 1);
  if (view.rank != wanted_rank || !std::equal(wanted, wanted + wanted_rank, view.shape.begin()))
    refuse(kName, name, " must have shape ", to_string(std::span(wanted, static_cast<std::size_t>(wanted_rank))),
           ", but it has shape ", to_string(view.dims()));
  if (rows_of_keys) check_memory(kName, name, view);
  if (view.data == nullptr && view.size() > 0) refuse(kName, name, " has no data (null pointer)");
  const int row = rank - 2;
  return {view.as<float>(), rank > 3 ? view.strides[0] : 0, rank > 2 ? view.strides[row - 1] : 0,
          view.strides[row]};
}

}  // namespace

AttentionArguments::AttentionArguments(const TensorView& q, const TensorView& k, const TensorView& v,
                                       const MutableTensorView& o, const AttentionOptions& options) {
  AttentionParams& p = params;
  fill_shapes(q, k, v, o, options, p);
  fill_numbers(options, p);
  fill_positions(options, query_offsets_, kv_lengths_, p);
  if (options.mask) fill_mask(options.mask, p);
  fill_head_numbers(options, p);
  if (options.lse) p.lse = output_per_head("lse", options.lse, q.rank, false, p);
  if (options.weights) p.weights = output_per_head("weights", options.weights, q.rank, true, p);
  p.weights_after_dropout = options.weights_after_dropout;
}

}  // namespace saccade
