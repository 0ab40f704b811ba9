// Memory that runs out in attention, its gradients, decoding, inspection, states and caches.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cases/gradient_case.h"
#include "cases/random_case.h"
#include "faults/allocation_faults.h"
#include "saccade/attention.h"
#include "saccade/attention_state.h"
#include "saccade/backward.h"
#include "saccade/decode.h"
#include "saccade/inspect.h"
#include "saccade/kv_cache.h"
#include "saccade/linear.h"
#include "saccade/packed_linear.h"
#include "saccade/quantize.h"
#include "saccade/reference.h"
#include "saccade/rope.h"
#include "support/fault_count.h"
#include "support/refusal.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

using cases::AttentionCase;

/// Enough work for three threads, which share heads.
struct LargeProblem {
  explicit LargeProblem(DType dtype, std::int64_t rows = 300, std::int64_t keys = 300)
      : q(random_tensor({1, 4, rows, 64}, 1, dtype)),
        k(random_tensor({1, 2, keys, 64}, 2, dtype)),
        v(random_tensor({1, 2, keys, 64}, 3, dtype)) {}

  Tensor q, k, v;
};

constexpr DType kFloats[] = {DType::f32, DType::bf16, DType::f16, DType::f64};

// ---- Calls ---------------------------------------------------------------------------------------------------

/// All options and types, in small problems.
TEST(AllocationFaults, OfRandomProblems) {
  const ProblemRange problems = problems_of_test(1, 60);
  std::size_t failures = 0;  // the smallest problems allocate nothing
  for (std::uint64_t seed = problems.begin; seed < problems.end; ++seed) {
    const auto c = std::make_shared<AttentionCase>(cases::draw_case(seed));
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + cases::describe(*c));
    const TensorView q = std::as_const(c->q).view(), k = std::as_const(c->k).view(),
                     v = std::as_const(c->v).view();
    const auto result = [c] {
      std::string bits = bits_of(Tensor::copy_of(std::as_const(c->o).view()));
      for (const Tensor* more : {&c->lse, &c->weights, &c->scores}) bits += bits_of(*more);
      return bits;
    };
    failures += failures_of([&]() -> Operation {
      return {.run = [=] { attention(q, k, v, c->o.view(), c->options); }, .result = result};
    });
    if (!c->has_few_rows) continue;
    failures += failures_of([&]() -> Operation {
      return {.run = [=] { decode(q, k, v, c->o.view(), c->options); }, .result = result};
    });
  }
  EXPECT_GT(failures, 0U);
}

TEST(AllocationFaults, OfRandomGradients) {
  const ProblemRange problems = problems_of_test(1, 60);
  for (std::uint64_t seed = problems.begin; seed < problems.end; ++seed) {
    const auto c = std::make_shared<AttentionCase>(cases::draw_case(seed));
    if (!cases::has_gradients(*c)) continue;
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + cases::describe(*c));
    const auto gradients = std::make_shared<cases::CheckedGradients>(*c, seed);
    expect_survives([&]() -> Operation {
      return {.run = [=] { gradients->compute(); },
              .result =
                  [=] {
                    std::string bits;
                    for (const Tensor& gradient : gradients->results()) bits += bits_of(gradient);
                    return bits;
                  }};
    });
  }
}

TEST(AllocationFaults, OfAttentionOnThreads) {
  for (const DType dtype : kFloats) {
    SCOPED_TRACE(name_of(dtype));
    const LargeProblem p(dtype);
    expect_survives([&] {
      return giving([&] { return attention(p.q, p.k, p.v, {.causal = Causal::top_left, .num_threads = 3}); });
    });
  }
}

TEST(AllocationFaults, OfDecodeOnThreads) {
  for (const DType dtype : kFloats) {
    SCOPED_TRACE(name_of(dtype));
    const LargeProblem p(dtype, 2, 2 * kDecodeSplitKeys + 100);
    expect_survives([&] {
      return giving([&] { return decode(p.q, p.k, p.v, {.causal = Causal::bottom_right, .num_threads = 3}); });
    });
    expect_survives([&] { return giving([&] { return decode_states(p.q, p.k, p.v, {.num_threads = 3}); }); });
  }
}

