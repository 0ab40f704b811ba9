// Caches of keys and values, for C.
#include "c_api/kv_cache.h"

#include <algorithm>
#include <array>

#include "c_api/call.h"
#include "c_api/options.h"
#include "c_api/rope.h"

using namespace saccade;
using namespace saccade::c_api;

namespace {

using ShapeOfRows = std::array<std::int64_t, 4>;

/// The shape of dequantize_k(), or with head_dim_v of dequantize_v(), without dequantizing.
ShapeOfRows dequantized_shape(const KvCache& cache, std::int64_t dim) {
  const KvCacheOptions& config = cache.config();
  std::int64_t longest = 0;
  for (std::int64_t b = 0; b < config.batch; ++b)
    longest = std::max(longest, cache.length(b) - (config.page_size > 0 ? 0 : cache.first_kept(b)));
  return {config.batch, config.num_kv_heads, longest, dim};
}

/// Writes keys or values to a tensor of the caller, which is checked before they are computed.
void write_dequantized(std::string_view function, std::string_view name, const saccade_tensor* to,
                       const KvCache& cache, std::int64_t dim, Tensor (KvCache::*dequantize)() const) {
  const MutableTensorView result = view_of(function, name, to);
  check_dtype(function, name, result, DType::f32);
  const ShapeOfRows shape = dequantized_shape(cache, dim);
  if (!std::ranges::equal(result.dims(), shape))
    refuse(function, name, " must have shape ", to_string(shape), ", but it has shape ", to_string(result.dims()));
  copy((cache.*dequantize)(), result);
}

}  // namespace

saccade_status saccade_kv_cache_create(const saccade_options* options, const saccade_rope* rope,
                                       saccade_kv_cache** cache) {
  return guarded([&] {
    constexpr std::string_view kFunction = "saccade_kv_cache_create";
    saccade_kv_cache*& result = required(kFunction, "cache", cache);
    KvCacheOptions wanted =
        options_of<KvCacheOptionSet>(kFunction, "options", options, "SACCADE_KV_CACHE_OPTIONS").options;
    if (rope != nullptr) wanted.rope = rope->rope;
    result = new saccade_kv_cache{KvCache(wanted)};
  });
}

void saccade_kv_cache_destroy(saccade_kv_cache* cache) { delete cache; }

saccade_status saccade_kv_cache_append(saccade_kv_cache* cache, std::int64_t sequence, const saccade_tensor* k,
                                       const saccade_tensor* v, const char* layout) {
  return guarded([&] {
    constexpr std::string_view kFunction = "saccade_kv_cache_append";
    KvCache& own = required(kFunction, "cache", cache).cache;
    const TensorView keys = view_of(kFunction, "k", k), values = view_of(kFunction, "v", v);
    if (sequence == -1)
      own.append(keys, values, layout_of(kFunction, layout));
    else
      own.append(sequence, keys, values, layout_of(kFunction, layout));
  });
}

saccade_status saccade_kv_cache_state(const saccade_kv_cache* cache, std::int64_t sequence, std::int64_t* length,
                                      std::int64_t* first_kept, std::int64_t* start, std::int64_t* bytes,
                                      std::int64_t* pages_in_use) {
  return guarded([&] {
    const KvCache& own = required("saccade_kv_cache_state", "cache", cache).cache;
    // Nothing is written if one of them throws.
    const std::int64_t numbers[] = {length ? own.length(sequence) : 0, first_kept ? own.first_kept(sequence) : 0,
                                    start ? own.start(sequence) : 0, static_cast<std::int64_t>(own.bytes()),
                                    own.pages_in_use()};
    std::int64_t* const results[] = {length, first_kept, start, bytes, pages_in_use};
    for (std::size_t i = 0; i < std::size(results); ++i)
      if (results[i] != nullptr) *results[i] = numbers[i];
  });
}

saccade_status saccade_kv_cache_set_start(saccade_kv_cache* cache, std::int64_t sequence, std::int64_t start) {
  return guarded([&] { required("saccade_kv_cache_set_start", "cache", cache).cache.set_start(sequence, start); });
}

saccade_status saccade_kv_cache_truncate(saccade_kv_cache* cache, std::int64_t sequence, std::int64_t length) {
  return guarded([&] {
    KvCache& own = required("saccade_kv_cache_truncate", "cache", cache).cache;
    length == 0 ? own.clear(sequence) : own.truncate(sequence, length);
  });
}

saccade_status saccade_kv_cache_share_prefix(saccade_kv_cache* cache, std::int64_t from, std::int64_t to,
                                             std::int64_t length) {
  return guarded(
      [&] { required("saccade_kv_cache_share_prefix", "cache", cache).cache.share_prefix(from, to, length); });
}

saccade_status saccade_kv_cache_positions(const saccade_kv_cache* cache, std::int64_t count,
                                          std::int64_t* positions) {
  return guarded([&] {
    constexpr std::string_view kFunction = "saccade_kv_cache_positions";
    const KvCache& own = required(kFunction, "cache", cache).cache;
    std::int64_t& first = required(kFunction, "positions", positions);
    if (count < 0) refuse(kFunction, "count must be 0 or more, but it is ", count);
    const Tensor result = own.positions(count);
    std::ranges::copy(result.values<std::int64_t>(), &first);
  });
}

saccade_status saccade_kv_cache_shapes(const saccade_kv_cache* cache, std::int64_t* k_shape,
                                       std::int64_t* v_shape) {
  return guarded([&] {
    const KvCache& own = required("saccade_kv_cache_shapes", "cache", cache).cache;
    if (k_shape != nullptr) std::ranges::copy(dequantized_shape(own, own.config().head_dim), k_shape);
    if (v_shape != nullptr) std::ranges::copy(dequantized_shape(own, own.config().head_dim_v), v_shape);
  });
}

saccade_status saccade_kv_cache_dequantize_k(const saccade_kv_cache* cache, const saccade_tensor* k) {
  return guarded([&] {
    constexpr std::string_view kFunction = "saccade_kv_cache_dequantize_k";
    const KvCache& own = required(kFunction, "cache", cache).cache;
    write_dequantized(kFunction, "k", k, own, own.config().head_dim, &KvCache::dequantize_k);
  });
}

saccade_status saccade_kv_cache_dequantize_v(const saccade_kv_cache* cache, const saccade_tensor* v) {
  return guarded([&] {
    constexpr std::string_view kFunction = "saccade_kv_cache_dequantize_v";
    const KvCache& own = required(kFunction, "cache", cache).cache;
    write_dequantized(kFunction, "v", v, own, own.config().head_dim_v, &KvCache::dequantize_v);
  });
}

saccade_status saccade_attention_over_cache(const saccade_tensor* q, const saccade_kv_cache* cache,
                                            const saccade_tensor* o, const saccade_options* options) {
  return guarded([&] {
    constexpr std::string_view kFunction = "saccade_attention_over_cache";
    attention(view_of(kFunction, "q", q), required(kFunction, "cache", cache).cache, view_of(kFunction, "o", o),
              attention_options(kFunction, options).options());
  });
}

saccade_status saccade_decode_over_cache(const saccade_tensor* q, const saccade_kv_cache* cache,
                                         const saccade_tensor* o, const saccade_options* options) {
  return guarded([&] {
    constexpr std::string_view kFunction = "saccade_decode_over_cache";
    decode(view_of(kFunction, "q", q), required(kFunction, "cache", cache).cache, view_of(kFunction, "o", o),
           attention_options(kFunction, options).options());
  });
}
