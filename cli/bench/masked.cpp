// Hidden keys cost nothing: windows, packed documents, a million tokens.
#include <fmt/format.h>
#include <saccade/random.h>
#include <saccade/runtime.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "agreement.h"
#include "sections.h"
#include "timed_problem.h"

namespace saccade::cli::bench {
namespace {

// ---- Windows -------------------------------------------------------------------------------------------------

/// Query rows of a tile of each instruction set.
std::int64_t tile_rows() {
  if (active_isa() == Isa::scalar) return 4;
  return active_isa() == Isa::avx2 ? 6 : 12;
}

/// The pairs of query and key of one head that tiles must compute: Q K^T computes groups of 32 keys for the rows
/// of a tile, P V the keys that a row of the tile sees. Each is half of the work on a pair.
double pairs_of_tiles(std::int64_t seqlen, std::int64_t left, std::int64_t right) {
  constexpr std::int64_t kColumns = 32;
  const std::int64_t tile = tile_rows();
  double pairs = 0.0;
  for (std::int64_t row = 0; row < seqlen; row += tile) {
    const std::int64_t last = std::min(row + tile, seqlen) - 1;
    const std::int64_t begin = std::max<std::int64_t>(row - left, 0), end = std::min(last + right + 1, seqlen);
    const std::int64_t columns = (end + kColumns - 1) / kColumns * kColumns - begin / kColumns * kColumns;
    pairs += static_cast<double>(last + 1 - row) * static_cast<double>(columns + end - begin) / 2;
  }
  return pairs;
}

cases::Problem self_attention(std::int64_t heads, std::int64_t seqlen) {
  cases::Problem problem;
  problem.num_heads = problem.num_kv_heads = heads;
  problem.seqlen_q = problem.seqlen_k = seqlen;
  return problem;
}

std::vector<Line> measure_window(std::int64_t left, std::int64_t right, const Conditions& conditions) {
  constexpr std::int64_t kHeads = 4, kSeqlen = 16384, kDense = 4096;
  cases::Problem windowed = self_attention(kHeads, kSeqlen);
  windowed.options.window_left = left;
  windowed.options.window_right = right;
  TimedProblem dense(self_attention(kHeads, kDense)), window(windowed);
  const double pairs = pairs_of_tiles(kSeqlen, left, right);
  std::vector<Line> lines;
  for (const int threads : conditions.threads) {
    const auto bound = [&] {
      return seconds_of([&] { dense.run(threads); }) * pairs / static_cast<double>(kDense * kDense);
    };
    const Timing timing = measure(
        conditions.effort, [&] { window.run(threads); }, bound);
    lines.push_back(
        {fmt::format("heads {}, seqlen {}, head_dim 64, window ({}, {})", kHeads, kSeqlen, left, right),
         threads,
         timing.seconds,
         {{"times_bound", 1 / timing.share, 3}},
         window.agrees()});
  }
  return lines;
}

// ---- Packed documents ----------------------------------------------------------------------------------------

struct Tensors {
  Tensors(const Shape& shape, std::uint64_t seed)
      : q(draw(shape, seed)), k(draw(shape, seed + 1)), v(draw(shape, seed + 2)), o(DType::f32, shape) {}

  static Tensor draw(const Shape& shape, std::uint64_t seed) {
    return TorchGenerator(seed).uniform(shape, -1.0F, 1.0F);
  }

  Tensor q, k, v, o;
};

std::vector<Line> measure_packed(const Conditions& conditions) {
  constexpr std::int64_t kHeads = 8, kHeadDim = 64;
  constexpr std::array<std::int64_t, 16> kLengths{64,  128, 192, 256, 320, 384, 448, 512,
                                                  512, 576, 640, 704, 768, 832, 896, 960};
  Tensor begins(DType::i64, {kLengths.size() + 1});
  std::partial_sum(kLengths.begin(), kLengths.end(), begins.values<std::int64_t>().begin() + 1);
  const std::int64_t total = begins.values<std::int64_t>().back();
  Tensors packed({total, kHeads, kHeadDim}, 1), alone({total, kHeads, kHeadDim}, 1);

  const auto run_alone = [&](int threads) {
    for (std::size_t i = 0; i < kLengths.size(); ++i) {
      const std::int64_t begin = begins.values<std::int64_t>()[i], end = begin + kLengths[i];
      const auto part = [&](const Tensor& tensor) { return tensor.view().slice(0, begin, end); };
      attention(part(alone.q), part(alone.k), part(alone.v), alone.o.mutable_view().slice(0, begin, end),
                {.layout = Layout::bshd, .num_threads = threads});
    }
  };
  const auto run_packed = [&](int threads) {
    attention(packed.q, packed.k, packed.v, packed.o,
              {.cu_seqlens_q = begins, .cu_seqlens_k = begins, .num_threads = threads});
  };
  std::vector<Line> lines;
  for (const int threads : conditions.threads) {
    const Timing timing = measure(
        conditions.effort, [&] { run_packed(threads); }, [&] { return seconds_of([&] { run_alone(threads); }); });
    lines.push_back({"16 documents of 64 to 960 rows, 8192 together, heads 8, head_dim 64",
                     threads,
                     timing.seconds,
                     {{"times_alone", 1 / timing.share, 3}},
                     std::ranges::equal(packed.o.values<float>(), alone.o.values<float>())});
  }
  return lines;
}

// ---- A million tokens ----------------------------------------------------------------------------------------

/// Numbers that repeat after 4096 rows, made without extra memory.
Tensor repeated(const Shape& shape, std::uint64_t seed) {
  Tensor tensor(DType::f32, shape);
  const Tensor numbers = Tensors::draw({4096, shape.back()}, seed);
  const auto to = tensor.values<float>();
  for (std::size_t i = 0; i < to.size(); i += numbers.values<float>().size())
    std::ranges::copy(numbers.values<float>(), to.begin() + static_cast<std::ptrdiff_t>(i));
  return tensor;
}

std::vector<Line> measure_long(const Conditions& conditions) {
  constexpr std::int64_t kSeqlen = 1 << 20, kWindow = 1024;
  const int threads = conditions.threads.back();
  const AttentionOptions options{.window_left = kWindow, .window_right = 0, .num_threads = threads};
  const Shape shape{1, 1, kSeqlen, 64};
  const Tensor q = repeated(shape, 1), k = repeated(shape, 2), v = repeated(shape, 3);
  Tensor o = repeated(shape, 4);
  double seconds = 0.0;
  const double extra = extra_memory([&] { seconds = seconds_of([&] { attention(q, k, v, o, options); }); });
  return {{fmt::format("seqlen {}, head_dim 64, window ({}, 0)", kSeqlen, kWindow),
           threads,
           seconds,
           {{"extra_mebibytes", extra / (1 << 20), 1}},
           rows_agree(q, k, v, o, options, {{0, 0, 0}, {0, 0, kSeqlen - 1}})}};
}

}  // namespace

Section window_section() {
  Section section{"window", "sliding windows, f32", {"times the bound"}, {}};
  for (const std::int64_t right : {0, 256})
    section.items.push_back(
        [right](const Conditions& conditions) { return measure_window(256, right, conditions); });
  return section;
}

Section packed_section() { return {"packed", "packed batch, f32", {"times one by one"}, {measure_packed}}; }

Section long_section() { return {"long", "a million tokens, f32", {"extra memory, MiB"}, {measure_long}}; }

}  // namespace saccade::cli::bench
