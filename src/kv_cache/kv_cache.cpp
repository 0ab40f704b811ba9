#include "saccade/kv_cache.h"

#include <algorithm>

#include "core/axes.h"
#include "core/check.h"
#include "core/conflicts.h"
#include "kv_cache/storage.h"
#include "saccade/quantize.h"

namespace saccade {
namespace {

KvCacheOptions checked(KvCacheOptions options) {
  constexpr std::string_view kName = "KvCache";
  for (const auto& [name, value] :
       {std::pair{"batch", options.batch}, {"num_kv_heads", options.num_kv_heads}, {"head_dim", options.head_dim}})
    if (value < 1) refuse(kName, name, " must be at least 1, got ", value);
  for (const auto& [name, value] : {std::pair{"head_dim_v", options.head_dim_v},
                                    {"page_size", options.page_size},
                                    {"capacity", options.capacity}})
    if (value < 0) refuse(kName, name, " must be 0 or more, got ", value);
  for (const auto& [name, value] : {std::pair{"batch", options.batch},
                                    {"num_kv_heads", options.num_kv_heads},
                                    {"head_dim", options.head_dim},
                                    {"head_dim_v", options.head_dim_v},
                                    {"page_size", options.page_size},
                                    {"capacity", options.capacity},
                                    {"window", options.window}})
    if (value > kMaxLength) refuse(kName, name, " must be at most 2^40, got ", value);
  if (options.window < -1)
    refuse(kName, "window must be -1 (all keys are kept) or at least 0, got ", options.window);
  if (options.window >= 0 && !options.causal) refuse(kName, "window needs a causal cache");
  check_kv_type(kName, "dtype", options.dtype);
  if (!options.dtype_v) options.dtype_v = options.dtype;
  check_kv_type(kName, "dtype_v", *options.dtype_v);
  const bool has_f64 = options.dtype == DType::f64;
  if (has_f64 != (*options.dtype_v == DType::f64))
    refuse(kName, "dtype and dtype_v must both be f64 or neither, but they are ", name_of(options.dtype), " and ",
           name_of(*options.dtype_v));
  const bool has_i4 = options.dtype == DType::i4 || *options.dtype_v == DType::i4;
  if (options.rotate.value_or(false) && !has_i4 && !is_quantized(options.dtype))
    refuse(kName, "rotate needs quantized keys or values of i4, but dtype is ", name_of(options.dtype),
           " and dtype_v ", name_of(*options.dtype_v));
  if (!options.rotate) options.rotate = has_i4;
  if (options.rope && options.rope->dim() != options.head_dim)
    refuse(kName, "rope is for dim ", options.rope->dim(), " but head_dim is ", options.head_dim);
  if (options.head_dim_v == 0) options.head_dim_v = options.head_dim;
  return options;
}

/// New keys or values as [sequences, num_kv_heads, count, dim], with any count.
TensorView checked_tokens(std::string_view name, const TensorView& tokens, Layout layout, std::int64_t sequences,
                          bool has_batch, std::int64_t heads, std::int64_t dim) {
  constexpr std::string_view kName = "KvCache::append";
  if (!is_floating(tokens.dtype))
    refuse(kName, name, " must be of a floating-point type, but it is ", name_of(tokens.dtype));
  const bool rank_fits = has_batch ? tokens.rank == 4 || (tokens.rank == 3 && sequences == 1) : tokens.rank == 3;
  const TensorView view = rank_fits ? as_bhsd(tokens, layout) : tokens;
  if (!rank_fits || view.shape[0] != sequences || view.shape[1] != heads || view.shape[3] != dim) {
    const std::string batch = has_batch ? std::to_string(sequences) + ", " : "";
    const std::string n_and_heads =
        layout == Layout::bshd ? "n, " + std::to_string(heads) : std::to_string(heads) + ", n";
    refuse(kName, name, " must have shape [", batch, n_and_heads, ", ", dim, "], but it has shape ",
           to_string(tokens.dims()));
  }
  if (tokens.data == nullptr && tokens.size() > 0)
    refuse(kName, name, " has shape ", to_string(tokens.dims()), " but no data (null pointer)");
  return view;
}

void check_sequence(std::string_view function, std::int64_t sequence, const KvCacheOptions& config) {
  if (sequence < 0 || sequence >= config.batch)
    refuse(function, "sequence ", sequence, " does not exist in a batch of ", config.batch);
}

}  // namespace

KvCache::KvCache(const KvCacheOptions& options) : storage_(Storage::make(checked(options))) {}
KvCache::~KvCache() = default;
KvCache::KvCache(KvCache&& other) noexcept = default;
KvCache& KvCache::operator=(KvCache&& other) noexcept = default;

const KvCacheOptions& KvCache::config() const { return storage_->config(); }

// ---- Adding tokens -------------------------------------------------------------------------------------------

void KvCache::append(const TensorView& k, const TensorView& v, Layout layout) {
  const KvCacheOptions& c = config();
  const TensorView keys = checked_tokens("k", k, layout, c.batch, true, c.num_kv_heads, c.head_dim);
  append_checked(0, keys, checked_tokens("v", v, layout, c.batch, true, c.num_kv_heads, c.head_dim_v));
}

void KvCache::append(std::int64_t sequence, const TensorView& k, const TensorView& v, Layout layout) {
  const KvCacheOptions& c = config();
  check_sequence("KvCache::append", sequence, c);
  const TensorView keys = checked_tokens("k", k, layout, 1, false, c.num_kv_heads, c.head_dim);
  append_checked(sequence, keys, checked_tokens("v", v, layout, 1, false, c.num_kv_heads, c.head_dim_v));
}

void KvCache::append_checked(std::int64_t begin, const TensorView& k, const TensorView& v) {
  const std::int64_t count = k.shape[2], end = begin + k.shape[0];
  if (v.shape[2] != count) refuse("KvCache::append", "v has ", v.shape[2], " tokens but k has ", count);
  for (std::int64_t b = begin; b < end; ++b)
    if (length(b) + count > kMaxLength)
      refuse("KvCache::append", "sequence ", b, " would have ", length(b) + count, " tokens, more than 2^40");
  if (count == 0) return;
  // Everything that can fail comes first.
  Tensor rotated;
  TensorView keys = k;
  if (const std::optional<Rope>& rope = config().rope) {
    Tensor positions(DType::i64, {end - begin, count});
    for (std::int64_t b = begin; b < end; ++b)
      for (std::int64_t i = 0; i < count; ++i) positions.at<std::int64_t>(b - begin, i) = length(b) + i;
    rotated = Tensor(is_quantized(config().dtype) ? DType::f32 : config().dtype,
                     Shape(k.dims().begin(), k.dims().end()));
    rope->rotate(k, rotated, positions);
    keys = rotated;
  }
  storage_->reserve(begin, end, count);
  for (std::int64_t b = begin; b < end; ++b)
    storage_->append(b, keys.select(0, b - begin), v.select(0, b - begin));
}

// ---- Lengths -------------------------------------------------------------------------------------------------

std::int64_t KvCache::length(std::int64_t sequence) const {
  check_sequence("KvCache::length", sequence, config());
  return storage_->length(sequence);
}

std::span<const std::int64_t> KvCache::lengths() const { return storage_->lengths(); }

std::int64_t KvCache::first_kept(std::int64_t sequence) const {
  check_sequence("KvCache::first_kept", sequence, config());
  return storage_->first_kept(sequence);
}

void KvCache::set_start(std::int64_t sequence, std::int64_t start) {
  check_sequence("KvCache::set_start", sequence, config());
  if (start < 0 || start > length(sequence))
    refuse("KvCache::set_start", "start must lie between 0 and the ", length(sequence), " tokens of sequence ",
           sequence, ", got ", start);
  storage_->set_start(sequence, start);
}

std::int64_t KvCache::start(std::int64_t sequence) const {
  check_sequence("KvCache::start", sequence, config());
  return storage_->start(sequence);
}

Tensor KvCache::positions(std::int64_t count) const {
  if (count < 0) refuse("KvCache::positions", "count must be 0 or more, got ", count);
  Tensor result(DType::i64, {config().batch, count});
  for (std::int64_t b = 0; b < config().batch; ++b)
    for (std::int64_t i = 0; i < count; ++i) result.at<std::int64_t>(b, i) = length(b) - count + i;
  return result;
}

void KvCache::check_prefix(std::string_view function, std::int64_t sequence, std::int64_t length) const {
  check_sequence(function, sequence, config());
  if (length < 0 || length > storage_->length(sequence))
    refuse(function, "length must lie between 0 and the ", storage_->length(sequence), " tokens of sequence ",
           sequence, ", got ", length);
  if (length > 0 && storage_->first_kept(sequence) > storage_->first_seen(length))
    refuse(function, "the token after position ", length - 1, " would see keys from position ",
           storage_->first_seen(length), " on, but sequence ", sequence, " has kept those from ",
           storage_->first_kept(sequence), " on only");
}

void KvCache::truncate(std::int64_t sequence, std::int64_t length) {
  check_prefix("KvCache::truncate", sequence, length);
  truncate_checked(sequence, length);
}

void KvCache::truncate_checked(std::int64_t sequence, std::int64_t length) {
  storage_->set_start(sequence, std::min(start(sequence), length));
  storage_->truncate(sequence, length);
}

void KvCache::clear(std::int64_t sequence) {
  check_sequence("KvCache::clear", sequence, config());
  truncate_checked(sequence, 0);
}

void KvCache::share_prefix(std::int64_t from, std::int64_t to, std::int64_t length) {
  check_prefix("KvCache::share_prefix", from, length);
  check_sequence("KvCache::share_prefix", to, config());
  if (from == to) return truncate_checked(from, length);
  storage_->share_prefix(from, to, length);
  storage_->set_start(to, std::min(start(from), length));
}

// ---- Reading -------------------------------------------------------------------------------------------------

TensorView KvCache::k(Layout layout) const {
  return layout == Layout::bshd ? storage_->keys().transposed(1, 2) : storage_->keys();
}

TensorView KvCache::v(Layout layout) const {
  return layout == Layout::bshd ? storage_->values().transposed(1, 2) : storage_->values();
}

Tensor KvCache::dequantized(std::size_t which) const {
  const KvStore& store = storage_->store(which);
  const auto& [dtype, rotated, blocks, heads, rows, dim] = store.layout();
  std::int64_t longest = 0;
  for (std::int64_t b = 0; b < config().batch; ++b) longest = std::max(longest, storage_->end_row(b));
  Tensor result(DType::f32, {config().batch, heads, longest, dim});
  for (std::int64_t b = 0; b < config().batch; ++b) {
    for (std::int64_t j = storage_->begin_row(b); j < storage_->end_row(b); ++j) {
      const auto place = storage_->place(b, j);
      const auto rows_of = [&](const TensorView& plane) {
        return plane ? plane.select(0, place.block).slice(1, place.row, place.row + 1) : TensorView();
      };
      const TensorView stored = rows_of(store.numbers());
      Tensor token = is_quantized(dtype)
                         ? dequantize(stored, rows_of(store.scales()), rows_of(store.multipliers()))
                         : Tensor::copy_of(stored, DType::f32);
      if (rotated) token = hadamard(token);
      copy(token, result.mutable_view().select(0, b).slice(1, j, j + 1));
    }
  }
  return result;
}

Tensor KvCache::dequantize_k() const { return dequantized(0); }
Tensor KvCache::dequantize_v() const { return dequantized(1); }

std::size_t KvCache::bytes() const { return storage_->bytes(); }

std::int64_t KvCache::pages_in_use() const { return storage_->pages_in_use(); }

AttentionOptions KvCache::options(const AttentionOptions& rest) const {
  constexpr std::string_view kName = "KvCache::options";
  check_options_of(AttentionCall::kv_cache, kName, rest);
  if (rest.cu_seqlens_q && config().page_size == 0)
    refuse(kName, "cu_seqlens_q was given: only the queries of a paged cache may be packed");
  AttentionOptions options = rest;
  storage_->describe(options);
  if (!config().causal) return options;
  if (rest.causal == Causal::top_left)
    refuse(kName, "causal is top_left, but a causal cache takes queries for the last tokens (bottom_right)");
  if (rest.query_offset || rest.query_offsets)
    refuse(kName, "a query offset was given, but a causal cache takes queries for the last tokens");
  options.causal = Causal::bottom_right;
  const std::int64_t window = config().window;
  if (window >= 0 && rest.window_left > window)
    refuse(kName, "window_left is ", rest.window_left, ", but the cache keeps a window of ", window);
  if (rest.window_left == -1) options.window_left = window;
  return options;
}

}  // namespace saccade
