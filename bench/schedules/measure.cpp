// Measures the costs of units of work on this machine: the library's schedules run on one thread, with kernels
// that call the library's and take the time. Prints them in the format of costs.h. Usage: measure_schedules
// f32|bf16
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <iostream>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/memory.h"
#include "core/parallel.h"
#include "costs.h"
#include "cpu/policy/selection.h"
#include "cpu/schedule/schedules.h"
#include "fit.h"
#include "problems.h"
#include "saccade/runtime.h"
#include "tiles.h"

namespace saccade::simulation {
namespace {

using cpu::BackwardKernels;
using cpu::DecodeKernels;
using cpu::DecodeRows;
using cpu::ForwardKernels;
using cpu::KeyBlock;
using cpu::PackedKeys;
using cpu::QueryRows;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// What reading the clock twice takes.
double clock_seconds() {
  static const double seconds = [] {
    double least = 1.0;
    for (int i = 0; i < 1000; ++i) {
      const double begin = now();
      least = std::min(least, now() - begin);
    }
    return least;
  }();
  return seconds;
}

/// The calls of a kernel during one problem, which is repeated: the least time of each call counts.
template <std::size_t N>
class Calls {
 public:
  template <class F>
  auto time(const std::array<double, N>& work, const F& call) {
    struct Timer {
      Calls& calls;
      const std::array<double, N>& work;
      double begin = now();
      ~Timer() { calls.add(work, std::max(now() - begin - clock_seconds(), 1e-9)); }
    };
    const Timer timer{*this, work};
    return call();
  }

  void begin_repetition() { next_ = 0; }
  void begin_problem() { first_ = samples_.size(), next_ = 0; }
  std::array<double, N> costs() const { return fit(samples_); }

 private:
  void add(const std::array<double, N>& work, double seconds) {
    const std::size_t at = first_ + next_++;
    if (at == samples_.size()) samples_.push_back({work, seconds});
    samples_[at].seconds = std::min(samples_[at].seconds, seconds);
  }

  std::vector<Sample<N>> samples_;
  std::size_t first_ = 0, next_ = 0;
};

struct AllCalls {
  Calls<1> pack, statistics, write, begin, end, park, merge;
  Calls<2> keys, rows, split;
  Calls<3> logits;
  Calls<4> attend;

