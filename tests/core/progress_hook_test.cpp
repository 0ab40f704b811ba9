// ProgressHook: which thread calls the function, how often, until when, and that it changes no result.
#include <gtest/gtest.h>

#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "saccade/attention.h"
#include "saccade/backward.h"
#include "saccade/decode.h"
#include "saccade/inspect.h"
#include "saccade/linear.h"
#include "saccade/runtime.h"
#include "support/each_isa.h"
#include "support/environment.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

/// Processor time of this thread in seconds: however busy the machine is, it counts this thread's work only.
double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// What a hook's function sees while some work runs.
struct Calls {
  int count = 0, of_other_threads = 0;
  double longest = 0.0, total = 0.0;  // processor time without a call, and of the work

  static Calls during(const std::function<void()>& work) {
    Calls calls;
    const auto self = std::this_thread::get_id();
    const double begin = thread_seconds();
    double last = begin;
    const auto arrive = [&] {
      const double now = thread_seconds();
      calls.longest = std::max(calls.longest, now - last);
      last = now;
    };
    {
      const ProgressHook hook([&] {
        ++calls.count;
        if (std::this_thread::get_id() != self) ++calls.of_other_threads;
        arrive();
      });
      work();
    }
    arrive();
    calls.total = last - begin;
    return calls;
  }
};

using Work = std::function<void()>;

/// Runs make(size)() for sizes that double until it takes long, and checks the calls of the last run. The library
/// promises some 5 ms; this allows for plain C++, emulated instructions, builds with checks and, once more, for an
/// emulator of another processor.
void expect_frequent_calls(const std::string& what, std::int64_t size,
                           const std::function<Work(std::int64_t)>& make) {
#ifdef SACCADE_EMULATED
  constexpr double kLong = 0.25, kLongestAllowed = 0.25;
#else
  constexpr double kLong = 0.05, kLongestAllowed = 0.05;
#endif
  for (;; size *= 2) {
    const Work work = make(size);
    Calls calls = Calls::during(work);
    EXPECT_EQ(calls.of_other_threads, 0) << what;
    if (calls.total < kLong) continue;
    // A host that takes the processor away makes one time long, and not three.
    for (int again = 0; again < 2 && calls.longest >= kLongestAllowed; ++again)
      calls.longest = std::min(calls.longest, Calls::during(make(size)).longest);
    EXPECT_LT(calls.longest, kLongestAllowed) << what << ", size " << size << ", " << calls.total << " s";
    EXPECT_GT(calls.count, 2) << what << ", size " << size;
    return testing::Test::RecordProperty(what, std::to_string(1e3 * calls.longest) + " ms");
  }
}

/// One head: a single piece of work if there are few rows. All keys are the same one in memory, and
/// all values: any number of them is made at once.
struct OneHead {
  Tensor q, key, value;
  TensorView k, v;
  OneHead(std::int64_t rows, std::int64_t keys, DType dtype, std::int64_t dim = 64)
      : q(random_tensor({1, 1, rows, dim}, 1, dtype)),
        key(random_tensor({1, 1, 1, dim}, 2, dtype)),
        value(random_tensor({1, 1, 1, dim}, 3, dtype)),
        k(repeated(key, keys)),
        v(repeated(value, keys)) {}

 private:
  static TensorView repeated(const Tensor& one, std::int64_t count) {
    TensorView all = one;
    all.shape[2] = count;
    all.strides[2] = 0;
    return all;
  }
};

class LongCalls : public EachIsa {
 protected:
  static std::int64_t few() { return is_emulated(active_isa()) || active_isa() == Isa::scalar ? 256 : 4096; }
  static std::string name(const char* call, DType dtype, int threads) {
    return std::string(call) + "_" + std::string(name_of(dtype)) + "_" + std::to_string(threads);
  }
};
SACCADE_FOR_EACH_ISA(LongCalls);

TEST_P(LongCalls, OfAttention) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64})
    for (const int threads : {1, 2})
      expect_frequent_calls(name("attention", dtype, threads), few(), [&](std::int64_t keys) -> Work {
        return [head = std::make_shared<OneHead>(128, keys, dtype), threads] {
          attention(head->q, head->k, head->v, {.num_threads = threads});
        };
      });
}

TEST_P(LongCalls, ThatSaveWeights) {
  expect_frequent_calls("weights", few(), [&](std::int64_t keys) -> Work {
    const auto weights = std::make_shared<Tensor>(DType::f32, Shape{1, 1, 128, keys});
    return [head = std::make_shared<OneHead>(128, keys, DType::f32, 16), weights] {
      attention(head->q, head->k, head->v, {.weights = *weights, .num_threads = 1});
    };
  });
}

