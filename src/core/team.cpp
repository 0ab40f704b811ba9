// Starts threads, by OpenMP, and lets them wait for each other.
#include <omp.h>
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <thread>

#include "core/parallel.h"
#include "core/progress.h"

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

/// Polls until the number is `value` or kPolling has passed; returns whether it is. Yields: a thread that sleeps
/// goes on 30 to 50 us after its turn has come (Granite Rapids, a virtual machine).
bool poll_for_a_while(const std::atomic<std::int64_t>& number, std::int64_t value) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  while (number.load(std::memory_order_acquire) != value) {
    poll_progress();
    if (Clock::now() - begin >= kPolling) return false;
    std::this_thread::yield();
  }
  return true;
}

/// For a thread with a ProgressHook, which has to be called while it waits.
void poll_until(const std::atomic<std::int64_t>& number, std::int64_t value) {
  if (poll_for_a_while(number, value)) return;
  while (number.load(std::memory_order_acquire) != value) {
    poll_progress();
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
  const std::exception_ptr error = threads <= 1 ? run_here(body)
                                   : is_child   ? run_team_of_child(threads, body)
                                                : run_team(threads, body);
  poll_progress();  // on busy cores the others may have done the work before this thread had a turn
  end_work(error);
}

void wait_for(const std::atomic<std::int64_t>& number, std::int64_t value) {
  if (progress_hook) return poll_until(number, value);
  if (poll_for_a_while(number, value)) return;
  for (std::int64_t now; (now = number.load(std::memory_order_acquire)) != value;) number.wait(now);
}

}  // namespace saccade
