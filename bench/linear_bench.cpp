// linear() at the sizes of a transformer's projections, with both layouts of the weight.
#include "saccade/linear.h"

#include <benchmark/benchmark.h>

#include "saccade/random.h"

namespace saccade {
namespace {

void run(benchmark::State& state, WeightLayout layout) {
  const std::int64_t rows = state.range(0), d_in = state.range(1), d_out = state.range(2);
  const Tensor x = TorchGenerator(1).rand({rows, d_in});
  const bool in_out = layout == WeightLayout::in_out;
  const Tensor weight = TorchGenerator(2).rand(in_out ? Shape{d_in, d_out} : Shape{d_out, d_in});
  Tensor y(DType::f32, {rows, d_out});
  for ([[maybe_unused]] auto iteration : state) {
    linear(x, weight, y, {.weight_layout = layout, .num_threads = 1});
    benchmark::ClobberMemory();
  }
  const double flops = 2.0 * static_cast<double>(rows * d_in) * static_cast<double>(d_out);
  state.counters["FLOP/s"] = benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate);
}

void out_in(benchmark::State& state) { run(state, WeightLayout::out_in); }
void in_out(benchmark::State& state) { run(state, WeightLayout::in_out); }
BENCHMARK(out_in)->Args({6, 3, 4})->Args({1, 768, 768})->Args({1024, 768, 768})->Args({1024, 768, 3072});
BENCHMARK(in_out)->Args({6, 3, 4})->Args({1, 768, 768})->Args({1024, 768, 768})->Args({1024, 768, 3072});

}  // namespace
}  // namespace saccade
