// How many threads a call uses: its num_threads, else set_num_threads(); that a call's limit ends with the call;
// and calls on a host program's threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#ifdef __linux__
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <iterator>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "saccade/attention.h"
#include "saccade/backward.h"
#include "saccade/layers.h"
#include "saccade/runtime.h"
#include "support/system.h"
#include "support/tensors.h"

namespace saccade {
namespace {

using testing::Eq;
using testing::Ge;
using testing::Lt;

using test::random_tensor;
using test::same_bits;

/// Collects the threads that call a score modifier. Each waits for `wanted` of them for a while, so that a call
/// shows all of its threads however busy the machine is.
class Threads {
 public:
  explicit Threads(std::size_t wanted) : wanted_(wanted) {}

  static void modifier(void* context, const ScoreTile&) { static_cast<Threads*>(context)->arrive(); }

  std::size_t count() const { return seen_.size(); }

 private:
  void arrive() {
    std::unique_lock lock(mutex_);
    if (!seen_.insert(std::this_thread::get_id()).second) return;
    all_here_.notify_all();
    all_here_.wait_for(lock, std::chrono::seconds(1), [&] { return seen_.size() >= wanted_; });
  }

  std::size_t wanted_;
  std::set<std::thread::id> seen_;
  std::mutex mutex_;
  std::condition_variable all_here_;
};

/// The threads of a call that asks for `threads`.
std::size_t given(std::size_t threads) {
  if (threading_layer() != "std") return threads;
  return std::min<std::size_t>(threads, std::max(1u, std::thread::hardware_concurrency()));
}

class NumThreads : public testing::Test {
 public:
  NumThreads() { set_num_threads(3); }
  void SetUp() override {
    if (threading_layer() == "none") GTEST_SKIP() << "this build starts no threads";
  }
  ~NumThreads() override { set_num_threads(0); }

  /// The threads of a call with enough work for eight.
  std::size_t threads_of_call(int num_threads, std::size_t wanted) const {
    Threads threads(given(wanted));
    attention(x_, x_, x_,
              {.score_modifier = Threads::modifier, .score_context = &threads, .num_threads = num_threads});
    return threads.count();
  }

  Tensor x_{DType::f32, {1, 8, 512, 16}};
};

TEST_F(NumThreads, LimitsItsCallOnly) {
  EXPECT_THAT(threads_of_call(0, 3), Eq(given(3)));
  EXPECT_THAT(threads_of_call(1, 2), Eq(1));
  EXPECT_THAT(threads_of_call(0, 3), Eq(given(3)));
  EXPECT_THAT(threads_of_call(2, 3), Eq(given(2)));
  EXPECT_THAT(threads_of_call(0, 3), Eq(given(3)));
}

TEST_F(NumThreads, MayBeMoreThanTheDefault) {
  set_num_threads(1);
  EXPECT_THAT(threads_of_call(2, 2), Eq(given(2)));
  EXPECT_THAT(threads_of_call(0, 2), Eq(1));
}

TEST_F(NumThreads, EndsWithACallThatThrows) {
  const auto throws = [](void*, const ScoreTile&) { throw std::runtime_error("from the modifier"); };
  EXPECT_THROW(attention(x_, x_, x_, {.score_modifier = throws, .num_threads = 1}), std::runtime_error);
  EXPECT_THAT(threads_of_call(0, 3), Eq(given(3)));
}

TEST_F(NumThreads, OfTheOuterCallDoesNotLimitACallInside) {
  struct Outer {
    const NumThreads* test;
    std::size_t threads_inside = 0;
    static void modifier(void* context, const ScoreTile&) {
      auto& outer = *static_cast<Outer*>(context);
      if (outer.threads_inside == 0) outer.threads_inside = outer.test->threads_of_call(0, 3);
    }
  };
  Outer outer{this};
  attention(x_, x_, x_, {.score_modifier = Outer::modifier, .score_context = &outer, .num_threads = 1});
  EXPECT_THAT(outer.threads_inside, Eq(given(3)));
}

TEST_F(NumThreads, OfACallInsideACallEndsWithIt) {
  struct Inner {
    static void modifier(void* context, const ScoreTile&) {
      const auto& x = *static_cast<const Tensor*>(context);
      attention(x, x, x, {.num_threads = 1});
    }
  };
  const Tensor small(DType::f32, {1, 1, 4, 4});
  attention(x_, x_, x_,
            {.score_modifier = Inner::modifier, .score_context = const_cast<Tensor*>(&small), .num_threads = 2});
  EXPECT_THAT(threads_of_call(0, 3), Eq(given(3)));
}

#ifdef __linux__
/// The processors that each thread of a call may use.
struct Processors {
  std::mutex mutex;
  std::vector<cpu_set_t> sets;

