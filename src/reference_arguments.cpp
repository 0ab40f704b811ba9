#include "reference_arguments.h"

#include <array>
#include <cmath>
#include <stdexcept>
#include <string>

namespace saccade::reference {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw std::invalid_argument("[reference::attention] " + what);
}

std::string text_of(DType dtype) { return std::string(name_of(dtype)); }

void check_same(const char* what, const char* name, std::int64_t length, const char* other_name,
                std::int64_t other_length) {
  if (length == other_length) return;
  refuse(std::string(name) + " has " + what + " " + std::to_string(length) + " but " + other_name + " has " +
         what + " " + std::to_string(other_length));
}

/// q, k or v as [batch, heads, seqlen, dim].
TensorView in_bhld(const TensorView& view, const char* name, Layout layout) {
  if (view.rank < 2 || view.rank > 4)
    refuse(std::string(name) + " has rank " + std::to_string(view.rank) + ", not 2, 3 or 4");
  const bool is_blhd = layout == Layout::blhd && view.rank >= 3;
  const TensorView ordered = is_blhd ? view.transposed(-3, -2) : view;
  std::array<std::int64_t, 4> lengths{1, 1, 1, 1};
  std::array<std::int64_t, 4> strides{};
  const std::size_t missing = 4U - view.rank;
  for (std::size_t dim = missing; dim < 4; ++dim) {
    lengths[dim] = ordered.shape[dim - missing];
    strides[dim] = ordered.strides[dim - missing];
  }
  return {view.data, view.dtype, lengths, strides};
}

void check_shapes(const TensorView& q, const TensorView& k, const TensorView& v, const Arguments& a) {
  check_same("rank", "k", k.rank, "q", q.rank);
  check_same("rank", "v", v.rank, "q", q.rank);
  check_same("batch", "k", a.k.shape[0], "q", a.batch);
  check_same("batch", "v", a.v.shape[0], "q", a.batch);
  check_same("num_kv_heads", "v", a.v.shape[1], "k", a.num_kv_heads);
  check_same("seqlen_k", "v", a.v.shape[2], "k", a.seqlen_k);
  check_same("head_dim", "k", a.k.shape[3], "q", a.head_dim);
  if (a.head_dim == 0) refuse("q has head_dim 0");
  const bool heads_divide = a.num_kv_heads == 0 ? a.num_heads == 0 : a.num_heads % a.num_kv_heads == 0;
  if (!heads_divide) {
    refuse("q has " + std::to_string(a.num_heads) + " heads, which is no multiple of k's " +
           std::to_string(a.num_kv_heads));
  }
}

void check_numbers(const AttentionOptions& options) {
  const auto refuse_number = [](const char* name, auto value, const char* wanted) {
    refuse(std::string(name) + " is " + std::to_string(value) + ", not " + wanted);
  };
  if (options.scale && !std::isfinite(*options.scale)) refuse_number("scale", *options.scale, "finite");
  if (!(options.softcap >= 0 && std::isfinite(options.softcap))) {
    refuse_number("softcap", options.softcap, "0 or a positive number");
  }
  if (!(options.dropout_p >= 0 && options.dropout_p < 1))
    refuse_number("dropout_p", options.dropout_p, "in [0, 1)");
  if (options.window_left < -1) refuse_number("window_left", options.window_left, "-1 or more");
  if (options.window_right < -1) refuse_number("window_right", options.window_right, "-1 or more");
}

/// An i32 or i64 [batch] option as integers between the limits.
std::vector<std::int64_t> integers_of(const TensorView& view, const char* name, std::int64_t batch,
                                      std::int64_t least, std::int64_t most) {
  if (view.dtype != DType::i32 && view.dtype != DType::i64) {
    refuse(std::string(name) + " has element type " + text_of(view.dtype) + ", not i32 or i64");
  }
  if (view.rank != 1 || view.shape[0] != batch) {
    refuse(std::string(name) + " has shape " + to_string(view.dims()) + ", not [batch] = [" +
           std::to_string(batch) + "]");
  }
  std::vector<std::int64_t> integers(static_cast<std::size_t>(batch));
  copy(view, MutableTensorView(integers.data(), {batch}));
  for (const std::int64_t integer : integers) {
    if (integer < least || integer > most) {
      refuse(std::string(name) + " contains " + std::to_string(integer) + ", which is not between " +
             std::to_string(least) + " and " + std::to_string(most));
    }
  }
  return integers;
}

