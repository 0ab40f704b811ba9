// attention() over lengths, head dimensions and options: micro-benchmarks in addition to `saccade bench`, for
// comparing two builds (with --benchmark_out and Google Benchmark's compare.py).
#include "saccade/attention.h"

#include <benchmark/benchmark.h>

#include "saccade/operations.h"
#include "saccade/random.h"

namespace saccade {
namespace {

Tensor draw(const Shape& shape, std::uint64_t seed) { return TorchGenerator(seed).uniform(shape, -1.0f, 1.0f); }

void run(benchmark::State& state, std::int64_t heads, std::int64_t seqlen, std::int64_t head_dim,
         const AttentionOptions& options) {
  const Shape shape{heads, seqlen, head_dim};
  const Tensor q = draw(shape, 1), k = draw(shape, 2), v = draw(shape, 3);
  Tensor o(DType::f32, shape);
  for ([[maybe_unused]] auto iteration : state) {
    attention(q, k, v, o, options);
    benchmark::ClobberMemory();
  }
  const double flops = attention_operations(q, k, v, options);
  state.counters["FLOP/s"] = benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate);
}

void full(benchmark::State& state) { run(state, 4, state.range(0), state.range(1), {.num_threads = 1}); }
BENCHMARK(full)->ArgsProduct({{128, 1024, 4096}, {64, 80, 128}})->Unit(benchmark::kMillisecond);

void causal(benchmark::State& state) {
  run(state, 4, state.range(0), state.range(1), {.causal = Causal::top_left, .num_threads = 1});
}
BENCHMARK(causal)->ArgsProduct({{1024, 4096}, {64, 128}})->Unit(benchmark::kMillisecond);

void window(benchmark::State& state) {
  run(state, 4, 4096, 64, {.window_left = state.range(0), .window_right = 0, .num_threads = 1});
}
BENCHMARK(window)->Arg(64)->Arg(256)->Arg(1024)->Unit(benchmark::kMillisecond);

void float_mask(benchmark::State& state) {
  const Tensor mask = draw({1024, 1024}, 4);
  run(state, 4, 1024, 64, {.mask = mask, .num_threads = 1});
}
BENCHMARK(float_mask)->Unit(benchmark::kMillisecond);

void softcap(benchmark::State& state) { run(state, 4, 1024, 64, {.softcap = 30.0, .num_threads = 1}); }
BENCHMARK(softcap)->Unit(benchmark::kMillisecond);

void dropout(benchmark::State& state) { run(state, 4, 1024, 64, {.dropout_p = 0.1, .num_threads = 1}); }
BENCHMARK(dropout)->Unit(benchmark::kMillisecond);

void six_by_four(benchmark::State& state) {
  const Tensor x = draw({6, 4}, 1);
  Tensor o(DType::f32, {6, 4});
  const TensorView view = x;
  const MutableTensorView out = o;
  for ([[maybe_unused]] auto iteration : state) {
    attention(view, view, view, out);
    benchmark::ClobberMemory();
  }
}
BENCHMARK(six_by_four);

}  // namespace
}  // namespace saccade