  static void modifier(void* context, const ScoreTile&) {
    auto& self = *static_cast<Processors*>(context);
    cpu_set_t set;
    ASSERT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
    const std::scoped_lock lock(self.mutex);
    self.sets.push_back(set);
  }
};

TEST_F(NumThreads, AreStartedAnewInTheChildOfAFork) {
#ifdef SACCADE_EMULATED
  GTEST_SKIP() << "qemu cannot start threads in the child of a fork";
#endif
  EXPECT_THAT(threads_of_call(2, 2), Eq(given(2)));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(60);  // ends a child that hangs, which the parent detects
    _exit(threads_of_call(2, 2) == given(2) ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
}

TEST_F(NumThreads, StayOnTheirProcessorsAfterARest) {
  cpu_set_t own;
  ASSERT_EQ(sched_getaffinity(0, sizeof own, &own), 0);
  for (int call = 0; call < 10; ++call) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the threads of the last call go to sleep
    Processors processors;
    attention(x_, x_, x_,
              {.score_modifier = Processors::modifier, .score_context = &processors, .num_threads = 2});
    for (const cpu_set_t& set : processors.sets) EXPECT_TRUE(CPU_EQUAL(&set, &own));
  }
}
std::size_t threads_of_this_process() {
  using Tasks = std::filesystem::directory_iterator;
  return static_cast<std::size_t>(std::distance(Tasks("/proc/self/task"), Tasks()));
}

// A layer has no num_threads of its own: it would use one thread if the limit outlived the call before it.
TEST_F(NumThreads, DoesNotLimitLayersAfterTheCall) {
  if (threading_layer() == "std") GTEST_SKIP() << "its threads stay, and may be as many as processors";
  constexpr int kThreads = 16;  // more than OpenMP keeps from the tests above
  set_num_threads(kThreads);
  std::size_t before = 0, after = 0;
  std::thread([&] {
    const Tensor small(DType::f32, {1, 1, 4, 4}), large(DType::f32, {kThreads, 16384});
    attention(small, small, small, {.num_threads = 1});
    before = threads_of_this_process();
    Gelu().forward(large);
    after = threads_of_this_process();
  }).join();
  EXPECT_THAT(before, Lt(kThreads));
  EXPECT_THAT(after, Ge(kThreads));
}
#endif

/// Restores the library's own threads.
class HostThreads : public testing::Test {
 public:
  ~HostThreads() override { set_parallel_for(nullptr); }

  /// The gradients of two heads. Four threads share them, and wait for each other's turns to add.
  std::vector<Tensor> gradients() const {
    Tensor lse(DType::f32, {1, 2, 1500}), dq(DType::f32, x_.shape()), dk(DType::f32, x_.shape()),
        dv(DType::f32, x_.shape());
    const AttentionOptions options{.causal = Causal::top_left, .lse = lse, .num_threads = 4};
    const Tensor o = attention(x_, x_, x_, options);
    attention_backward(x_, x_, x_, {.o = o, .lse = lse, .dout = x_}, {.dq = dq, .dk = dk, .dv = dv},
                       {.causal = Causal::top_left, .num_threads = 4});
    std::vector<Tensor> all;
    for (Tensor* x : {&dq, &dk, &dv}) all.push_back(std::move(*x));
    return all;
  }

