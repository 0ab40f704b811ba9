// What interrupts a call while it runs: exceptions of the functions that it calls, forks in every state, signals,
// threads with small stacks, and many threads at once.
#include <gtest/gtest.h>

#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "saccade/attention.h"
#include "saccade/backward.h"
#include "saccade/decode.h"
#include "saccade/gpt_model.h"
#include "saccade/inspect.h"
#include "saccade/io.h"
#include "saccade/kv_cache.h"
#include "saccade/layer_attention.h"
#include "saccade/random.h"
#include "saccade/runtime.h"
#include "support/each_isa.h"
#include "support/environment.h"
#include "support/fault_count.h"
#include "support/system.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

using Results = std::vector<Tensor>;

bool same_bits(const Results& a, const Results& b) {
  return std::ranges::equal(a, b, [](const Tensor& x, const Tensor& y) { return test::same_bits(x, y); });
}

/// A call of the library, on any number of threads, with further options.
struct Call {
  std::string name;
  std::function<Results(const AttentionOptions&)> run;
};

/// Calls whose work threads share in every way: rows and heads, splits of keys, sums that wait for each other.
std::vector<Call> calls() {
  const auto q = std::make_shared<Tensor>(random_tensor({1, 2, 300, 32}, 1)),
             k = std::make_shared<Tensor>(random_tensor({1, 1, 700, 32}, 2)),
             row = std::make_shared<Tensor>(random_tensor({1, 2, 1, 32}, 3)),
             dout = std::make_shared<Tensor>(random_tensor({1, 2, 300, 32}, 4));
  const auto cache = std::make_shared<KvCache>(
      KvCacheOptions{.batch = 1, .num_kv_heads = 1, .head_dim = 32, .dtype = DType::i8, .page_size = 16});
  cache->append(*k, *k);
  std::vector<Call> all;
  const auto add = [&](std::string name, std::function<Results(const AttentionOptions&)> run) {
    all.push_back({std::move(name), std::move(run)});
  };
  const auto results = [](Tensor tensor) {
    Results list;
    list.push_back(std::move(tensor));
    return list;
  };
  add("attention", [=](const AttentionOptions& options) { return results(attention(*q, *k, *k, options)); });
  add("attention over a cache",
      [=](const AttentionOptions& options) { return results(attention(*q, *cache, options)); });
  add("decode", [=](const AttentionOptions& options) { return results(decode(*row, *k, *k, options)); });
  add("decode over a cache",
      [=](const AttentionOptions& options) { return results(decode(*row, *cache, options)); });
  add("inspect", [=](const AttentionOptions& options) {
    Inspection found = inspect(*q, *k, {.top_k = 3, .entropy = true, .received = true}, options);
    Results list;
    for (Tensor* tensor : {&found.top_keys, &found.top_weights, &found.entropy, &found.received})
      list.push_back(std::move(*tensor));
    return list;
  });
  const auto lse = std::make_shared<Tensor>(DType::f32, Shape{1, 2, 300});
  const auto o = std::make_shared<Tensor>(attention(*q, *k, *k, {.lse = *lse}));
  add("attention_backward", [=](const AttentionOptions& options) {
    Results list;
    for (const Tensor* like : {q.get(), k.get(), k.get()}) list.emplace_back(DType::f32, like->shape());
    attention_backward(*q, *k, *k, {.o = *o, .lse = *lse, .dout = *dout},
                       {.dq = list[0], .dk = list[1], .dv = list[2]}, options);
    return list;
  });
  return all;
}

// ---- Exceptions ----------------------------------------------------------------------------------------------

struct Interrupted {};

/// Functions that the library calls, of which the n-th call throws.
struct Throwing {
  std::atomic<std::int64_t> calls = 0;
  std::int64_t at = 0;  ///< 0: none throws

  void called() {
    if (++calls == at) throw Interrupted();
  }
  static void modifier(void* context, const ScoreTile&) { static_cast<Throwing*>(context)->called(); }
  static void modifier_backward(void* context, const ScoreTile&, const ScoreTile&) {
    static_cast<Throwing*>(context)->called();
  }

  /// Lets the first four calls of `throwing` by `call` fail, one after the other, and later ones with growing
  /// gaps, wider ones where computing is slow. Returns how many failed.
  static std::int64_t at_each_call(Throwing& throwing, const std::function<Results()>& call) {
    const Results expected = call();
    const std::int64_t count = throwing.calls;
    std::int64_t failed = 0;
    for (std::int64_t at = 1; at <= count; at += at < 4 ? 1 : 1 + at / (kIsSlow ? 1 : 4)) {
      throwing.calls = 0, throwing.at = at, ++failed;
      EXPECT_THROW(call(), Interrupted) << "at call " << at << " of " << count;
      throwing.at = 0;
      EXPECT_TRUE(same_bits(call(), expected)) << "after a failure at call " << at << " of " << count;
    }
    return failed;
  }
};