TEST(AllocationFaults, OfMergingStates) {
  for (const DType dtype : kFloats) {
    SCOPED_TRACE(name_of(dtype));
    const LargeProblem p(dtype, 2, 2 * kDecodeSplitKeys + 100);
    const Tensor states = decode_states(p.q, p.k, p.v);
    failures_of([&]() -> Operation {
      const auto o = std::make_shared<Tensor>(dtype, p.q.shape());
      return {.run = [&, o] { merge_decode_states(p.q, p.k, p.v, states, *o, {.num_threads = 3}); },
              .result = [o] { return bits_of(*o); }};
    });
    std::vector<Tensor> parts, lses;
    for (int part = 0; part < 3; ++part) {
      parts.emplace_back(dtype, p.q.shape());
      lses.emplace_back(dtype == DType::f64 ? DType::f64 : DType::f32, Shape{1, 4, 2});
      attention(p.q, p.k.view().slice(2, 100 * part, 100 * part + 100),
                p.v.view().slice(2, 100 * part, 100 * part + 100), parts.back(), {.lse = lses.back()});
    }
    std::vector<PartialResult> given;
    for (std::size_t part = 0; part < 3; ++part) given.push_back({parts[part], lses[part]});
    failures_of([&]() -> Operation {
      const auto o = std::make_shared<Tensor>(dtype, p.q.shape());
      const auto lse = std::make_shared<Tensor>(lses[0].dtype(), lses[0].shape());
      return {.run = [&, o, lse] { merge_states(given, *o, *lse); },
              .result = [o, lse] { return bits_of(*o) + bits_of(*lse); }};
    });
  }
}

/// Its tasks throw nothing, so that the host's threads live on.
TEST(AllocationFaults, OfCallsOnAHostsThreads) {
  const LargeProblem p(DType::f32);
  const struct HostThreads {
    HostThreads() {
      set_parallel_for([](int tasks, const std::function<void(int)>& task) {
        std::vector<std::thread> threads;
        const SparedAllocations of_the_host;
        threads.reserve(static_cast<std::size_t>(tasks));
        for (int i = 0; i < tasks; ++i) threads.emplace_back([&task, i] { task(i); });
        for (std::thread& thread : threads) thread.join();
      });
    }
    ~HostThreads() { set_parallel_for({}); }
  } host;
  expect_survives([&] {
    return giving([&] { return attention(p.q, p.k, p.v, {.causal = Causal::top_left, .num_threads = 3}); });
  });
  expect_survives([&] { return giving([&] { return decode_states(p.q, p.k, p.v, {.num_threads = 3}); }); });
}

TEST(AllocationFaults, OfGradientsOnThreads) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    SCOPED_TRACE(name_of(dtype));
    const LargeProblem p(dtype, 600, 600);
    const Tensor mask = random_tensor({600, 600}, 5);
    Tensor o(dtype, p.q.shape()), lse(DType::f32, {1, 4, 600});
    attention(p.q, p.k, p.v, o, {.causal = Causal::top_left, .mask = mask, .lse = lse});
    expect_survives([&]() -> Operation {
      const auto given = std::make_shared<std::map<std::string, Tensor>>();
      for (const auto& [name, like] : {std::pair{"dq", &p.q}, {"dk", &p.k}, {"dv", &p.v}, {"dmask", &mask}})
        given->emplace(name, Tensor(like->dtype(), like->shape()));
      return {.run =
                  [&, given] {
                    attention_backward(p.q, p.k, p.v, {.o = o, .lse = lse, .dout = p.q},
                                       {.dq = given->at("dq"),
                                        .dk = given->at("dk"),
                                        .dv = given->at("dv"),
                                        .dmask = given->at("dmask")},
                                       {.causal = Causal::top_left, .mask = mask, .num_threads = 3});
                  },
              .result = [given] { return bits_of_all(*given); }};
    });
  }
}

TEST(AllocationFaults, OfInspection) {
  const LargeProblem p(DType::f32);
  const InspectOptions wanted{.rows = {0, 7, 299},
                              .top_k = 3,
                              .entropy = true,
                              .max_weight = true,
                              .received = true,
                              .distance = true,
                              .pool_rows = 10,
                              .pool_keys = 9};
  expect_survives([&] {
    return giving([&] { return inspect(p.q, p.k, wanted, {.causal = Causal::top_left, .num_threads = 3}); },
                  [](const Inspection& given) {
                    return bits_of(given.rows) + bits_of(given.top_keys) + bits_of(given.top_weights) +
                           bits_of(given.entropy) + bits_of(given.max_weight) + bits_of(given.received) +
                           bits_of(given.distance) + bits_of(given.mean_distance) + bits_of(given.pooled);
                  });
  });
}

