// Additions to attention(): statistics and score modifiers.
#include <saccade/inspect.h>
#include <saccade/random.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "agreement.h"
#include "sections.h"

namespace saccade::cli::bench {
namespace {

Tensor draw(const Shape& shape, std::uint64_t seed) { return TorchGenerator(seed).uniform(shape, -1.0F, 1.0F); }

// ---- Statistics ----------------------------------------------------------------------------------------------

std::vector<Line> measure_inspection(const Conditions& conditions) {
  const Shape shape{1, 12, 4096, 64};
  const Tensor q = draw(shape, 1), k = draw(shape, 2), v = draw(shape, 3);
  Tensor o(DType::f32, shape), lse(DType::f32, {1, 12, 4096});
  const InspectOptions everything{.rows = {0, 1, 2, 3},
                                  .top_k = 8,
                                  .entropy = true,
                                  .max_weight = true,
                                  .received = true,
                                  .distance = true,
                                  .pool_rows = 512,
                                  .pool_keys = 512,
                                  .lse = lse};
  std::vector<Line> lines;
  for (const int threads : conditions.threads) {
    const auto attend = [&] { attention(q, k, v, o, {.lse = lse, .num_threads = threads}); };
    Inspection found;
    const auto attend_and_inspect = [&] {
      attend();
      found = inspect(q, k, everything, {.num_threads = threads});
    };
    const Timing timing = measure(conditions.effort, attend_and_inspect, [&] { return seconds_of(attend); });
    double sum = 0.0;  // the mean weight of the map's cells has a known value
    for (const float cell : found.pooled.values<float>()) sum += static_cast<double>(cell);
    const double wanted = 12.0 * 512 * 512 / 4096;
    lines.push_back({"attention and all statistics, heads 12, seqlen 4096, head_dim 64",
                     threads,
                     timing.seconds,
                     {{"times_attention", 1 / timing.share, 3}},
                     std::abs(sum / wanted - 1) < 1e-3});
  }
  return lines;
}

// ---- Score modifiers -----------------------------------------------------------------------------------------

constexpr std::int64_t kExtrasHeads = 8, kExtrasSeqlen = 2048, kExtrasHeadDim = 64;

/// A table with a bias for each head and each distance from a row to a key, as used for relative positions.
class DistanceBias {
 public:
  template <class Bias>
  explicit DistanceBias(const Bias& bias) : bias_(DType::f32, {kExtrasHeads, 2 * kExtrasSeqlen - 1}) {
    for (std::int64_t head = 0; head < kExtrasHeads; ++head) {
      for (std::int64_t distance = 1 - kExtrasSeqlen; distance < kExtrasSeqlen; ++distance)
        bias_.at<float>(head, distance + kExtrasSeqlen - 1) = bias(head, distance);
    }
  }

  static void add(void* context, const ScoreTile& tile) {
    const Tensor& bias = static_cast<const DistanceBias*>(context)->bias_;
    for (std::int64_t i = 0; i < tile.rows; ++i) {
      const std::int64_t distance = tile.first_key - (tile.first_row + i + tile.offset);
      const float* const row = &bias.at<float>(tile.head, distance + kExtrasSeqlen - 1);
      float* const scores = tile.row<float>(i);
      for (std::int64_t j = 0; j < tile.keys; ++j) scores[j] += row[j];
    }
  }

  /// The same as a float mask: [heads, seqlen, seqlen].
  Tensor mask() const {
    Tensor mask(DType::f32, {kExtrasHeads, kExtrasSeqlen, kExtrasSeqlen});
    for (std::int64_t head = 0; head < kExtrasHeads; ++head) {
      for (std::int64_t row = 0; row < kExtrasSeqlen; ++row)
        std::copy_n(&bias_.at<float>(head, kExtrasSeqlen - 1 - row), kExtrasSeqlen, &mask.at<float>(head, row, 0));
    }
    return mask;
  }

 private:
  Tensor bias_;
};

/// Documents of equal length that do not see each other.
struct Documents {
  static constexpr std::int64_t kLength = 320;

  static std::int64_t begin_of(std::int64_t index) { return index / kLength * kLength; }

  static void hide_others(void*, const ScoreTile& tile) {
    for (std::int64_t i = 0; i < tile.rows; ++i) {
      const std::int64_t begin = begin_of(tile.first_row + i) - tile.first_key;
      float* const scores = tile.row<float>(i);
      for (std::int64_t j = 0; j < tile.keys; ++j)
        if (j < begin || j >= begin + kLength) scores[j] = -std::numeric_limits<float>::infinity();
    }
  }