/// What a call needs of its caller's stack.
constexpr std::size_t kStackOfCalls = 64 << 10;

class InterruptionsOnIsa : public EachIsa {};

TEST_P(InterruptionsOnIsa, AnExceptionOfAnyCallOfAModifierLeavesTheCall) {
  std::int64_t failed = 0;
  for (const Call& call : calls())
    for (const int threads : {1, 3}) {
      SCOPED_TRACE(call.name + " on " + std::to_string(threads) + " threads");
      Throwing throwing;
      const AttentionOptions options{
          .score_modifier = Throwing::modifier,
          .score_modifier_backward = call.name == "attention_backward" ? Throwing::modifier_backward : nullptr,
          .score_context = &throwing,
          .num_threads = threads};
      failed += Throwing::at_each_call(throwing, [&] { return call.run(options); });
    }
  EXPECT_GT(failed, kIsSlow ? 50 : 100);
  count_faults(static_cast<std::size_t>(failed));
}

TEST_P(InterruptionsOnIsa, AProgressHookCancelsAnyCall) {
  std::int64_t cancelled = 0;
  for (const Call& call : calls())
    for (const int threads : {1, 3}) {
      SCOPED_TRACE(call.name + " on " + std::to_string(threads) + " threads");
      const Results expected = call.run({.num_threads = threads});
      for (int at = 1; at <= 3; ++at) {  // a short call may not call it so often
        int hooked = 0;
        const ProgressHook hook([&] {
          if (++hooked == at) throw Interrupted();
        });
        try {
          call.run({.num_threads = threads});
          EXPECT_LT(hooked, at);
        } catch (const Interrupted&) {
          ++cancelled;
        }
      }
      EXPECT_TRUE(same_bits(call.run({.num_threads = threads}), expected)) << "after it was cancelled";
    }
  EXPECT_GE(cancelled, 10);
  count_faults(static_cast<std::size_t>(cancelled));
}

TEST(Interruptions, AnExceptionOfAnyCallOfAHookLeavesAModel) {
  TorchGenerator generator(1);
  GPTModel model({.vocab_size = 5, .context_length = 6, .d_model = 8, .num_layers = 3, .num_heads = 2}, generator);
  model.eval();
  Tensor tokens(DType::i64, {1, 4});
  for (const bool edits : {false, true}) {
    Throwing throwing;
    const std::int64_t failed = Throwing::at_each_call(throwing, [&] {
      Results list;
      list.push_back(model.forward(tokens, [&](const LayerAttention& layer) {
        if (edits) edit_heads(layer, std::vector<HeadEdit>{{.place = {layer.layer, 1}}});
        throwing.called();
      }));
      return list;
    });
    EXPECT_EQ(failed, 3);
    count_faults(3);
  }
}

// ---- Forks ---------------------------------------------------------------------------------------------------

// In the child of a fork qemu cannot start threads, and AddressSanitizer's allocator (GCC 12) waits for ever for
// locks that other threads of the parent held.
#if !defined(SACCADE_EMULATED) && !defined(__SANITIZE_ADDRESS__)

/// Forks; the child runs every call on two threads and ends without running anything else of this program.
class Child {
 public:
  Child(const std::vector<Call>& calls, const std::vector<Results>& expected) : id_(::fork()) {
    if (id_ != 0) return;
    ::alarm(30);  // ends a child that hangs, which the parent detects
    int code = 0;
    try {
      for (std::size_t i = 0; i < calls.size(); ++i)
        if (!same_bits(calls[i].run({.num_threads = 2}), expected[i])) code = 1;
    } catch (...) {
      code = 2;
    }
    ::_exit(code);
  }

  /// 0: all calls had the expected bits.
  int status() const {
    int status = -1;
    return id_ > 0 && ::waitpid(id_, &status, 0) == id_ ? status : -1;
  }

 private:
  pid_t id_;
};

std::vector<Results> results_of(const std::vector<Call>& calls) {
  std::vector<Results> all;
  for (const Call& call : calls) all.push_back(call.run({.num_threads = 2}));
  return all;
}

TEST(Interruptions, AChildComputesWhileOtherThreadsOfItsParentDo) {
  const std::vector<Call> all = calls();
  const std::vector<Results> expected = results_of(all);
  std::atomic<bool> ends = false;
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < all.size(); ++t)
    threads.emplace_back([&, t] {
      while (!ends) wrong += !same_bits(all[t].run({.num_threads = 2}), expected[t]);
    });
  for (int fork = 0; fork < 20; ++fork) {
    std::this_thread::sleep_for(std::chrono::microseconds(700 * fork));
    EXPECT_EQ(Child(all, expected).status(), 0) << "fork " << fork;
    count_faults();
  }
  ends = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

