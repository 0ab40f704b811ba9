#include "core/parallel.h"

#include <omp.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "core/ceil_div.h"
#include "core/memory.h"
#include "core/progress.h"
#include "saccade/runtime.h"

namespace saccade {
namespace {

std::atomic<bool> is_forked_child = false;

// GNU OpenMP binds its threads to the thread that started them. After a fork the child's main thread still refers
// to threads that are gone, but a new thread does not.
[[maybe_unused]] const int fork_handler =
    pthread_atfork(nullptr, nullptr, [] { is_forked_child.store(true, std::memory_order_relaxed); });

#ifdef __linux__
int processor_of_this_thread() { return sched_getcpu(); }

/// Moves this thread to another processor in its affinity mask.
void leave(int processor) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  cpu_set_t others = allowed;
  CPU_CLR(static_cast<std::size_t>(processor), &others);
  if (CPU_COUNT(&others) > 0 && sched_setaffinity(0, sizeof others, &others) == 0)
    sched_setaffinity(0, sizeof allowed, &allowed);
}
#else
int processor_of_this_thread() { return -1; }
void leave(int) {}
#endif

/// Lets the threads of a team begin together. In a virtual machine, Linux mistakes sleeping processors for busy
/// ones and wakes a thread on its waker's processor. There it waits 4 ms, until the load is balanced, and the
/// first thread waits for it in turn: after 50 ms of rest, half a millisecond of work for two threads took 6 to 8
/// ms, and takes 0.65 ms with this class (Zen 5, Linux 6.18 under KVM).
class TeamStart {
 public:
  /// For the thread that starts a team, before it does.
  TeamStart() : rested_(Clock::now() - last_end_ > kRest), processor_(processor_of_this_thread()) {}
  ~TeamStart() { last_end_ = Clock::now(); }
  TeamStart(const TeamStart&) = delete;
  TeamStart& operator=(const TeamStart&) = delete;

