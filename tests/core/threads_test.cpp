// How many threads a call uses: its num_threads, else set_num_threads(); and that a call's limit ends with the
// call.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#ifdef __linux__
#include <sched.h>
#endif

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <iterator>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "saccade/attention.h"
#include "saccade/layers.h"
#include "saccade/runtime.h"

namespace saccade {
namespace {

using testing::Eq;
using testing::Ge;
using testing::Lt;

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

class NumThreads : public testing::Test {
 public:
  NumThreads() { set_num_threads(3); }
  ~NumThreads() override { set_num_threads(0); }

  /// The threads of a call with enough work for eight.
  std::size_t threads_of_call(int num_threads, std::size_t wanted) const {
    Threads threads(wanted);
    attention(x_, x_, x_,
              {.score_modifier = Threads::modifier, .score_context = &threads, .num_threads = num_threads});
    return threads.count();
  }

  Tensor x_{DType::f32, {1, 8, 512, 16}};
};

TEST_F(NumThreads, LimitsItsCallOnly) {
  EXPECT_THAT(threads_of_call(0, 3), Eq(3));
  EXPECT_THAT(threads_of_call(1, 2), Eq(1));
  EXPECT_THAT(threads_of_call(0, 3), Eq(3));
  EXPECT_THAT(threads_of_call(2, 3), Eq(2));
  EXPECT_THAT(threads_of_call(0, 3), Eq(3));
}

TEST_F(NumThreads, MayBeMoreThanTheDefault) {
  set_num_threads(1);
  EXPECT_THAT(threads_of_call(2, 2), Eq(2));
  EXPECT_THAT(threads_of_call(0, 2), Eq(1));
}

TEST_F(NumThreads, EndsWithACallThatThrows) {
  const auto throws = [](void*, const ScoreTile&) { throw std::runtime_error("from the modifier"); };
  EXPECT_THROW(attention(x_, x_, x_, {.score_modifier = throws, .num_threads = 1}), std::runtime_error);
  EXPECT_THAT(threads_of_call(0, 3), Eq(3));
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
  EXPECT_THAT(outer.threads_inside, Eq(3));
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
  EXPECT_THAT(threads_of_call(0, 3), Eq(3));
}

std::size_t threads_of_this_process() {
  using Tasks = std::filesystem::directory_iterator;
  return static_cast<std::size_t>(std::distance(Tasks("/proc/self/task"), Tasks()));
}

// A layer has no num_threads of its own: it would use one thread if the limit outlived the call before it.
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
#endif

TEST_F(NumThreads, DoesNotLimitLayersAfterTheCall) {
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

}  // namespace
}  // namespace saccade
