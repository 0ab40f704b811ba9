// Attention of one new token over caches, and appending it to them, compared with the memory bandwidth.
#include <fmt/format.h>
#include <saccade/kv_cache.h>
#include <saccade/limits.h>
#include <saccade/quantize.h>
#include <saccade/random.h>

#include <cstring>

#include "agreement.h"
#include "sections.h"

namespace saccade::cli::bench {
namespace {

constexpr std::int64_t kDecodeHeads = 32, kDecodeKvHeads = 8, kDecodeHeadDim = 128;

std::string layout_name(std::int64_t page_size) {
  return page_size == 0 ? "contiguous" : fmt::format("pages of {}", page_size);
}

/// The bytes of a token's keys, or values, with their scales.
double token_bytes(DType type) {
  if (!is_quantized(type)) return static_cast<double>(kDecodeKvHeads * bytes_of(type, kDecodeHeadDim));
  const QuantizedTensor token = quantize(Tensor(DType::f32, {kDecodeKvHeads, kDecodeHeadDim}), type);
  return static_cast<double>(token.numbers.bytes() + token.scale.bytes() +
                             (type == DType::i4 ? token.multipliers.bytes() : 0));
}

struct Cache {
  DType q_type, type;
  std::int64_t length, page_size;

  std::string name() const {
    const std::string types =
        q_type == type ? std::string(name_of(type)) : fmt::format("{}, q {}", name_of(type), name_of(q_type));
    return fmt::format("{}, {} keys, {}", types, length, layout_name(page_size));
  }
  double bytes() const { return 2 * static_cast<double>(length) * token_bytes(type); }
};

Tensor draw(const Shape& shape, std::uint64_t seed, DType dtype) {
  return Tensor::copy_of(TorchGenerator(seed).uniform(shape, -1.0F, 1.0F), dtype);
}

/// The KV caches of enough layers that no CPU cache holds them all: each is read once per token.
class Layers {
 public:
  explicit Layers(const Cache& cache) : q_(draw({1, kDecodeHeads, 1, kDecodeHeadDim}, 1, cache.q_type)), o_(q_) {
    constexpr std::int64_t kChunk = 4096;
    const DType drawn = is_quantized(cache.type) ? DType::f32 : cache.type;
    const Tensor k = draw({kDecodeKvHeads, kChunk, kDecodeHeadDim}, 2, drawn), v = draw(k.shape(), 3, drawn);
    do {
      layers_.emplace_back(KvCacheOptions{.num_kv_heads = kDecodeKvHeads,
                                          .head_dim = kDecodeHeadDim,
                                          .dtype = cache.type,
                                          .page_size = cache.page_size,
                                          .capacity = cache.length});
      for (std::int64_t i = 0; i < cache.length; i += kChunk) layers_.back().append(k, v);
    } while (cache.bytes() * static_cast<double>(layers_.size()) < static_cast<double>(kUncachedBytes));
  }

  void decode_all(int threads) {
    for (const KvCache& layer : layers_) decode(q_, layer, o_, {.num_threads = threads});
  }

  double count() const { return static_cast<double>(layers_.size()); }

  /// Whether the first and the last head of the last layer agree with the reference.
  bool agrees() const {
    const KvCache& layer = layers_.back();
    return rows_agree(q_, layer.k(), layer.v(), o_, layer.options(), {{0, 0, 0}, {0, kDecodeHeads - 1, 0}});
  }

