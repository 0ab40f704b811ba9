// How far o is from attention over the given keys and values when a cache stores them in fewer bits.
#pragma once

#include <saccade/kv_cache.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace saccade::cases {

/// What a cache stores. `rotate`: as KvCacheOptions::rotate.
struct CacheFormat {
  DType k = DType::f32, v = DType::f32;
  std::optional<bool> rotate{};
};

/// bf16, and each quantized format with and without rotation.
std::span<const CacheFormat> cache_formats();

/// "int8", "int8, rotated", "int8 and int4".
std::string name_of(const CacheFormat& format);

KvCacheOptions options_of(const CacheFormat& format, std::int64_t num_kv_heads, std::int64_t head_dim,
                          bool causal);

/// The keys of a synthetic problem; values and queries are normal numbers.
enum class Keys : std::uint8_t {
  normal,   ///< normal numbers
  outlier,  ///< four channels are ten times as large
  bias,     ///< four channels are shifted by 10 or -10
  rope,     ///< the same, then rotated by their positions; queries are those of the last tokens
};
inline constexpr Keys kAllKeys[] = {Keys::normal, Keys::outlier, Keys::bias, Keys::rope};
std::string name_of(Keys keys);

struct CacheProblem {
  Tensor q, k, v;  ///< [1, 1, tokens, dim]
};
CacheProblem draw_cache_problem(Keys keys, std::int64_t tokens, std::int64_t queries, std::int64_t dim,
                                std::uint64_t seed);

/// Sums of squares, of differences and of exact numbers.
struct SquaredError {
  double difference = 0, exact = 0;
  /// The root of the mean square, relative to that of the exact numbers.
  double relative() const;
  SquaredError& operator+=(const SquaredError& other);
};
SquaredError compare_squares(const TensorView& o, const TensorView& exact);

/// Attention in f64 over the given numbers.
Tensor exact_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                       const AttentionOptions& options = {});

/// The error of one query head over one kv head, every query seeing every key.
SquaredError error_of(const CacheFormat& format, const CacheProblem& problem, const Tensor& exact);

}  // namespace saccade::cases