  /// For each thread of the team, before it works.
  void begin(int thread, int threads) {
    if (!rested_) return;
    if (thread != 0) {
      if (processor_ >= 0 && processor_of_this_thread() == processor_) leave(processor_);
      arrived_.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    const Clock::time_point latest = Clock::now() + kPatience;
    while (arrived_.load(std::memory_order_relaxed) < threads - 1 && Clock::now() < latest)
      std::this_thread::yield();
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::microseconds kRest{100};  // idle OpenMP threads spin for longer than this
  static constexpr std::chrono::microseconds kPatience{100};
  static inline thread_local Clock::time_point last_end_;

  const bool rested_;
  const int processor_;
  std::atomic<int> arrived_ = 0;
};

/// Polls until the number is `value`. Yields for the first millisecond: a thread that wakes late would end the
/// call late.
void poll_until(const std::atomic<std::int64_t>& number, std::int64_t value) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  while (number.load(std::memory_order_acquire) != value) {
    poll_progress();
    if (Clock::now() - begin < std::chrono::milliseconds(1))
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

/// Ends work that this thread started, once its threads are done: throws `error`, else what a ProgressHook's
/// function threw.
void end_work(const std::exception_ptr& error) {
  const std::exception_ptr of_hook = take_progress_error();
  if (error) std::rethrow_exception(error);
  if (of_hook) std::rethrow_exception(of_hook);
}

std::exception_ptr run_here(const std::function<void(int)>& body) {
  try {
    body(0);
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

std::exception_ptr run_team(int threads, const std::function<void(int)>& body) {
  std::exception_ptr error;
  TeamStart start;
  // The start and end of the region already order memory; these atomics tell ThreadSanitizer, which cannot see
  // into OpenMP.
  std::atomic<int> started = 0;
  std::atomic<std::int64_t> finished = 0;
  std::atomic_flag failed = ATOMIC_FLAG_INIT;
  started.store(1, std::memory_order_release);
#pragma omp parallel num_threads(threads)
  {
    started.load(std::memory_order_acquire);
    start.begin(omp_get_thread_num(), omp_get_num_threads());
    // OpenMP may start fewer threads than requested.
    for (int thread = omp_get_thread_num(); thread < threads; thread += omp_get_num_threads()) {
      try {
        body(thread);
      } catch (...) {
        if (!failed.test_and_set()) error = std::current_exception();
      }
    }
    finished.fetch_add(1, std::memory_order_acq_rel);
    if (omp_get_thread_num() == 0 && progress_hook) poll_until(finished, omp_get_num_threads());
  }
  finished.load(std::memory_order_acquire);
  return error;
}

/// run_team() in the child of a fork.
std::exception_ptr run_team_of_child(int threads, const std::function<void(int)>& body) {
  std::exception_ptr error;
  std::atomic<std::int64_t> finished = 0;
  std::thread starter([&] {
    error = run_team(threads, body);
    finished.store(1, std::memory_order_release);
  });
  if (progress_hook) poll_until(finished, 1);
  starter.join();
  return error;
}

}  // namespace

void run_on_threads(int threads, const std::function<void(int)>& body) {
  if (threads <= 1 && !progress_hook) return body(0);
  const bool is_child = is_forked_child.load(std::memory_order_relaxed);
  end_work(threads <= 1 ? run_here(body) : is_child ? run_team_of_child(threads, body) : run_team(threads, body));
}

void wait_for(const std::atomic<std::int64_t>& number, std::int64_t value) {
  if (progress_hook) return poll_until(number, value);
  for (std::int64_t now; (now = number.load(std::memory_order_acquire)) != value;) number.wait(now);
}

void parallel_for(int threads, std::int64_t items, std::size_t scratch_bytes,
                  const std::function<void(std::int64_t, std::byte*)>& body) {
  std::atomic<std::int64_t> next = 0;
  run_on_threads(threads, [&](int) {
    const Workspace scratch(scratch_bytes);
    for (std::int64_t item; (item = next.fetch_add(1, std::memory_order_relaxed)) < items;) {
      body(item, scratch.data());
      poll_progress();
    }
  });
}

void parallel_for_in_place(int threads, std::int64_t items, std::size_t scratch_bytes,
                           const std::function<void(std::int64_t, std::byte*)>& body) {
  struct alignas(64) Part {
    std::atomic<std::int64_t> next;
    std::int64_t end;
  };
  std::vector<Part> parts(static_cast<std::size_t>(threads));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    parts[i].next = items * static_cast<std::int64_t>(i) / threads;
    parts[i].end = items * static_cast<std::int64_t>(i + 1) / threads;
  }
  run_on_threads(threads, [&](int thread) {
    const Workspace scratch(scratch_bytes);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      Part& part = parts[(static_cast<std::size_t>(thread) + i) % parts.size()];
      for (std::int64_t item; (item = part.next.fetch_add(1, std::memory_order_relaxed)) < part.end;) {
        body(item, scratch.data());
        poll_progress();
      }
    }
  });
}

std::int64_t rows_of_block(std::int64_t columns) {
  constexpr std::int64_t kNumbers = 16384;  // for fewer numbers the overhead is larger than the work
  return std::max<std::int64_t>(1, kNumbers / std::max<std::int64_t>(1, columns));
}

void for_blocks(std::int64_t rows, std::int64_t columns,
                const std::function<void(std::int64_t, std::int64_t)>& body) {
  const std::int64_t block = rows_of_block(columns), blocks = ceil_div(rows, block);
  const auto one_block = [&](std::int64_t item) { body(item * block, std::min(rows, (item + 1) * block)); };
  const int threads = threads_for_numbers(blocks, rows * columns);
  if (threads > 1 || progress_hook)
    return parallel_for(threads, blocks, 0, [&](std::int64_t item, std::byte*) { one_block(item); });
  for (std::int64_t item = 0; item < blocks; ++item) one_block(item);
}

constinit thread_local int ThreadLimit::current_ = 0;

int max_threads() {
  constexpr int kMaxThreads = 1024;  // OpenMP ends the program if the system refuses a thread
  return std::min(ThreadLimit::current_ > 0 ? ThreadLimit::current_ : num_threads(), kMaxThreads);
}

int threads_for(std::int64_t items, int most) {
  return static_cast<int>(std::clamp<std::int64_t>(items, 1, most));
}

int threads_for_numbers(std::int64_t items, std::int64_t numbers) {
  constexpr std::int64_t kWorthThreads = 1 << 16;  // some 10 microseconds
  return numbers > kWorthThreads ? threads_for(items) : 1;
}

struct Workspace::Block {
  Memory memory;
  /// From half a megabyte on, a huge page pays off: 1% of a backward pass (Zen 4).
  explicit Block(std::size_t bytes)
      : memory(bytes > Memory::kHugePage / 4 ? std::max(bytes, Memory::kHugePage) : bytes) {}
  std::size_t bytes() const { return memory.bytes(); }
};

// Unused blocks. Exchanging pointers needs no lock, which a fork could leave locked.
std::array<std::atomic<Workspace::Block*>, 64> Workspace::idle_{};

Workspace::Workspace(std::size_t bytes) {
  // The smallest block that fits is used. A block far too large for this call stays available to other calls. If
  // none fits, a smaller one makes room for the new one, and only one: the others serve the call's other sizes.
  std::unique_ptr<Block> best, smaller;
  for (std::atomic<Block*>& slot : idle_) {
    if (!slot.load(std::memory_order_relaxed)) continue;
    std::unique_ptr<Block> block(slot.exchange(nullptr, std::memory_order_acquire));
    if (!block) continue;
    const bool fits = block->bytes() >= bytes && block->bytes() / 8 <= bytes + 16384;
    if (fits && (!best || block->bytes() < best->bytes()))
      std::swap(block, best);
    else if (block->bytes() < bytes && !smaller)
      std::swap(block, smaller);
    if (block) keep(block.release(), &slot);
  }
  if (best) {
    if (smaller) keep(smaller.release());
    block_ = best.release();
  } else {
    smaller.reset();
    block_ = new Block(bytes);
  }
}

Workspace::~Workspace() { keep(block_); }

void Workspace::keep(Block* block, std::atomic<Block*>* first) {
  Block* empty = nullptr;
  if (first && first->compare_exchange_strong(empty, block, std::memory_order_release)) return;
  for (std::atomic<Block*>& slot : idle_) {
    empty = nullptr;
    if (slot.compare_exchange_strong(empty, block, std::memory_order_release)) return;
  }
  delete block;
}

std::byte* Workspace::data() const { return block_->memory.data(); }

void Workspace::release_idle() {
  for (std::atomic<Block*>& slot : idle_) delete slot.exchange(nullptr, std::memory_order_acquire);
}

}  // namespace saccade
