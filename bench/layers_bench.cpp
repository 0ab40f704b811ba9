// Layers and optimisers at the sizes of a small language model, on one thread. B/s counts each operand once.
#include "saccade/layers.h"

#include <benchmark/benchmark.h>

#include <cstring>
#include <utility>

#include "saccade/optim.h"
#include "saccade/runtime.h"

namespace saccade {
namespace {

constexpr std::int64_t kRows = 2048;

/// Counts the bytes of `operands` tensors [kRows, range(0)].
void count_bytes(benchmark::State& state, int operands) {
  state.counters["B/s"] = benchmark::Counter(4.0 * operands * static_cast<double>(kRows * state.range(0)),
                                             benchmark::Counter::kIsIterationInvariantRate);
}

Tensor random_rows(const benchmark::State& state) { return TorchGenerator(1).randn({kRows, state.range(0)}); }

/// A plain copy, for comparison.
void copy_rows(benchmark::State& state) {
  const Tensor x = random_rows(state);
  Tensor y(DType::f32, x.shape());
  for ([[maybe_unused]] auto iteration : state) {
    std::memcpy(y.data(), x.data(), x.bytes());
    benchmark::ClobberMemory();
  }
  count_bytes(state, 2);
}

template <class Layer>
void run_forward(benchmark::State& state, Layer layer, int operands) {
  set_num_threads(1);
  const Tensor x = random_rows(state);
  layer.eval();
  for ([[maybe_unused]] auto iteration : state) benchmark::DoNotOptimize(layer.forward(x));
  count_bytes(state, operands);
}

/// Forward and backward of a layer in training.
template <class Layer>
void run_both(benchmark::State& state, Layer layer, int operands) {
  set_num_threads(1);
  const Tensor x = random_rows(state), dout = random_rows(state);
  for ([[maybe_unused]] auto iteration : state) {
    benchmark::DoNotOptimize(layer.forward(x));
    benchmark::DoNotOptimize(layer.backward(dout));
  }
  count_bytes(state, operands);
}

void layer_norm(benchmark::State& state) { run_forward(state, LayerNorm(state.range(0)), 2); }
void layer_norm_both(benchmark::State& state) { run_both(state, LayerNorm(state.range(0)), 6); }
void gelu(benchmark::State& state) { run_forward(state, Gelu(), 2); }
void gelu_both(benchmark::State& state) { run_both(state, Gelu(), 5); }
void dropout_both(benchmark::State& state) { run_both(state, Dropout(0.1), 4); }

void cross_entropy_and_gradient(benchmark::State& state) {
  set_num_threads(1);
  const Tensor logits = random_rows(state);
  Tensor targets(DType::i64, {kRows}), dlogits(DType::f32, logits.shape());
  for ([[maybe_unused]] auto iteration : state)
    benchmark::DoNotOptimize(cross_entropy(logits, targets, {.dlogits = dlogits}));
  count_bytes(state, 2);
}

/// Optimiser steps with a parameter of [kRows, range(0)].
template <class Make>
void run_steps(benchmark::State& state, const Make& make, int operands) {
  set_num_threads(1);
  Embedding module(kRows, state.range(0));
  module.zero_grad();
  auto optimizer = make(module);
  for ([[maybe_unused]] auto iteration : state) optimizer.step();
  count_bytes(state, operands);
}

void adamw(benchmark::State& state) {
  run_steps(
      state, [](Module& module) { return AdamW(module); }, 7);
}
void sgd(benchmark::State& state) {
  run_steps(
      state, [](Module& module) { return Sgd(module, {.momentum = 0.9}); }, 5);
}

void clip(benchmark::State& state) {
  set_num_threads(1);
  Embedding module(kRows, state.range(0));
  module.zero_grad();
  for ([[maybe_unused]] auto iteration : state) benchmark::DoNotOptimize(clip_grad_norm(module, 1.0));
  count_bytes(state, 1);
}

BENCHMARK(copy_rows)->Arg(128)->Arg(512);
BENCHMARK(layer_norm)->Arg(128)->Arg(512);
BENCHMARK(layer_norm_both)->Arg(128)->Arg(512);
BENCHMARK(gelu)->Arg(128)->Arg(512);
BENCHMARK(gelu_both)->Arg(128)->Arg(512);
BENCHMARK(dropout_both)->Arg(128)->Arg(512);
BENCHMARK(cross_entropy_and_gradient)->Arg(128)->Arg(512);
BENCHMARK(adamw)->Arg(128)->Arg(512);
BENCHMARK(sgd)->Arg(128)->Arg(512);
BENCHMARK(clip)->Arg(128)->Arg(512);

}  // namespace
}  // namespace saccade
