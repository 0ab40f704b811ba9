// The cost of inspect(), compared with the attention() whose weights it describes.
#include "saccade/inspect.h"

#include <benchmark/benchmark.h>

#include "saccade/random.h"

namespace saccade {
namespace {

Tensor draw(const Shape& shape, std::uint64_t seed) { return TorchGenerator(seed).uniform(shape, -1.0f, 1.0f); }

/// attention() alone (0), or followed by inspect() with one statistic or (last) with all of them.
void inspection(benchmark::State& state) {
  const Shape shape{12, state.range(0), 64};
  const Tensor q = draw(shape, 1), k = draw(shape, 2), v = draw(shape, 3);
  Tensor o(DType::f32, shape), lse(DType::f32, {shape[0], shape[1]});
  const InspectOptions wanted[] = {{},
                                   {.entropy = true, .lse = lse},
                                   {.received = true, .lse = lse},
                                   {.top_k = 8, .lse = lse},
                                   {.pool_rows = 512, .pool_keys = 512, .lse = lse},
                                   {.rows = {0, 1, 2, 3},
                                    .top_k = 8,
                                    .entropy = true,
                                    .max_weight = true,
                                    .received = true,
                                    .distance = true,
                                    .pool_rows = 512,
                                    .pool_keys = 512,
                                    .lse = lse}};
  const char* const names[] = {"attention", "+ entropy", "+ received", "+ top 8", "+ map 512x512", "+ everything"};
  const auto which = static_cast<std::size_t>(state.range(1));
  state.SetLabel(names[which]);
  for ([[maybe_unused]] auto iteration : state) {
    attention(q, k, v, o, {.lse = lse, .num_threads = 1});
    if (which > 0) benchmark::DoNotOptimize(inspect(q, k, wanted[which], {.num_threads = 1}));
    benchmark::ClobberMemory();
  }
}
BENCHMARK(inspection)->ArgsProduct({{1024, 4096}, {0, 1, 2, 3, 4, 5}})->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace saccade