  template <class F>
  void for_each(const F& f) {
    f(pack), f(statistics), f(write), f(begin), f(end), f(park), f(merge), f(keys), f(rows), f(split), f(logits),
        f(attend);
  }
};

AllCalls calls;
ForwardKernels forward;  // the library's
BackwardKernels backward;
DecodeKernels decode;
cpu::ForwardPlan forward_plan;
cpu::BackwardPlan backward_plan;
cpu::DecodePlan decode_plan;

constexpr std::size_t kPlaces = 8;
Memory parked;  // kPlaces times backward_plan.parked

template <class... Numbers>
std::array<double, sizeof...(Numbers)> work(Numbers... numbers) {
  return {static_cast<double>(numbers)...};
}

const ForwardKernels kTimedForward{
    .plan = [](const AttentionParams& p) { return forward_plan = forward.plan(p); },
    .pack_block =
        [](const AttentionParams& p, std::int64_t batch, std::int64_t head, std::int64_t block, KeyRange readable,
           void* packed) {
          calls.pack.time(work(count(keys_of_block(p, batch, block, forward_plan.block_k))),
                          [&] { forward.pack_block(p, batch, head, block, readable, packed); });
        },
    .attend =
        [](const AttentionParams& p, const QueryRows& rows, const PackedKeys& keys, void* scratch) {
          const Tiles tiles = tiles_of(p, rows, forward_plan.tile_q, {0, p.kv_length(rows.batch)});
          calls.attend.time(work(1, tiles.rows, tiles.pairs, tiles.edges),
                            [&] { forward.attend(p, rows, keys, scratch); });
        },
    .state_bytes = nullptr,
    .resume = nullptr,
    .finish = nullptr};

const BackwardKernels kTimedBackward{
    .plan =
        [](const BackwardParams& b) {
          backward_plan = backward.plan(b);
          parked = Memory(kPlaces * backward_plan.parked);
          return backward_plan;
        },
    .statistics =
        [](const BackwardParams& b, const QueryRows& rows, void* statistics) {
          return calls.statistics.time(work(row_count(b.attention, rows)),
                                       [&] { return backward.statistics(b, rows, statistics); });
        },
    .begin =
        [](const BackwardParams& b, const KeyBlock& keys, void* scratch) {
          calls.begin.time(work(count(keys_of_block(b, keys, backward_plan))),
                           [&] { backward.begin(b, keys, scratch); });
        },
    .logits =
        [](const BackwardParams& b, const KeyBlock& keys, const QueryRows& rows, const void* statistics,
           void* scratch, double& dslope) {
          const Tiles tiles = tiles_of(b, keys, rows, backward_plan);
          return calls.logits.time(work(1, tiles.pairs, tiles.edges),
                                   [&] { return backward.logits(b, keys, rows, statistics, scratch, dslope); });
        },
    .keys =
        [](const BackwardParams& b, const KeyBlock& keys, const QueryRows& rows, bool masked_safe, void* scratch) {
          calls.keys.time(work(1, tiles_of(b, keys, rows, backward_plan).pairs),
                          [&] { backward.keys(b, keys, rows, masked_safe, scratch); });
        },
    .rows =
        [](const BackwardParams& b, const KeyBlock& keys, const QueryRows& rows, bool masked_safe, void* scratch,
           void* dq) {
          const double pairs = static_cast<double>(tiles_of(b, keys, rows, backward_plan).pairs);
          // In a place of its own for each, as in a schedule: these are not in the cache of the first level.
          const std::size_t place = static_cast<std::size_t>(rows.row / backward_plan.block_q) % kPlaces;
          const auto to = parked.data() + place * backward_plan.parked;
          calls.park.time({pairs}, [&] { return backward.park(b, keys, rows, scratch, to); });
          calls.rows.time({1.0, pairs}, [&] { backward.rows(b, keys, rows, masked_safe, scratch, dq); });
        },
    .end =
        [](const BackwardParams& b, const KeyBlock& keys, void* scratch) {
          return calls.end.time(work(count(keys_of_block(b, keys, backward_plan))),
                                [&] { return backward.end(b, keys, scratch); });
        },
    .write =
        [](const BackwardParams& b, const QueryRows& rows, const void* dq) {
          return calls.write.time(work(row_count(b.attention, rows)), [&] { return backward.write(b, rows, dq); });
        }};

const DecodeKernels kTimedDecode{
    .plan = [](const AttentionParams& p) { return decode_plan = decode.plan(p); },
    .split =
        [](const AttentionParams& p, const DecodeRows& rows, std::int64_t split, void* states, void* scratch) {
          const std::int64_t keys = count(keys_of_block(p, rows.batch, split, decode_plan.split));
          calls.split.time(work(1, rows.kv_heads * keys), [&] { decode.split(p, rows, split, states, scratch); });
        },
    .merge =
        [](const AttentionParams& p, const DecodeRows& rows, const void* states, std::int64_t first,
           std::int64_t splits, void* scratch) {
          calls.merge.time(work(rows.kv_heads * rows.count * splits),
                           [&] { decode.merge(p, rows, states, first, splits, scratch); });
        }};

/// Memory for the tensors of a call.
class Tensors {
 public:
  /// For `numbers` numbers of `dtype`, which are drawn from [-1, 1).
  void* draw(std::int64_t numbers, DType dtype) {
    memory_.emplace_back(static_cast<std::size_t>(numbers) * sizeof(float));
    void* const data = memory_.back().data();
    for (std::int64_t i = 0; i < numbers; ++i) {
      const float number = static_cast<float>(static_cast<double>(generator_()) * 0x1p-30 - 1.0);
      if (dtype == DType::f32)
        static_cast<float*>(data)[i] = number;
      else
        static_cast<bfloat16*>(data)[i] = bfloat16(number);
    }
    return data;
  }

