// What dividing a call costs besides the call: with one rank, and the ranks' agreement on arguments.
#include <benchmark/benchmark.h>
#include <saccade/distributed.h>
#include <saccade/random.h>

#include <thread>

namespace {

using namespace saccade;
using distributed::Sharding;

struct Problem {
  explicit Problem(std::int64_t seqlen) {
    TorchGenerator random(1);
    q = random.randn({8, seqlen, 64}), k = random.randn({8, seqlen, 64}), v = random.randn({8, seqlen, 64});
    o = Tensor(DType::f32, q.shape());
  }

  Tensor q, k, v, o;
  AttentionOptions options{.causal = Causal::top_left, .num_threads = 1};
};

void BM_Attention(benchmark::State& state) {
  Problem p(state.range(0));
  for (auto _ : state) attention(p.q, p.k, p.v, p.o, p.options);
}

void BM_OneRank(benchmark::State& state) {
  Problem p(state.range(0));
  const auto ranks = distributed::local_communicators(1);
  const distributed::ParallelConfig division{.rows = Sharding::contiguous(state.range(0), 1)};
  for (auto _ : state) distributed::attention(*ranks[0], p.q, p.k, p.v, p.o, division, p.options);
}

/// A call without rows: nothing but the agreement. Rank 0 counts.
void BM_Agreement(benchmark::State& state) {
  const auto size = static_cast<int>(state.range(0));
  const auto ranks = distributed::local_communicators(size);
  const distributed::ParallelConfig division{.rows = Sharding::contiguous(0, size)};
  constexpr int kCalls = 200;
  const auto call = [&](distributed::Communicator& rank) {
    Problem p(0);
    for (int i = 0; i < kCalls; ++i) distributed::attention(rank, p.q, p.k, p.v, p.o, division, p.options);
  };
  for (auto _ : state) {
    std::vector<std::jthread> threads;
    for (int i = 1; i < size; ++i) threads.emplace_back([&, i] { call(*ranks[static_cast<std::size_t>(i)]); });
    const auto start = std::chrono::steady_clock::now();
    call(*ranks[0]);
    state.SetIterationTime(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() /
                           kCalls);
  }
}

BENCHMARK(BM_Attention)->Arg(256)->Arg(1024)->Arg(4096)->UseRealTime();
BENCHMARK(BM_OneRank)->Arg(256)->Arg(1024)->Arg(4096)->UseRealTime();
BENCHMARK(BM_Agreement)->Arg(2)->Arg(4)->Arg(8)->UseManualTime()->Iterations(5);

}  // namespace