TEST(AllocationFaults, OfTheReference) {
  const Tensor x = random_tensor({1, 2, 5, 8}, 1);
  expect_survives(
      [&] { return giving([&] { return reference::attention(x, x, x, {.causal = Causal::top_left}).o; }); });
}

TEST(AllocationFaults, OfProducts) {
  const Tensor x = random_tensor({300, 96}, 1), weight = random_tensor({200, 96}, 2),
               bias = random_tensor({200}, 3);
  const Tensor dout = random_tensor({300, 200}, 4);
  expect_survives([&] { return giving([&] { return linear(x, weight, {.bias = bias, .num_threads = 3}); }); });
  expect_survives([&] {
    return giving([&] { return PackedLinear(weight, {.bias = bias}); },
                  [&](const PackedLinear& packed) { return bits_of(packed.forward(x)); });
  });
  expect_survives([&]() -> Operation {
    const auto dx = std::make_shared<Tensor>(DType::f32, x.shape()),
               dw = std::make_shared<Tensor>(DType::f32, weight.shape());
    return {
        .run = [&, dx, dw] { linear_backward(x, weight, dout, {.dx = *dx, .dweight = *dw}, {.num_threads = 3}); },
        .result = [dx, dw] { return bits_of(*dx) + bits_of(*dw); }};
  });
}

TEST(AllocationFaults, OfRowsOfACache) {
  const Tensor x = random_tensor({2, 40, 64}, 1);
  expect_survives([&] {
    return giving([&] {
      Tensor y(DType::f32, x.shape());
      Rope(64).rotate(x, y);
      return y;
    });
  });
  expect_survives([&] { return giving([&] { return hadamard(x); }); });
  for (const DType dtype : {DType::i8, DType::i4, DType::f8e4m3}) {
    SCOPED_TRACE(name_of(dtype));
    expect_survives([&] {
      return giving([&] { return quantize(x, dtype); },
                    [](const QuantizedTensor& rows) { return bits_of(rows.numbers) + bits_of(rows.scale); });
    });
  }
}

// ---- Tensors -------------------------------------------------------------------------------------------------

TEST(AllocationFaults, OfTensors) {
  const Tensor x = random_tensor({3, 4, 5}, 1);
  expect_survives([&] { return giving([&] { return Tensor::copy_of(x.view().transposed(0, 2), DType::bf16); }); });
  expect_survives([&] { return giving([&] { return to_string(x); }); });
  expect_survives([&]() -> Operation {  // an assignment changes nothing unless it succeeds
    const auto to = std::make_shared<Tensor>(random_tensor({2, 2}, 2));
    const auto bits = [to] { return bits_of(*to); };
    return {.run = [&x, to] { *to = x; }, .result = bits, .state = bits};
  });
}

// ---- What stays between calls --------------------------------------------------------------------------------

/// Options of caches of every kind.
std::vector<KvCacheOptions> caches() {
  std::vector<KvCacheOptions> all;
  for (const DType dtype : {DType::f32, DType::bf16, DType::i8, DType::i4, DType::f8e4m3})
    for (const std::int64_t page_size : {0, 4})
      all.push_back({.batch = 2,
                     .num_kv_heads = 2,
                     .head_dim = 32,
                     .dtype = dtype,
                     .page_size = page_size,
                     .rope = Rope(32)});
  return all;
}

std::string bits_of_cache(const KvCache& cache) {
  const KvCacheState state = cache.state();
  std::string bits = bits_of_all(state.tensors);
  for (const auto& [name, text] : state.metadata) bits += name + text;
  return bits;
}

/// A cache of two sequences that share a prefix, and of which one has a start.
std::shared_ptr<KvCache> cache_of(const KvCacheOptions& options) {
  const auto cache = std::make_shared<KvCache>(options);
  const Tensor x = random_tensor({2, 2, 10, 32}, 7);
  cache->append(x, x);
  cache->share_prefix(0, 1, 6);
  cache->set_start(0, 3);
  return cache;
}