TEST_P(LongCalls, OfBackward) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int threads : {1, 2})
      expect_frequent_calls(name("backward", dtype, threads), few() / 4, [&](std::int64_t keys) -> Work {
        const auto head = std::make_shared<OneHead>(256, keys, dtype);
        const auto lse = std::make_shared<Tensor>(DType::f32, Shape{1, 1, 256});
        const Tensor o = attention(head->q, head->k, head->v, {.lse = *lse});
        const auto dq = std::make_shared<Tensor>(dtype, Shape{1, 1, 256, 64}),
                   dk = std::make_shared<Tensor>(dtype, Shape{1, 1, keys, 64}),
                   dv = std::make_shared<Tensor>(dtype, Shape{1, 1, keys, 64});
        return [=] {
          attention_backward(head->q, head->k, head->v, {.o = o, .lse = *lse, .dout = o},
                             {.dq = *dq, .dk = *dk, .dv = *dv}, {.num_threads = threads});
        };
      });
}

TEST_P(LongCalls, OfDecode) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int threads : {1, 2})
      expect_frequent_calls(name("decode", dtype, threads), few(), [&](std::int64_t keys) -> Work {
        return [head = std::make_shared<OneHead>(16, keys, dtype, 128), threads] {
          decode(head->q, head->k, head->v, {.num_threads = threads});
        };
      });
}

TEST_P(LongCalls, OfInspect) {
  expect_frequent_calls("inspect", few(), [&](std::int64_t keys) -> Work {
    return [head = std::make_shared<OneHead>(128, keys, DType::f32)] {
      inspect(head->q, head->k, {.entropy = true}, {.num_threads = 1});
    };
  });
}

TEST_P(LongCalls, OfLinear) {
  for (const DType dtype : {DType::f32, DType::bf16})
    expect_frequent_calls(name("linear", dtype, 1), few(), [&](std::int64_t rows) -> Work {
      return [x = Tensor(dtype, {rows, 256}), weight = random_tensor({256, 256}, 2, dtype),
              y = std::make_shared<Tensor>(DType::f32, Shape{rows, 256})] {
        linear(x, weight, *y, {.num_threads = 1});
      };
    });
}

// ---- The rest with the best instruction set ------------------------------------------------------------------

/// A call that takes a few milliseconds, and whose second thread waits in a score modifier until `ready`.
struct UnevenCall {
  OneHead head{512, 2048, DType::f32};
  std::thread::id self = std::this_thread::get_id();
  std::function<bool()> ready = [] { return true; };
  std::atomic<bool> has_timed_out = false;