  static BlockEffect effect(void*, const ScoreBlock& block) {
    const std::int64_t rows_begin = begin_of(block.first_row),
                       rows_last = begin_of(block.first_row + block.rows - 1);
    const std::int64_t keys_begin = begin_of(block.first_key),
                       keys_last = begin_of(block.first_key + block.keys - 1);
    if (rows_last < keys_begin || keys_last < rows_begin) return BlockEffect::skip;
    return rows_begin == keys_last && rows_last == keys_begin ? BlockEffect::full : BlockEffect::partial;
  }
};

/// The bucket of a distance in T5 (arXiv:1910.10683): near distances have separate buckets, far ones share
/// increasingly wide buckets.
std::int64_t t5_bucket(std::int64_t distance) {
  constexpr std::int64_t kSide = 16, kExact = 8, kFarthest = 128;
  const std::int64_t side = distance > 0 ? kSide : 0, length = std::abs(distance);
  if (length < kExact) return side + length;
  const double far = std::log(static_cast<double>(length) / kExact) / std::log(double{kFarthest} / kExact);
  return side + std::min<std::int64_t>(kExact + static_cast<std::int64_t>(far * kExact), kSide - 1);
}

/// Times a call with a score modifier against one with the library's equivalent option. The results are equal up
/// to rounding, and o of the first is compared with the reference.
template <class BuiltIn>
std::vector<Line> measure_modifier(const std::string& name, AttentionOptions options, const BuiltIn& built_in,
                                   const Conditions& conditions) {
  const Shape shape{1, kExtrasHeads, kExtrasSeqlen, kExtrasHeadDim};
  const Tensor q = draw(shape, 1), k = draw(shape, 2), v = draw(shape, 3);
  Tensor o(DType::f32, shape);
  std::vector<Line> lines;
  for (const int threads : conditions.threads) {
    options.num_threads = threads;
    const Timing timing = measure(
        conditions.effort, [&] { attention(q, k, v, o, options); },
        [&] { return seconds_of([&] { built_in(q, k, v, threads); }); });
    lines.push_back({name,
                     threads,
                     timing.seconds,
                     {{"times_built_in", 1 / timing.share, 3}},
                     rows_agree(q, k, v, o, options, {{0, 0, 0}, {0, kExtrasHeads - 1, kExtrasSeqlen - 1}})});
  }
  return lines;
}

std::vector<Line> measure_bias(const std::string& name, DistanceBias bias, const Conditions& conditions) {
  const Tensor mask = bias.mask();
  Tensor o(DType::f32, {1, kExtrasHeads, kExtrasSeqlen, kExtrasHeadDim});
  return measure_modifier(
      name, {.score_modifier = DistanceBias::add, .score_context = &bias},
      [&](const Tensor& q, const Tensor& k, const Tensor& v, int threads) {
        attention(q, k, v, o, {.mask = mask, .num_threads = threads});
      },
      conditions);
}

std::vector<Line> measure_relative_bias(const Conditions& conditions) {
  return measure_bias("relative-position bias, compared with a float mask",
                      DistanceBias([](std::int64_t head, std::int64_t distance) {
                        return static_cast<float>(std::sin(0.01 * static_cast<double>((head + 1) * distance)));
                      }),
                      conditions);
}

std::vector<Line> measure_t5(const Conditions& conditions) {
  const Tensor table = draw({kExtrasHeads, 32}, 4);
  return measure_bias("T5 buckets, compared with a float mask",
                      DistanceBias([&](std::int64_t head, std::int64_t distance) {
                        return table.at<float>(head, t5_bucket(distance));
                      }),
                      conditions);
}

std::vector<Line> measure_documents(const Conditions& conditions) {
  std::vector<std::int64_t> begins;
  for (std::int64_t begin = 0; begin < kExtrasSeqlen; begin += Documents::kLength) begins.push_back(begin);
  begins.push_back(kExtrasSeqlen);
  const TensorView cu_seqlens(begins.data(), {static_cast<std::int64_t>(begins.size())});
  Tensor o(DType::f32, {kExtrasSeqlen, kExtrasHeads, kExtrasHeadDim});
  return measure_modifier(
      "mask of 7 documents, compared with a packed batch",
      {.score_modifier = Documents::hide_others, .score_block_effect = Documents::effect},
      [&](const Tensor& q, const Tensor& k, const Tensor& v, int threads) {
        const auto packed = [](const Tensor& tensor) { return tensor.view().select(0, 0).transposed(0, 1); };
        attention(packed(q), packed(k), packed(v), o,
                  {.cu_seqlens_q = cu_seqlens, .cu_seqlens_k = cu_seqlens, .num_threads = threads});
      },
      conditions);
}

}  // namespace

Section inspect_section() {
  return {"inspect", "inspection, f32", {"times attention alone"}, {measure_inspection}};
}

Section modifier_section() {
  return {"modifiers",
          "score modifiers, f32, heads 8, seqlen 2048, head_dim 64",
          {"times built in"},
          {measure_relative_bias, measure_documents, measure_t5}};
}

}  // namespace saccade::cli::bench