/// Each change of a cache, and reading it.
TEST(AllocationFaults, OfCaches) {
  const Tensor x = random_tensor({2, 2, 9, 32}, 8), q = random_tensor({2, 4, 3, 32}, 9);
  const std::map<std::string, std::function<void(KvCache&)>> changes{
      {"append", [&](KvCache& cache) { cache.append(x, x); }},
      {"append to one sequence",
       [&](KvCache& cache) { cache.append(1, x.view().select(0, 0), x.view().select(0, 1)); }},
      {"copy", [](KvCache& cache) { cache = KvCache::from_state(cache.state()); }},
      {"attention", [&](KvCache& cache) { attention(q, cache); }},
      {"decode", [&](KvCache& cache) { decode(q, cache, {.num_threads = 3}); }},
      {"dequantize", [&](KvCache& cache) { cache.dequantize_k(); }}};
  for (const KvCacheOptions& options : caches())
    for (const auto& named_change : changes) {
      const auto& change = named_change.second;
      SCOPED_TRACE(named_change.first + " of " + std::string(name_of(options.dtype)) + ", pages of " +
                   std::to_string(options.page_size));
      expect_survives([&]() -> Operation {
        const std::shared_ptr<KvCache> cache = cache_of(options);
        const auto bits = [cache] { return bits_of_cache(*cache); };
        return {.run = [&change, cache] { change(*cache); }, .result = bits, .state = bits};
      });
    }
}

/// A cache gives memory up without asking for any.
TEST(AllocationFaults, CachesShrinkWithoutMemory) {
  for (const KvCacheOptions& options : caches()) {
    const std::shared_ptr<KvCache> cache = cache_of(options);
    {
      const AllocationFault fault({.first = 1, .for_good = true});
      cache->share_prefix(0, 1, 5);
      cache->truncate(0, 4);
      cache->clear(1);
    }
    EXPECT_EQ(cache->length(0), 4);
    EXPECT_EQ(cache->length(1), 0);
  }
}

/// Keys of a problem in two parts.
void add_part(AttentionState& state, const LargeProblem& p, std::int64_t begin, std::int64_t end) {
  state.add(p.q, p.k.view().slice(2, begin, end), p.v.view().slice(2, begin, end),
            {.origin = {.key = begin}, .num_threads = 3});
}

std::string finished(AttentionState& state, const LargeProblem& p) {
  Tensor o(DType::f32, p.q.shape());
  state.finish(o);
  return bits_of(o);
}

TEST(AllocationFaults, OfFinishingAState) {
  const LargeProblem p(DType::f32);
  expect_survives([&]() -> Operation {
    const auto state = std::make_shared<AttentionState>();
    add_part(*state, p, 0, 200);
    const auto o = std::make_shared<Tensor>(DType::f32, p.q.shape());
    return {.run = [state, o] { state->finish(*o); },
            .result = [o] { return bits_of(*o); },
            .state = [state, &p] { return finished(*state, p); }};
  });
}

/// A state whose add() failed goes on as if it had not been called, or says that it cannot.
TEST(AllocationFaults, OfAddingToAState) {
  const LargeProblem p(DType::f32);
  for (const bool has_part : {false, true}) {
    const auto begun = [&] {
      AttentionState state;
      if (has_part) add_part(state, p, 0, 200);
      return state;
    };
    const std::int64_t begin = has_part ? 200 : 0;
    AttentionState undisturbed = begun();
    add_part(undisturbed, p, begin, 300);
    const std::string expected = finished(undisturbed, p);
    int incomplete = 0;
    for (std::size_t n = 1;; ++n) {
      AttentionState state = begun();
      release_workspaces();
      const detail::Attempt attempt({.run = [&] { add_part(state, p, begin, 300); }}, {.first = n});
      if (!attempt.has_failed) break;
      count_faults();
      const std::string refused = refusal([&] { add_part(state, p, begin, 300); });
      if (refused.empty()) {
        EXPECT_TRUE(finished(state, p) == expected) << "allocation " << n;
      } else {
        EXPECT_EQ(refused, "[AttentionState::add] the state is incomplete, for an earlier call of add() failed");
        EXPECT_NE(refusal([&] { finished(state, p); }), "");
        ++incomplete;
      }
    }
    EXPECT_GT(incomplete, 0);
  }
}

}  // namespace
}  // namespace saccade::test