  Tensor x_ = random_tensor({1, 2, 1500, 16}, 1);
};

void run_each_on_a_thread(int tasks, const std::function<void(int)>& task) {
  std::vector<std::thread> threads;
  for (int i = 0; i < tasks; ++i) threads.emplace_back([&task, i] { task(i); });
  for (std::thread& thread : threads) thread.join();
}

TEST_F(HostThreads, GiveTheSameBits) {
  const std::vector<Tensor> expected = gradients();
  int calls = 0, most = 0;
  const ParallelFor loops[] = {run_each_on_a_thread,
                               [](int tasks, const std::function<void(int)>& task) {
                                 for (int i = 0; i < tasks; ++i) task(i);
                               },
                               [](int tasks, const std::function<void(int)>& task) {
                                 for (int i = tasks - 1; i >= 0; --i) task(i);
                               }};
  for (const ParallelFor& loop : loops) {
    set_parallel_for([&](int tasks, const std::function<void(int)>& task) {
      ++calls, most = std::max(most, tasks);
      loop(tasks, task);
    });
    const std::vector<Tensor> found = gradients();
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(same_bits(found[i], expected[i])) << i;
  }
  EXPECT_THAT(calls, Ge(6));
  EXPECT_THAT(most, Eq(4));
  set_parallel_for(nullptr);
  const int before = calls;
  gradients();
  EXPECT_THAT(calls, Eq(before));
}

TEST_F(HostThreads, AreNotCalledWithinATask) {
  std::atomic<int> calls = 0;
  set_parallel_for([&](int tasks, const std::function<void(int)>& task) {
    ++calls;
    run_each_on_a_thread(tasks, task);
  });
  const auto inner = [](void* x, const ScoreTile&) {
    const Tensor& small = *static_cast<const Tensor*>(x);
    attention(small, small, small, {.num_threads = 3});
  };
  Tensor small = random_tensor({1, 8, 64, 16}, 2);
  attention(x_, x_, x_, {.score_modifier = inner, .score_context = &small, .num_threads = 2});
  EXPECT_THAT(calls, Eq(1));
}

TEST_F(HostThreads, PassOnWhatAModifierThrows) {
  set_parallel_for(run_each_on_a_thread);
  const auto throws = [](void*, const ScoreTile&) { throw std::runtime_error("from the modifier"); };
  EXPECT_THROW(attention(x_, x_, x_, {.score_modifier = throws, .num_threads = 2}), std::runtime_error);
}

TEST_F(HostThreads, ThatFailLeaveNoErrorOfAHookToTheNextCall) {
  set_parallel_for([](int tasks, const std::function<void(int)>& task) {
    for (int i = 0; i + 1 < tasks; ++i) task(i);
  });
  bool throws = true;
  const ProgressHook hook([&] {
    if (throws) throw std::runtime_error("from the hook");
  });
  EXPECT_THROW(attention(x_, x_, x_, {.num_threads = 2}), std::logic_error);
  throws = false;
  set_parallel_for(nullptr);
  EXPECT_NO_THROW(attention(x_, x_, x_, {.num_threads = 2}));
}

TEST_F(HostThreads, ThatForgetATaskAreReported) {
  set_parallel_for([](int tasks, const std::function<void(int)>& task) {
    for (int i = 1; i < tasks; ++i) task(i);
  });
  EXPECT_THAT(
      [&] { attention(x_, x_, x_, {.num_threads = 3}); },
      testing::ThrowsMessage<std::logic_error>(
          "[set_parallel_for] the function must run each of its 3 tasks once before it returns, but it ran 2"));
}

TEST_F(HostThreads, MayRefuse) {
  set_parallel_for([](int, const std::function<void(int)>&) { throw std::runtime_error("no thread"); });
  EXPECT_THROW(attention(x_, x_, x_, {.num_threads = 3}), std::runtime_error);
}

TEST(Threads, SleepBetweenCalls) {
  if (threading_layer() == "openmp") GTEST_SKIP() << "OpenMP decides how long its threads poll";
  const Tensor x = random_tensor({1, 8, 256, 16}, 1);
  attention(x, x, x, {.num_threads = 8});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const double before = test::processor_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_THAT(test::processor_seconds() - before, Lt(0.01));
}

TEST(Threads, ServeSeveralCallersAtOnce) {
  const Tensor x = random_tensor({1, 4, 300, 16}, 1);
  const Tensor expected = attention(x, x, x, {.num_threads = 1});
  std::atomic<int> wrong = 0;
  run_each_on_a_thread(6, [&](int caller) {
    for (int call = 0; call < 50; ++call)
      wrong += !same_bits(attention(x, x, x, {.num_threads = 1 + (caller + call) % 5}), expected);
  });
  EXPECT_THAT(wrong, Eq(0));
}

}  // namespace
}  // namespace saccade