 private:
  Tensor q_, o_;
  std::vector<KvCache> layers_;
};

std::vector<Line> measure_cache(const Cache& cache, const Conditions& conditions) {
  Layers layers(cache);
  std::vector<Line> lines;
  for (const int threads : conditions.threads) {
    const double bytes = cache.bytes() * layers.count();
    const Timing timing = measure(
        conditions.effort, [&] { layers.decode_all(threads); },
        [&] { return bytes / measure_read_bandwidth(threads, kUncachedBytes); });
    lines.push_back({cache.name(),
                     threads,
                     timing.seconds / layers.count(),
                     {{"gbytes", bytes / timing.seconds * 1e-9, 1}, {"share_of_bandwidth", timing.share, 3}},
                     layers.agrees()});
  }
  return lines;
}

// ---- Appending tokens to a cache -----------------------------------------------------------------------------

/// The last token's keys [num_kv_heads, head_dim] in a cache of one sequence; dequantized.
Tensor last_keys(const KvCache& cache) {
  std::int64_t block = 0, row = cache.length(0) - 1;
  if (is_quantized(cache.config().dtype))
    return Tensor::copy_of(cache.dequantize_k().view().select(0, 0).select(1, row));
  if (const std::int64_t page_size = cache.config().page_size; page_size > 0) {
    block = cache.options().block_table.as<std::int32_t>()[row / page_size];
    row %= page_size;
  }
  return Tensor::copy_of(cache.k().select(0, block).select(1, row));
}

/// The same of a token with these keys; those of i4 are rotated.
Tensor kept_keys(const Tensor& k, DType type) {
  const Tensor keys = k.reshaped({kDecodeKvHeads, kDecodeHeadDim});
  if (!is_quantized(type)) return Tensor::copy_of(keys, type);
  return type == DType::i4 ? hadamard(dequantize(quantize(hadamard(keys), type)))
                           : dequantize(quantize(keys, type));
}

/// Appends f32 tokens one by one, as a model does, on one thread. Counts bytes read and written.
std::vector<Line> measure_append(DType type, std::int64_t page_size, const Conditions& conditions) {
  constexpr std::int64_t kTokens = 4096;
  const Shape shape{kDecodeKvHeads, 1, kDecodeHeadDim};
  const Tensor k = draw(shape, 2, DType::f32), v = draw(shape, 3, DType::f32);
  KvCache cache({.num_kv_heads = kDecodeKvHeads,
                 .head_dim = kDecodeHeadDim,
                 .dtype = type,
                 .page_size = page_size,
                 .capacity = kTokens});
  const double bytes = 2 * static_cast<double>(kTokens) * (token_bytes(DType::f32) + token_bytes(type));
  const Timing timing = measure(
      conditions.effort,
      [&] {
        cache.clear(0);
        for (std::int64_t i = 0; i < kTokens; ++i) cache.append(k, v);
      },
      [&] { return bytes / measure_read_bandwidth(1, kUncachedBytes); });
  const Tensor wanted = kept_keys(k, type), kept = last_keys(cache);
  return {{fmt::format("append a token, f32 to {}, {}", name_of(type), layout_name(page_size)),
           1,
           timing.seconds / kTokens,
           {{"gbytes", bytes / timing.seconds * 1e-9, 1}, {"share_of_bandwidth", timing.share, 3}},
           kept.bytes() == wanted.bytes() && std::memcmp(kept.data(), wanted.data(), kept.bytes()) == 0}};
}

}  // namespace

Section decode_section() {
  Section section{"decode", "decode, 32 heads, 8 of k and v, head_dim 128", {"GB/s", "of bandwidth"}, {}};
  for (const auto& [q_type, type] : {std::pair(DType::f32, DType::f32), std::pair(DType::bf16, DType::bf16),
                                     std::pair(DType::f32, DType::f16), std::pair(DType::f32, DType::i8),
                                     std::pair(DType::f32, DType::i4), std::pair(DType::f32, DType::f8e4m3)}) {
    for (const std::int64_t length : {4096, 32768}) {
      for (const std::int64_t page_size : {0, 16, 256}) {
        const Cache cache{q_type, type, length, page_size};
        section.items.push_back(
            [cache](const Conditions& conditions) { return measure_cache(cache, conditions); });
      }
    }
  }
  for (const DType type : {DType::f32, DType::bf16, DType::i8, DType::i4, DType::f8e4m3}) {
    for (const std::int64_t page_size : {0, 256}) {
      section.items.push_back(
          [type, page_size](const Conditions& conditions) { return measure_append(type, page_size, conditions); });
    }
  }
  return section;
}

}  // namespace saccade::cli::bench