  static void modifier(void* context, const ScoreTile&) {
    auto& call = *static_cast<UnevenCall*>(context);
    if (std::this_thread::get_id() == call.self) return;
    const auto latest = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!call.ready() && !call.has_timed_out) {
      if (std::chrono::steady_clock::now() > latest) call.has_timed_out = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  Tensor run() {
    return attention(head.q, head.k, head.v,
                     {.score_modifier = modifier, .score_context = this, .num_threads = 2});
  }
};

TEST(ProgressHook, IsCalledWhileTheThreadWaitsForOthers) {
  UnevenCall call;
  std::atomic<int> calls = 0;
  call.ready = [&] { return calls > 200; };  // 0.1 s: by then this thread has no more work of its own
  const ProgressHook hook([&] { ++calls; });
  call.run();
  EXPECT_FALSE(call.has_timed_out);
}

TEST(ProgressHook, IsNotCalledAfterItsEndNorTooOften) {
  const OneHead head(128, kIsSlow ? 1 << 13 : 1 << 16, DType::f32);
  int calls = 0;
  const auto begin = std::chrono::steady_clock::now();
  {
    const ProgressHook hook([&] { ++calls; });
    for (int i = 0; i < 5; ++i) attention(head.q, head.k, head.v);
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  EXPECT_GT(calls, 0);
  EXPECT_LE(calls, 1 + static_cast<int>(seconds.count() / 0.5e-3));
  const int before = calls;
  attention(head.q, head.k, head.v);
  EXPECT_EQ(calls, before);
}

TEST(ProgressHook, InnerOneTakesThePlaceOfTheOuterOne) {
  const OneHead head(128, 1 << 14, DType::f32);
  int outer = 0, inner = 0;
  const ProgressHook of_all([&] { ++outer; });
  {
    const ProgressHook hook([&] { ++inner; });
    attention(head.q, head.k, head.v);
    EXPECT_GT(inner, 0);
    EXPECT_EQ(outer, 0);
  }
  const int before = inner;
  attention(head.q, head.k, head.v);
  EXPECT_EQ(inner, before);
  EXPECT_GT(outer, 0);
}

TEST(ProgressHook, IsNotCalledByOtherThreadsCallsOrItsOwn) {
  const OneHead head(128, 1 << 14, DType::f32);
  int calls = 0, depth = 0, deepest = 0;
  const ProgressHook hook([&] {
    ++calls;
    deepest = std::max(deepest, ++depth);
    if (calls <= 2) attention(head.q, head.k, head.v);
    --depth;
  });
  std::thread([&] { attention(head.q, head.k, head.v); }).join();
  EXPECT_EQ(calls, 0);
  attention(head.q, head.k, head.v);
  EXPECT_GT(calls, 0);
  EXPECT_EQ(deepest, 1);
}

TEST(ProgressHook, ExceptionLeavesTheCallOnceItsThreadsAreDone) {
  const OneHead head(512, 1 << 13, DType::f32);
  for (const int threads : {1, 2}) {
    int calls = 0;
    bool throws = true;
    const ProgressHook hook([&] {
      ++calls;
      if (throws) throw std::runtime_error("lost the others");
    });
    const auto call = [&] { return attention(head.q, head.k, head.v, {.num_threads = threads}); };
    EXPECT_THROW(call(), std::runtime_error);
    EXPECT_EQ(calls, 1);
    throws = false;
    EXPECT_NO_THROW(call());
    EXPECT_GT(calls, 1);
  }
}

TEST(ProgressHook, ExceptionLeavesACallThatSeesNoKeys) {
  const Tensor q = random_tensor({1, 4, 1, 64}, 1), k = random_tensor({1, 2, 300, 64}, 2),
               v = random_tensor(k.shape(), 3);
  Tensor lengths(DType::i32, {1});
  lengths.at<std::int32_t>(0) = 0;
  const ProgressHook hook([] { throw std::runtime_error("stop"); });
  EXPECT_THROW(decode(q, k, v, {.kv_lengths = lengths}), std::runtime_error);
}

TEST(ProgressHook, DoesNotOutliveTheExceptionOfAnother) {
  const OneHead head(512, 1 << 13, DType::f32);
  int calls = 0;
  const ProgressHook hook([&] {
    if (++calls == 1) throw std::runtime_error("of the hook");
  });
  const auto modifier = [](void*, const ScoreTile& tile) {
    if (tile.first_key > 4096) throw std::logic_error("of the modifier");
  };
  EXPECT_THROW(attention(head.q, head.k, head.v, {.score_modifier = modifier, .num_threads = 1}),
               std::logic_error);
  EXPECT_EQ(calls, 1);
  const OneHead small(4, 4, DType::f64);
  EXPECT_NO_THROW(attention(small.q, small.k, small.v));
}

TEST(ProgressHook, RefusesAnEmptyFunction) { EXPECT_THROW(ProgressHook({}), std::invalid_argument); }

TEST(ProgressHook, ChangesNoBit) {
  constexpr std::int64_t kRows = kIsSlow ? 5 : 40;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor q = random_tensor({2, 8, kRows, 64}, 1, dtype), k = random_tensor({2, 4, 9000, 64}, 2, dtype),
                 v = random_tensor({2, 4, 9000, 64}, 3, dtype);
    const auto results = [&] {
      Tensor lse(DType::f32, {2, 8, kRows}), dq(dtype, q.shape()), dk(dtype, k.shape()), dv(dtype, v.shape());
      Tensor o = attention(q, k, v, {.lse = lse, .num_threads = 2});
      attention_backward(q, k, v, {.o = o, .lse = lse, .dout = o}, {.dq = dq, .dk = dk, .dv = dv},
                         {.num_threads = 2});
      return std::vector{o, dq, dk, dv, decode(q, k, v, {.num_threads = 2})};
    };
    const std::vector<Tensor> expected = results();
    int calls = 0;
    const ProgressHook hook([&] { ++calls; });
    const std::vector<Tensor> actual = results();
    EXPECT_GT(calls, 0);
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(same_bits(actual[i], expected[i])) << i;
  }
}

}  // namespace
}  // namespace saccade::test