std::vector<std::int64_t> first_positions(const AttentionOptions& options, const Arguments& a) {
  constexpr std::int64_t kFarthest = std::int64_t{1} << 62;  // so that differences of positions do not overflow
  const auto batch = static_cast<std::size_t>(a.batch);
  if (options.query_offset && options.query_offsets) refuse("query_offset and query_offsets are both given");
  if (options.query_offsets)
    return integers_of(options.query_offsets, "query_offsets", a.batch, -kFarthest, kFarthest);
  if (options.query_offset) {
    if (*options.query_offset < -kFarthest || *options.query_offset > kFarthest) {
      refuse("query_offset " + std::to_string(*options.query_offset) + " is beyond +-2^62");
    }
    return std::vector<std::int64_t>(batch, *options.query_offset);
  }
  std::vector<std::int64_t> positions(batch, 0);
  if (options.causal != Causal::bottom_right) return positions;
  for (std::size_t b = 0; b < batch; ++b) positions[b] = a.kv_lengths[b] - a.seqlen_q;
  return positions;
}

TensorView checked_mask(const TensorView& mask, const Arguments& a) {
  if (!mask) return {};
  if (mask.dtype != DType::boolean && mask.dtype != DType::f32 && mask.dtype != DType::f64) {
    refuse("mask has element type " + text_of(mask.dtype) + ", not bool, f32 or f64");
  }
  const std::array shape{a.batch, a.num_heads, a.seqlen_q, a.seqlen_k};
  return broadcast(mask, shape, "reference::attention", "mask");
}

TensorView checked_head_numbers(const TensorView& view, const char* name, std::span<const std::int64_t> shape) {
  if (!view) return {};
  if (view.dtype != DType::f32)
    refuse(std::string(name) + " has element type " + text_of(view.dtype) + ", not f32");
  if (view.shape[view.rank - 1U] != shape.back()) {
    refuse(std::string(name) + " has shape " + to_string(view.dims()) + " but q has " +
           std::to_string(shape.back()) + " heads");
  }
  return broadcast(view, shape, "reference::attention", name);
}

}  // namespace

TensorView broadcast(const TensorView& view, std::span<const std::int64_t> shape, const char* function,
                     const char* name) {
  std::array<std::int64_t, kMaxRank> strides{};
  bool fits = view.rank <= shape.size();
  for (std::size_t dim = 0; fits && dim < view.rank; ++dim) {
    const std::size_t target = shape.size() - view.rank + dim;
    fits = view.shape[dim] == shape[target] || view.shape[dim] == 1;
    strides[target] = view.shape[dim] == 1 ? 0 : view.strides[dim];
  }
  if (!fits) {
    throw std::invalid_argument("[" + std::string(function) + "] " + name + " has shape " +
                                to_string(view.dims()) + ", which does not broadcast to " + to_string(shape));
  }
  return {view.data, view.dtype, shape, std::span<const std::int64_t>(strides).first(shape.size())};
}

Arguments checked_arguments(const TensorView& q, const TensorView& k, const TensorView& v,
                            const AttentionOptions& options) {
  Arguments a{};
  a.q = in_bhld(q, "q", options.layout);
  a.k = in_bhld(k, "k", options.layout);
  a.v = in_bhld(v, "v", options.layout);
  a.batch = a.q.shape[0];
  a.num_heads = a.q.shape[1];
  a.num_kv_heads = a.k.shape[1];
  a.seqlen_q = a.q.shape[2];
  a.seqlen_k = a.k.shape[2];
  a.head_dim = a.q.shape[3];
  a.head_dim_v = a.v.shape[3];
  check_shapes(q, k, v, a);
  check_numbers(options);

  a.scale = options.scale.value_or(1.0 / std::sqrt(static_cast<double>(a.head_dim)));
  a.kv_lengths = options.kv_lengths ? integers_of(options.kv_lengths, "kv_lengths", a.batch, 0, a.seqlen_k)
                                    : std::vector<std::int64_t>(static_cast<std::size_t>(a.batch), a.seqlen_k);
  a.first_positions = first_positions(options, a);
  a.mask = checked_mask(options.mask, a);
  a.alibi_slopes = checked_head_numbers(options.alibi_slopes, "alibi_slopes", std::array{a.batch, a.num_heads});
  a.sinks = checked_head_numbers(options.sinks, "sinks", std::array{a.num_heads});
  return a;
}

}  // namespace saccade::reference