/// Forks in its n-th call.
struct Forking {
  const std::vector<Call>& calls;
  const std::vector<Results>& expected;
  std::atomic<std::int64_t> called = 0;
  std::int64_t at = 0;
  int status = -1;

  static void modifier(void* context, const ScoreTile&) {
    auto& self = *static_cast<Forking*>(context);
    if (++self.called == self.at) self.status = Child(self.calls, self.expected).status();
  }
};

TEST(Interruptions, AChildComputesThatAModifierForks) {
  const std::vector<Call> all = calls();
  const std::vector<Results> expected = results_of(all);
  for (std::size_t i = 0; i < all.size(); ++i)
    for (const std::int64_t at : {1, 2, 5}) {
      const auto run = [&](Forking& forking) {
        return all[i].run({.score_modifier = Forking::modifier, .score_context = &forking, .num_threads = 2});
      };
      Forking none{.calls = all, .expected = expected}, forking{.calls = all, .expected = expected, .at = at};
      EXPECT_TRUE(same_bits(run(forking), run(none))) << all[i].name;
      EXPECT_EQ(forking.status, forking.called >= at ? 0 : -1) << all[i].name << ", call " << at;
    }
}

#endif

// ---- Signals and stacks --------------------------------------------------------------------------------------

std::atomic<int> signals = 0;

/// Interrupts the threads of this process every `period` while it lives; system calls are not repeated. The
/// handler of the thread that makes it runs on the smallest stack that the system allows.
class Signals {
 public:
  explicit Signals(std::chrono::microseconds period) : stack_(smallest_stack()) {
    stack_t stack{};
    stack.ss_sp = stack_.data();
    stack.ss_size = stack_.size();
    EXPECT_EQ(::sigaltstack(&stack, nullptr), 0);
    struct sigaction action {};
    action.sa_handler = [](int) { ++signals; };
    action.sa_flags = SA_ONSTACK;
    EXPECT_EQ(::sigaction(SIGALRM, &action, nullptr), 0);
    const timeval time{.tv_sec = 0, .tv_usec = static_cast<suseconds_t>(period.count())};
    const itimerval timer{.it_interval = time, .it_value = time};
    EXPECT_EQ(::setitimer(ITIMER_REAL, &timer, nullptr), 0);
  }
  ~Signals() {
    const itimerval off{};
    ::setitimer(ITIMER_REAL, &off, nullptr);
    std::signal(SIGALRM, SIG_IGN);
    stack_t none{};
    none.ss_flags = SS_DISABLE;
    ::sigaltstack(&none, nullptr);
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

 private:
  static std::size_t smallest_stack() {
#ifdef _SC_MINSIGSTKSZ
    return static_cast<std::size_t>(std::max(::sysconf(_SC_MINSIGSTKSZ), long{MINSIGSTKSZ})) + 512;
#else
    return MINSIGSTKSZ + 512;
#endif
  }
  std::vector<char> stack_;
};

TEST_P(InterruptionsOnIsa, SignalsChangeNoBit) {
  const std::vector<Call> all = calls();
  for (const Call& call : all) {
    const Results expected = call.run({.num_threads = 2});
    signals = 0;
    const Signals interrupt(std::chrono::microseconds(200));
    while (signals < 50) EXPECT_TRUE(same_bits(call.run({.num_threads = 2}), expected)) << call.name;
    count_faults(static_cast<std::size_t>(signals));
  }
}

TEST(Interruptions, SignalsEndNoReadAndNoWriteEarly) {
  const std::filesystem::path folder = new_temporary_folder(), pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const std::string text(300'000, 'x');  // more than a pipe holds
  const auto wait = [] { std::this_thread::sleep_for(std::chrono::milliseconds(30)); };
  signals = 0;
  {
    const Signals interrupt(std::chrono::microseconds(500));  // of this thread: the other one blocks them
    const auto blocking = [&](const std::function<void()>& other) {
      sigset_t blocked, before;
      sigemptyset(&blocked);
      sigaddset(&blocked, SIGALRM);
      pthread_sigmask(SIG_BLOCK, &blocked, &before);
      std::thread thread(other);
      pthread_sigmask(SIG_SETMASK, &before, nullptr);
      return thread;
    };
    std::thread writer = blocking([&] {
      wait();  // the reader waits for the pipe to be opened
      std::FILE* const file = std::fopen(pipe.c_str(), "w");
      for (const char* half : {"first", "second"}) {
        wait();  // the reader waits for bytes
        std::fputs(half, file);
        std::fflush(file);
      }
      std::fclose(file);
    });
    const std::vector<std::byte> bytes = read_file(pipe.string());
    writer.join();
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), "firstsecond");

    std::string received;
    std::thread reader = blocking([&] {
      wait();  // the writer waits for the pipe to be opened
      std::FILE* const file = std::fopen(pipe.c_str(), "r");
      wait();  // the writer waits for space
      for (int c; (c = std::fgetc(file)) != EOF;) received += static_cast<char>(c);
      std::fclose(file);
    });
    write_file(pipe, text);
    reader.join();
    EXPECT_TRUE(received == text) << received.size();
  }
  EXPECT_GE(signals, 100);
  count_faults(static_cast<std::size_t>(signals));
  std::filesystem::remove_all(folder);
}