 private:
  std::minstd_rand generator_;
  std::vector<Memory> memory_;
};

void set_memory(AttentionParams& p, const Problem& problem, DType dtype, Tensors& tensors) {
  const std::int64_t q = problem.batch * problem.heads * problem.rows * problem.head_dim;
  const std::int64_t k = problem.batch * problem.kv_heads * problem.keys * problem.head_dim;
  p.q.data = tensors.draw(q, dtype), p.o.data = tensors.draw(q, dtype);
  p.k.data = tensors.draw(k, dtype), p.v.data = tensors.draw(k, dtype);
}

/// Repeats `call`, which is all work of a problem.
template <class F>
void repeat(const F& call) {
  constexpr int kRepetitions = 7;
  calls.for_each([](auto& of_kernel) { of_kernel.begin_problem(); });
  for (int i = 0; i < kRepetitions; ++i) {
    calls.for_each([](auto& of_kernel) { of_kernel.begin_repetition(); });
    call();
  }
}

void measure_attention(const Problem& problem, DType dtype) {
  Tensors tensors;
  AttentionParams p = attention_params(problem, dtype);
  set_memory(p, problem, dtype, tensors);
  const cpu::KernelSet& level = cpu::active_kernels();
  if (problem.pass == Pass::decode) {
    decode = cpu::decode_kernels(level, p);
    return repeat([&] { run_decode(kTimedDecode, p); });
  }
  forward = cpu::forward_kernels(level, p);
  if (problem.pass == Pass::forward) return repeat([&] { run_forward(kTimedForward, p); });

  const std::int64_t rows = problem.batch * problem.heads * problem.rows;
  p.lse = {tensors.draw(rows, DType::f32), DType::f32, problem.heads * problem.rows, problem.rows, 1};
  run_forward(forward, p);
  BackwardParams b = backward_params(problem, dtype);
  b.attention.q = p.q, b.attention.k = p.k, b.attention.v = p.v;
  b.lse.data = p.lse.data, b.o.data = p.o.data;
  b.dout.data = tensors.draw(rows * problem.head_dim, dtype);
  b.dq.data = tensors.draw(rows * problem.head_dim, dtype);
  const std::int64_t keys = problem.batch * problem.kv_heads * problem.keys;
  b.dk.data = tensors.draw(keys * problem.head_dim, dtype),
  b.dv.data = tensors.draw(keys * problem.head_dim, dtype);
  backward = cpu::backward_kernels(level, b);
  repeat([&] { run_backward(kTimedBackward, b); });
}

/// From the end of a turn of `seconds` of one thread until the other goes on: the median.
double seconds_between_turns(double seconds, int turns) {
  std::atomic<std::int64_t> turn = 0;
  std::vector<double> waits;
  double end_of_turn = 0.0;
  run_on_threads(2, [&](int thread) {
    for (std::int64_t i = thread; i < turns; i += 2) {
      wait_for(turn, i);
      if (i > 1) waits.push_back(now() - end_of_turn);
      for (const double begin = now(); now() - begin < seconds;) continue;
      end_of_turn = now();
      turn.fetch_add(1);
      turn.notify_all();
    }
  });
  const auto middle = waits.begin() + static_cast<std::ptrdiff_t>(waits.size() / 2);
  std::ranges::nth_element(waits, middle);
  return *middle;
}

ThreadCosts measure_threads() {
  constexpr double kPollingSeconds = std::chrono::duration<double>(kPolling).count();
  ThreadCosts costs{.team = 1.0,
                    .notice = seconds_between_turns(0.05 * kPollingSeconds, 200),
                    .wake = seconds_between_turns(5 * kPollingSeconds, 50)};
  for (int i = 0; i < 2000; ++i) {
    const double begin = now();
    run_on_threads(2, [](int) {});
    costs.team = std::min(costs.team, now() - begin);
  }
  return costs;
}

UnitCosts measure(DType dtype) {
  const ThreadLimit one(1);
  using enum Pass;
  const Problem measured[] = {
      {.name = "", .heads = 2, .kv_heads = 2, .rows = 2048, .keys = 2048},
      {.name = "", .heads = 2, .kv_heads = 2, .rows = 2048, .keys = 2048, .causal = true},
      {.name = "", .batch = 4, .heads = 12, .kv_heads = 12, .rows = 128, .keys = 128},
      {.name = "", .pass = backward, .heads = 2, .kv_heads = 2, .rows = 2048, .keys = 2048},
      {.name = "", .pass = backward, .heads = 2, .kv_heads = 2, .rows = 2048, .keys = 2048, .causal = true},
      {.name = "", .pass = backward, .batch = 4, .heads = 12, .kv_heads = 12, .rows = 128, .keys = 128},
      {.name = "", .pass = decode, .heads = 32, .rows = 1, .keys = 16384, .head_dim = 128},
      {.name = "", .pass = decode, .batch = 8, .heads = 32, .rows = 1, .keys = 1024, .head_dim = 128},
  };
  for (const Problem& problem : measured) measure_attention(problem, dtype);
  UnitCosts costs;
  costs.title =
      std::string(name_of(dtype)) + ", " + std::string(name_of(cpu::active_kernels().isa)) + ", " + cpu_name();
  costs.forward.plan = forward_plan, costs.backward.plan = backward_plan, costs.decode.plan = decode_plan;
  costs.forward.pack_key = calls.pack.costs()[0];
  const auto [attend, rows, pair, edge] = calls.attend.costs();
  costs.forward.call = attend, costs.forward.rows = rows, costs.forward.pair = pair, costs.forward.edge = edge;
  BackwardCosts& of_backward = costs.backward;
  of_backward.statistics_row = calls.statistics.costs()[0], of_backward.write_row = calls.write.costs()[0];
  of_backward.begin_key = calls.begin.costs()[0], of_backward.end_key = calls.end.costs()[0];
  const auto logits = calls.logits.costs();
  of_backward.logits_call = logits[0], of_backward.logits_pair = logits[1], of_backward.logits_edge = logits[2];
  const auto of_keys = calls.keys.costs(), of_rows = calls.rows.costs(), of_split = calls.split.costs();
  of_backward.keys_call = of_keys[0], of_backward.keys_pair = of_keys[1];
  of_backward.rows_call = of_rows[0], of_backward.rows_pair = of_rows[1];
  of_backward.park_pair = calls.park.costs()[0];
  costs.decode.split_call = of_split[0], costs.decode.split_key = of_split[1];
  costs.decode.merge_state = calls.merge.costs()[0];
  costs.threads = measure_threads();
  return costs;
}

}  // namespace
}  // namespace saccade::simulation

int main(int count, char** arguments) {
  const std::string type = count == 2 ? arguments[1] : "";
  if (type != "f32" && type != "bf16") return std::fputs("measure_schedules: expected f32 or bf16\n", stderr), 2;
  saccade::simulation::write_costs(
      std::cout, saccade::simulation::measure(type == "f32" ? saccade::DType::f32 : saccade::DType::bf16));
}
