#include "reference/arguments.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "core/check.h"
#include "saccade/quantize.h"

namespace saccade::reference {
namespace {

constexpr std::string_view kFunction = "reference::attention";

[[noreturn]] void refuse_argument(const std::string& what) {
  throw std::invalid_argument("[" + std::string(kFunction) + "] " + what);
}

std::string text_of(DType dtype) { return std::string(name_of(dtype)); }

void check_same(const char* what, const char* name, std::int64_t length, const char* other_name,
                std::int64_t other_length) {
  if (length == other_length) return;
  refuse_argument(std::string(name) + " has " + what + " " + std::to_string(length) + " but " + other_name +
                  " has " + what + " " + std::to_string(other_length));
}

/// q, k or v as [batch, heads, seqlen, dim].
TensorView in_bhsd(const TensorView& view, const char* name, Layout layout) {
  if (view.rank < 2 || view.rank > 4)
    refuse_argument(std::string(name) + " has rank " + std::to_string(view.rank) + ", not 2, 3 or 4");
  const bool is_bshd = layout == Layout::bshd && view.rank >= 3;
  const TensorView ordered = is_bshd ? view.transposed(-3, -2) : view;
  std::array<std::int64_t, 4> lengths{1, 1, 1, 1};
  std::array<std::int64_t, 4> strides{};
  const std::size_t missing = 4U - view.rank;
  for (std::size_t dim = missing; dim < 4; ++dim) {
    lengths[dim] = ordered.shape[dim - missing];
    strides[dim] = ordered.strides[dim - missing];
  }
  return {view.data, view.dtype, lengths, strides};
}

/// q, k or v of a packed batch, [total, heads, dim], as [1, heads, total, dim].
TensorView in_bhsd_packed(const TensorView& view, const char* name) {
  if (view.rank != 3)
    refuse_argument(std::string(name) + " of a packed batch has rank " + std::to_string(view.rank) + ", not 3");
  return in_bhsd(view, name, Layout::bshd);
}

void check_shapes(const TensorView& q, const TensorView& k, const TensorView& v, const Arguments& a) {
  check_same("rank", "k", k.rank, "q", q.rank);
  check_same("rank", "v", v.rank, "q", q.rank);
  if (a.is_paged) {
    check_same("num_pages", "v", a.v.shape[0], "k", a.k.shape[0]);
  } else {
    check_same("batch", "k", a.k.shape[0], "q", a.batch);
    check_same("batch", "v", a.v.shape[0], "q", a.batch);
  }
  check_same("num_kv_heads", "v", a.v.shape[1], "k", a.num_kv_heads);
  check_same("seqlen_k", "v", a.v.shape[2], "k", a.k.shape[2]);
  check_same("head_dim", "k", a.k.shape[3], "q", a.head_dim);
  if (a.head_dim == 0) refuse_argument("q has head_dim 0");
  const bool heads_divide = a.num_kv_heads == 0 ? a.num_heads == 0 : a.num_heads % a.num_kv_heads == 0;
  if (!heads_divide) {
    refuse_argument("q has " + std::to_string(a.num_heads) + " heads, which is no multiple of k's " +
                    std::to_string(a.num_kv_heads));
  }
}

void check_numbers(const AttentionOptions& options) {
  const auto refuse_number = [](const char* name, auto value, const char* wanted) {
    refuse_argument(std::string(name) + " is " + std::to_string(value) + ", not " + wanted);
  };
  if (options.scale && !std::isfinite(*options.scale)) refuse_number("scale", *options.scale, "finite");
  if (!(options.softcap >= 0 && std::isfinite(options.softcap))) {
    refuse_number("softcap", options.softcap, "0 or a positive number");
  }
  if (!(options.dropout_p >= 0 && options.dropout_p < 1))
    refuse_number("dropout_p", options.dropout_p, "in [0, 1)");
  if (options.window_left < -1) refuse_number("window_left", options.window_left, "-1 or more");
  if (options.window_right < -1) refuse_number("window_right", options.window_right, "-1 or more");
  if (options.block_mask_q < 1) refuse_number("block_mask_q", options.block_mask_q, "1 or more");
  if (options.block_mask_k < 1) refuse_number("block_mask_k", options.block_mask_k, "1 or more");
}

/// An i32 or i64 [count] option as integers between the limits; `wanted` describes the expected shape in words.
std::vector<std::int64_t> integers_of(const TensorView& view, const char* name, const char* wanted,
                                      std::int64_t count, std::int64_t least, std::int64_t most) {
  if (view.dtype != DType::i32 && view.dtype != DType::i64) {
    refuse_argument(std::string(name) + " has element type " + text_of(view.dtype) + ", not i32 or i64");
  }
  if (view.rank != 1 || view.shape[0] != count) {
    refuse_argument(std::string(name) + " has shape " + to_string(view.dims()) + ", not " + wanted + " = [" +
                    std::to_string(count) + "]");
  }
  check_data(kFunction, name, view);
  std::vector<std::int64_t> integers(static_cast<std::size_t>(count));
  copy(view, MutableTensorView(integers.data(), {count}));
  for (const std::int64_t integer : integers) {
    if (integer < least || integer > most) {
      refuse_argument(std::string(name) + " contains " + std::to_string(integer) + ", which is not between " +
                      std::to_string(least) + " and " + std::to_string(most));
    }
  }
  return integers;
}

/// cu_seqlens_q or cu_seqlens_k: the start of each document, and the end of the last one.
std::vector<std::int64_t> begins_of(const TensorView& view, const char* name, std::int64_t batch,
                                    std::int64_t total) {
  std::vector<std::int64_t> begins = integers_of(view, name, "[batch + 1]", batch + 1, 0, total);
  if (begins.front() != 0 || begins.back() != total || !std::ranges::is_sorted(begins))
    refuse_argument(std::string(name) + " does not rise from 0 to the total, " + std::to_string(total));
  return begins;
}

/// The sequences of a packed batch.
void find_documents(const AttentionOptions& options, Arguments& a) {
  if (!options.cu_seqlens_q || !options.cu_seqlens_k)
    refuse_argument("of cu_seqlens_q and cu_seqlens_k only one is given");
  if (options.block_table) refuse_argument("cu_seqlens_k and block_table are both given");
  a.batch = options.cu_seqlens_q.rank == 1 ? options.cu_seqlens_q.shape[0] - 1 : -1;
  if (a.batch < 0)
    refuse_argument("cu_seqlens_q has shape " + to_string(options.cu_seqlens_q.dims()) + ", not [batch + 1]");
  const auto rows = begins_of(options.cu_seqlens_q, "cu_seqlens_q", a.batch, a.q.shape[2]);
  const auto keys = begins_of(options.cu_seqlens_k, "cu_seqlens_k", a.batch, a.k.shape[2]);
  for (std::size_t b = 0; b + 1 < rows.size(); ++b) {
    const std::int64_t seqlen_q = rows[b + 1] - rows[b], seqlen_k = keys[b + 1] - keys[b];
    a.sequences.push_back(
        {.first_row = rows[b], .first_key = keys[b], .seqlen_q = seqlen_q, .seqlen_k = seqlen_k});
    a.seqlen_q = std::max(a.seqlen_q, seqlen_q);
    a.seqlen_k = std::max(a.seqlen_k, seqlen_k);
  }
}

/// The sequences of a batch whose keys are in pages.
void find_pages(const AttentionOptions& options, Arguments& a) {
  const TensorView& table = options.block_table;
  if (table.dtype != DType::i32)
    refuse_argument("block_table has element type " + text_of(table.dtype) + ", not i32");
  if (table.rank != 2 || table.shape[0] != a.batch)
    refuse_argument("block_table has shape " + to_string(table.dims()) + ", not [batch, max_pages] with batch " +
                    std::to_string(a.batch));
  if (!options.kv_lengths) refuse_argument("block_table is given without kv_lengths");
  if (a.k.shape[2] == 0) refuse_argument("k has pages of no keys");
  check_data(kFunction, "block_table", table);
  a.block_table.resize(static_cast<std::size_t>(table.size()));
  copy(table, MutableTensorView(a.block_table.data(), DType::i64, table.dims()));
  a.seqlen_k = table.shape[1] * a.k.shape[2];
}

/// The sequences of a batch that is not packed: entry b is entry b of the tensors, from first row and key to last.
void find_entries(const AttentionOptions& options, Arguments& a) {
  a.seqlen_q = a.q.shape[2];
  a.seqlen_k = a.k.shape[2];
  if (a.is_paged) find_pages(options, a);
  for (std::int64_t b = 0; b < a.batch; ++b)
    a.sequences.push_back({.index_in_q = b, .index_in_k = b, .seqlen_q = a.seqlen_q, .seqlen_k = a.seqlen_k});
}

/// Reads one number of keys for each sequence into `member`, if given; `origin`: the index of key 0.
void read_numbers_of_keys(const TensorView& view, const char* name, std::int64_t Sequence::*member,
                          std::int64_t origin, Arguments& a) {
  if (!view) return;
  const auto numbers = integers_of(view, name, "[batch]", a.batch, 0, origin + a.seqlen_k);
  for (std::size_t b = 0; b < numbers.size(); ++b) {
    if (numbers[b] > origin + a.sequences[b].seqlen_k)
      refuse_argument(std::string(name) + " contains " + std::to_string(numbers[b]) + " for a document of " +
                      std::to_string(a.sequences[b].seqlen_k) + " keys");
    a.sequences[b].*member = std::max<std::int64_t>(numbers[b] - origin, 0);
  }
}

void find_lengths(const AttentionOptions& options, Arguments& a) {
  for (Sequence& sequence : a.sequences) sequence.kv_length = sequence.seqlen_k;
  read_numbers_of_keys(options.kv_starts, "kv_starts", &Sequence::kv_start, options.origin.key, a);
  read_numbers_of_keys(options.kv_lengths, "kv_lengths", &Sequence::kv_length, options.origin.key, a);
}

void find_positions(const AttentionOptions& options, Arguments& a) {
  constexpr std::int64_t kFarthest = std::int64_t{1} << 62;  // so that differences of positions do not overflow
  if (options.query_offset && options.query_offsets)
    refuse_argument("query_offset and query_offsets are both given");
  if (options.query_offset && (*options.query_offset < -kFarthest || *options.query_offset > kFarthest))
    refuse_argument("query_offset " + std::to_string(*options.query_offset) + " is beyond +-2^62");
  std::vector<std::int64_t> offsets(a.sequences.size(), options.query_offset.value_or(0));
  if (options.query_offsets)
    offsets = integers_of(options.query_offsets, "query_offsets", "[batch]", a.batch, -kFarthest, kFarthest);
  const bool is_given = options.query_offset || options.query_offsets;
  for (std::size_t b = 0; b < offsets.size(); ++b) {
    Sequence& sequence = a.sequences[b];
    const bool from_the_end = !is_given && options.causal == Causal::bottom_right;
    sequence.first_position = from_the_end ? sequence.kv_length - sequence.seqlen_q
                                           : offsets[b] + options.origin.row - options.origin.key;
  }
}

void find_readable_keys(const AttentionOptions& options, Arguments& a) {
  for (Sequence& sequence : a.sequences) {
    sequence.end_key = sequence.seqlen_k;
    if (!options.block_table) continue;
    sequence.end_key = sequence.kv_length;
    if (options.scores) continue;  // scores include those of hidden keys
    sequence.begin_key = std::min(sequence.kv_start, sequence.end_key);
    if (options.window_left >= 0)
      sequence.begin_key =
          std::clamp(sequence.first_position - options.window_left, sequence.begin_key, sequence.end_key);
  }
}

TensorView checked_mask(const TensorView& mask, const Arguments& a) {
  if (!mask) return {};
  if (mask.dtype != DType::boolean && mask.dtype != DType::f32 && mask.dtype != DType::f64) {
    refuse_argument("mask has element type " + text_of(mask.dtype) + ", not bool, f32 or f64");
  }
  check_data(kFunction, "mask", mask);
  const std::array shape{a.batch, a.num_heads, a.seqlen_q, a.seqlen_k};
  return broadcast(mask, shape, "reference::attention", "mask");
}

TensorView checked_block_mask(const AttentionOptions& options, const Arguments& a) {
  if (!options.block_mask) return {};
  if (options.block_mask.dtype != DType::boolean)
    refuse_argument("block_mask has element type " + text_of(options.block_mask.dtype) + ", not bool");
  check_data(kFunction, "block_mask", options.block_mask);
  const auto blocks = [](std::int64_t seqlen, std::int64_t block) {
    return seqlen / block + (seqlen % block > 0);
  };
  const std::array shape{a.batch, a.num_heads, blocks(options.origin.row + a.seqlen_q, options.block_mask_q),
                         blocks(options.origin.key + a.seqlen_k, options.block_mask_k)};
  return broadcast(options.block_mask, shape, "reference::attention", "block_mask");
}

TensorView checked_head_numbers(const TensorView& view, const char* name, std::span<const std::int64_t> shape) {
  if (!view) return {};
  if (view.dtype != DType::f32 && view.dtype != DType::f64)
    refuse_argument(std::string(name) + " has element type " + text_of(view.dtype) + ", not f32 or f64");
  check_data(kFunction, name, view);
  if (view.shape[view.rank - 1U] != shape.back()) {
    refuse_argument(std::string(name) + " has shape " + to_string(view.dims()) + " but q has " +
                    std::to_string(shape.back()) + " heads");
  }
  return broadcast(view, shape, "reference::attention", name);
}

/// The Hadamard transform of each row, as hadamard() but in f64: sums and differences of pairs of elements, of
/// pairs of those, and so on, in each block.
Tensor exact_hadamard(const TensorView& x) {
  Tensor result = Tensor::copy_of(x, DType::f64);
  const std::span<double> numbers = result.values<double>();
  const auto dim = static_cast<std::size_t>(x.shape[x.rank - 1U]), block = dim & (~dim + 1);
  for (std::size_t step = 1; step < block; step *= 2)
    for (std::size_t i = 0; i < numbers.size(); ++i)
      if ((i % dim & step) == 0) {
        const double first = numbers[i], second = numbers[i + step];
        numbers[i] = first + second;
        numbers[i + step] = first - second;
      }
  for (double& number : numbers) number /= std::sqrt(static_cast<double>(block));
  return result;
}

/// The numbers that a view of k or v stands for, transformed in f64 or f32; nullptr: its own.
std::shared_ptr<const Tensor> numbers_of(const TensorView& view, const char* name, const TensorView& scale,
                                         const TensorView& multipliers, bool rotated, DType transforms) {
  std::shared_ptr<const Tensor> numbers = dequantized(view, scale, multipliers);
  if (!rotated) return numbers;
  const TensorView stored = numbers ? numbers->view() : view;
  if (!is_floating(stored.dtype))
    refuse_argument(std::string(name) + "_rotated is set, but " + name + " is " + text_of(stored.dtype));
  return std::make_shared<const Tensor>(transforms == DType::f64 ? exact_hadamard(stored) : hadamard(stored));
}

/// See Arguments::value_scales. Scales of channels are none of rows.
std::shared_ptr<const Tensor> scales_of_rows(const TensorView& view, const TensorView& scale) {
  if (!is_quantized(view.dtype) || !scale || scale.rank == 0 || scale.shape[scale.rank - 1U] != 1) return nullptr;
  Tensor ones(DType::i8, Shape(view.dims().begin(), view.dims().end()));
  std::ranges::fill(ones.values<std::int8_t>(), std::int8_t{1});
  return dequantized(ones, scale, {});
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

Tensor keys_of(const Arguments& a, const TensorView& view, std::int64_t batch, std::int64_t kv_head) {
  const Sequence& sequence = a.sequences[static_cast<std::size_t>(batch)];
  if (!a.is_paged) {
    const TensorView head = view.select(0, sequence.index_in_k).select(0, kv_head);
    return Tensor::copy_of(head.slice(0, sequence.first_key, sequence.first_key + sequence.seqlen_k), DType::f64);
  }
  const std::int64_t page_size = view.shape[2], max_pages = a.seqlen_k / page_size;
  Tensor keys(DType::f64, {sequence.end_key - sequence.begin_key, view.shape[3]});
  for (std::int64_t j = sequence.begin_key; j < sequence.end_key; ++j) {
    const std::int64_t page = a.block_table[static_cast<std::size_t>(batch * max_pages + j / page_size)];
    if (page < 0 || page >= view.shape[0]) {
      refuse_argument("block_table has page " + std::to_string(page) + " for key " + std::to_string(j) +
                      " of batch entry " + std::to_string(batch) + ", but there are " +
                      std::to_string(view.shape[0]) + " pages");
    }
    copy(view.select(0, page).select(0, kv_head).select(0, j % page_size),
         keys.mutable_view().select(0, j - sequence.begin_key));
  }
  return keys;
}

std::shared_ptr<const Tensor> dequantized(const TensorView& view, const TensorView& scale,
                                          const TensorView& multipliers) {
  return is_quantized(view.dtype) ? std::make_shared<const Tensor>(dequantize(view, scale, multipliers)) : nullptr;
}

Arguments checked_arguments(const TensorView& q, const TensorView& k, const TensorView& v,
                            const AttentionOptions& options, DType transforms) {
  for (const TensorView* view : {&q, &k, &v})
    for (const std::int64_t length : view->dims())
      if (length > kMaxLength) refuse_argument("no dimension of q, k and v may be longer than 2^40");
  check_has_numbers(kFunction, "q", q);
  Arguments a{};
  a.is_packed = options.cu_seqlens_q || options.cu_seqlens_k;
  a.is_paged = static_cast<bool>(options.block_table);
  const auto ordered = [&](const TensorView& view, const char* name) {
    return a.is_packed ? in_bhsd_packed(view, name) : in_bhsd(view, name, options.layout);
  };
  a.q = ordered(q, "q");
  a.k = ordered(k, "k");
  a.v = ordered(v, "v");
  a.batch = a.q.shape[0];
  a.num_heads = a.q.shape[1];
  a.num_kv_heads = a.k.shape[1];
  a.head_dim = a.q.shape[3];
  a.head_dim_v = a.v.shape[3];
  check_shapes(q, k, v, a);
  check_numbers(options);
  if (a.is_paged && !a.is_packed && q.rank != 4)
    refuse_argument("q has rank " + std::to_string(q.rank) + ", not 4, but block_table is given");
  if (a.is_packed) {
    find_documents(options, a);
  } else {
    find_entries(options, a);
  }
  a.numbers = {numbers_of(a.k, "k", options.k_scale, options.k_multipliers, options.k_rotated, transforms),
               numbers_of(a.v, "v", options.v_scale, options.v_multipliers, options.v_rotated, transforms)};
  a.value_scales = scales_of_rows(a.v, options.v_scale);
  if (a.numbers[0]) a.k = *a.numbers[0];
  if (a.numbers[1]) a.v = *a.numbers[1];
  find_lengths(options, a);
  find_positions(options, a);
  find_readable_keys(options, a);

  a.scale = options.scale.value_or(1.0 / std::sqrt(static_cast<double>(a.head_dim)));
  a.mask = checked_mask(options.mask, a);
  a.block_mask = checked_block_mask(options, a);
  a.alibi_slopes = checked_head_numbers(options.alibi_slopes, "alibi_slopes", std::array{a.batch, a.num_heads});
  a.sinks = checked_head_numbers(options.sinks, "sinks", std::array{a.num_heads});
  return a;
}

}  // namespace saccade::reference