/// Runs a function on a thread with a stack of `size` bytes; returns how many of them it used.
std::size_t stack_used_by(std::size_t size, const std::function<void()>& function) {
  constexpr unsigned char kPaint = 0xa5;
  void* const stack = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT_NE(stack, MAP_FAILED);
  std::memset(stack, kPaint, size);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  EXPECT_EQ(pthread_attr_setstack(&attributes, stack, size), 0);
  struct Task {
    const std::function<void()>* function;
    const unsigned char* top;
  } task{&function, nullptr};
  const auto run = [](void* argument) -> void* {
    auto& mine = *static_cast<Task*>(argument);
    const unsigned char here = 0;
    mine.top = &here;
    (*mine.function)();
    return nullptr;
  };
  pthread_t thread;
  EXPECT_EQ(pthread_create(&thread, &attributes, run, &task), 0);
  EXPECT_EQ(pthread_join(thread, nullptr), 0);
  pthread_attr_destroy(&attributes);
  const auto* const bytes = static_cast<const unsigned char*>(stack);
  const auto* const lowest = std::find_if(bytes, bytes + size, [](unsigned char byte) { return byte != kPaint; });
  const auto used = static_cast<std::size_t>(task.top - lowest);
  ::munmap(stack, size);
  return used;
}

TEST_P(InterruptionsOnIsa, CallersNeedLittleStack) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer keeps variables elsewhere than on the stack";
#endif
  for (const Call& call : calls())
    for (const int threads : {1, 3}) {
      const std::size_t used = stack_used_by(std::size_t{1} << 20, [&] { call.run({.num_threads = threads}); });
      EXPECT_LT(used, kStackOfCalls) << call.name << " on " << threads << " threads";
    }
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    const Tensor x = Tensor::copy_of(random_tensor({1, 2, 70, 256}, 1), dtype);
    const std::size_t used = stack_used_by(std::size_t{1} << 20, [&] {
      attention(x, x, x, {.causal = Causal::top_left});
      decode(x.view().slice(2, 0, 1), x, x);
      inspect(x, x, {.top_k = 3, .entropy = true});
    });
    EXPECT_LT(used, kStackOfCalls) << name_of(dtype) << " of 256 dimensions";
  }
}

// ---- Many threads --------------------------------------------------------------------------------------------

TEST(Interruptions, SixtyFourThreadsReadOneCache) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::i8, DType::i4}) {
    KvCache cache({.batch = 2, .num_kv_heads = 2, .head_dim = 32, .dtype = dtype, .page_size = 16});
    const Tensor q = random_tensor({2, 4, 3, 32}, 1);
    for (std::uint64_t step = 0; step < 5; ++step) {
      const Tensor x = random_tensor({2, 2, 7 + 10 * static_cast<std::int64_t>(step), 32}, step);
      cache.append(x, x);
      if (step == 2) cache.share_prefix(0, 1, 9);
      const auto read = [&](int number) {
        Results list;
        list.push_back(number % 2 == 0 ? attention(q, cache, {.num_threads = 2}) : decode(q, cache));
        list.push_back(number % 3 == 0 ? cache.dequantize_k() : cache.dequantize_v());
        return list;
      };
      std::vector<Results> expected;
      for (int number = 0; number < 6; ++number) expected.push_back(read(number));
      std::atomic<int> wrong = 0;
      std::vector<std::thread> threads;
      for (int t = 0; t < 64; ++t)
        threads.emplace_back([&, t] {
          for (int i = 0; i < 5; ++i) wrong += !same_bits(read(t), expected[static_cast<std::size_t>(t % 6)]);
        });
      for (std::thread& thread : threads) thread.join();
      EXPECT_EQ(wrong, 0) << name_of(dtype) << ", step " << step;
    }
  }
}

SACCADE_FOR_EACH_ISA(InterruptionsOnIsa);

}  // namespace
}  // namespace saccade::test
