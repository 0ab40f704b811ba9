#include "cases/caches/cache_errors.h"

#include <saccade/random.h>
#include <saccade/rope.h>

#include <cmath>

namespace saccade::cases {
namespace {

std::string_view name_of_type(DType dtype) {
  switch (dtype) {
    case DType::i8:
      return "int8";
    case DType::i4:
      return "int4";
    case DType::f8e4m3:
      return "fp8";
    default:
      return saccade::name_of(dtype);
  }
}

Tensor normal_numbers(TorchGenerator& generator, std::int64_t rows, std::int64_t dim) {
  return generator.randn({1, 1, rows, dim});
}

/// The four channels of keys that are not as the others: of different groups of int4 and pairs of rope.
void change_channels(Keys keys, Tensor& k) {
  const std::int64_t dim = k.shape(3);
  for (std::int64_t i = 0; i < 4; ++i) {
    const std::int64_t d = (3 + 29 * i) % dim;
    for (std::int64_t row = 0; row < k.shape(2); ++row) {
      float& x = k.at<float>(0, 0, row, d);
      x = keys == Keys::outlier ? 10 * x : x + (i % 2 == 0 ? 10.0F : -10.0F);
    }
  }
}

}  // namespace

std::span<const CacheFormat> cache_formats() {
  static constexpr CacheFormat kFormats[] = {
      {DType::bf16, DType::bf16},           {DType::i8, DType::i8, false},
      {DType::i8, DType::i8, true},         {DType::f8e4m3, DType::f8e4m3, false},
      {DType::f8e4m3, DType::f8e4m3, true}, {DType::i8, DType::i4, false},
      {DType::i8, DType::i4, true},         {DType::i4, DType::i8, true},
      {DType::i4, DType::i4, false},        {DType::i4, DType::i4, true},
  };
  return kFormats;
}

std::string name_of(const CacheFormat& format) {
  std::string name(name_of_type(format.k));
  if (format.v != format.k) name.append(" and ").append(name_of_type(format.v));
  return format.rotate.value_or(false) ? name + ", rotated" : name;
}

std::string name_of(Keys keys) {
  static constexpr const char* kNames[] = {"normal", "outlier", "bias", "rope"};
  return kNames[static_cast<std::size_t>(keys)];
}

KvCacheOptions options_of(const CacheFormat& format, std::int64_t num_kv_heads, std::int64_t head_dim,
                          bool causal) {
  return {.num_kv_heads = num_kv_heads,
          .head_dim = head_dim,
          .dtype = format.k,
          .dtype_v = format.v,
          .rotate = format.rotate,
          .causal = causal};
}

CacheProblem draw_cache_problem(Keys keys, std::int64_t tokens, std::int64_t queries, std::int64_t dim,
                                std::uint64_t seed) {
  TorchGenerator generator(seed);
  CacheProblem problem;
  problem.q = normal_numbers(generator, queries, dim);
  problem.k = normal_numbers(generator, tokens, dim);
  problem.v = normal_numbers(generator, tokens, dim);
  if (keys != Keys::normal) change_channels(keys, problem.k);
  if (keys == Keys::rope) {
    const Rope rope(dim);
    rope.rotate(problem.k, problem.k.mutable_view());
    rope.rotate(problem.q, problem.q.mutable_view(), tokens - queries);
  }
  return problem;
}

double SquaredError::relative() const { return std::sqrt(difference / exact); }

SquaredError& SquaredError::operator+=(const SquaredError& other) {
  difference += other.difference;
  exact += other.exact;
  return *this;
}

SquaredError compare_squares(const TensorView& o, const TensorView& exact) {
  const Tensor a = Tensor::copy_of(o, DType::f64), b = Tensor::copy_of(exact, DType::f64);
  SquaredError sum;
  for (std::size_t i = 0; i < a.values<double>().size(); ++i) {
    const double x = a.values<double>()[i], y = b.values<double>()[i];
    sum += {.difference = (x - y) * (x - y), .exact = y * y};
  }
  return sum;
}

Tensor exact_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                       const AttentionOptions& options) {
  return attention(Tensor::copy_of(q, DType::f64), Tensor::copy_of(k, DType::f64), Tensor::copy_of(v, DType::f64),
                   options);
}

SquaredError error_of(const CacheFormat& format, const CacheProblem& problem, const Tensor& exact) {
  KvCache cache(options_of(format, 1, problem.k.shape(3), false));
  cache.append(problem.k, problem.v);
  return compare_squares(attention(problem.q, cache), exact);
}

}  // namespace saccade::cases
