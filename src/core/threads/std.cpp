// The threading layer "std": threads of the standard library, which sleep between calls. All callers share them,
// and there are no more than processors. A caller does itself what no thread has begun by the time it is done with
// its own part, so a call never waits for a thread that is busy elsewhere or has not woken up.
#ifdef __linux__
#include <sched.h>
#include <unistd.h>
#endif
#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <windows.h>
#else
#include <pthread.h>
#endif

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <optional>
#include <thread>
#include <vector>

#include "core/progress.h"
#include "core/threads/team.h"
#include "core/threads/wait.h"

namespace saccade::threads {
namespace {

#ifdef __linux__
/// The processors that the program's first thread may use, even where the calling thread is kept on fewer.
std::optional<cpu_set_t> allowed_processors() {
  cpu_set_t allowed;
  if (sched_getaffinity(getpid(), sizeof allowed, &allowed) != 0) return std::nullopt;
  return allowed;
}
#endif

int count_processors() {
#ifdef __linux__
  if (const auto allowed = allowed_processors()) return std::max(1, CPU_COUNT(&*allowed));
#endif
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

/// How many processors this process may use, at its first call.
int processors() {
  static std::atomic<int> known = 0;
  int count = known.load(std::memory_order_relaxed);
  if (count == 0) known.store(count = count_processors(), std::memory_order_relaxed);
  return count;
}

#ifdef _WIN32
/// Keeps the DLL in memory, because threads sleep in its code.
void stay_loaded() {
  static const char place = 0;
  HMODULE library = nullptr;
  GetModuleHandleExW(GET_MODULE_HANDLE_EX_FLAG_PIN | GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS,
                     reinterpret_cast<LPCWSTR>(&place), &library);
}
#else
void stay_loaded() {}  // a linker's option does it
#endif

/// A thread that waits for work, works, and waits again, until the program ends.
class Worker {
 public:
  /// What give() gave: its caller then calls take_back(), and wait() if that fails.
  using Work = std::uint32_t;

  /// Starts the thread. Throws std::system_error.
  Worker() {
    stay_loaded();
    std::thread([this] { work_forever(); }).detach();
  }

  /// Gives the thread body number `thread` of the team; nothing if it is not idle.
  std::optional<Work> give(Team& team, int thread) {
    State state = state_.load(std::memory_order_relaxed);
    if (phase(state) != kIdle ||
        !state_.compare_exchange_strong(state, state + kReserved, std::memory_order_acquire))
      return std::nullopt;
    team_ = &team, thread_ = thread;
    state_.store(state + kGiven, std::memory_order_release);
    state_.notify_one();
    return state + kGiven;
  }

  /// Takes back what the thread has not begun. Returns whether it had not.
  bool take_back(Work work) {
    return state_.compare_exchange_strong(work, work - kGiven, std::memory_order_relaxed);
  }

  /// Returns when the thread has done the work.
  void wait(Work work) const {
    const State running = work - kGiven + kRunning;
    const auto is_done = [&] { return state_.load(std::memory_order_acquire) != running; };
    if (progress_hook) return poll_until(is_done);
    if (!poll_for_a_while(is_done)) state_.wait(running, std::memory_order_acquire);
  }

 private:
  // A phase, and four times the number of works that are done, so that a caller which waits for one is not misled
  // by the next.
  using State = std::uint32_t;
  static constexpr State kIdle = 0, kReserved = 1, kGiven = 2, kRunning = 3, kNext = 4;
  static State phase(State state) { return state % kNext; }

  void work_forever() {
#ifdef __linux__  // else it would stay where the thread is kept that started it
    if (const auto allowed = allowed_processors()) sched_setaffinity(0, sizeof *allowed, &*allowed);
#endif
    for (;;) {
      State state = wait_for_work();
      if (!state_.compare_exchange_strong(state, state - kGiven + kRunning, std::memory_order_acquire)) continue;
      team_->start().begin(thread_, team_->threads());
      team_->run(thread_);
      // Sequentially consistent: libstdc++ 12 then reads whether somebody waits.
      state_.store(state - kGiven + kNext);
      state_.notify_all();
    }
  }

  State wait_for_work() const {
    State state = kIdle;
    const auto is_given = [&] { return phase(state = state_.load(std::memory_order_relaxed)) == kGiven; };
    if (poll_for_a_while(is_given, kSpin)) return state;
    while (!is_given()) state_.wait(state, std::memory_order_relaxed);
    return state;
  }

  /// A program often makes one call after another, and a thread takes some 50 us to wake up.
  static constexpr std::chrono::microseconds kSpin{100};

  std::atomic<State> state_ = kIdle;
  Team* team_ = nullptr;
  int thread_ = 0;
};

/// The threads of this process. Without a lock, which a fork could leave locked.
class Pool {
 public:
  void run(Team& team) {
    std::vector<Part> parts = give(team);
    const int given = static_cast<int>(parts.size());
    team.start().begin(0, given + 1);
    team.run(0);
    for (int thread = given + 1; thread < team.threads(); ++thread) team.run(thread);
    for (Part& part : parts) {
      part.is_taken_back = part.worker->take_back(part.work);
      if (part.is_taken_back) team.run(part.thread);
    }
    for (const Part& part : parts)
      if (!part.is_taken_back) part.worker->wait(part.work);
  }

 private:
  struct Part {
    Worker* worker;
    Worker::Work work;
    int thread;
    bool is_taken_back = false;
  };

  /// Gives bodies 1, 2, ... to idle threads. In each call a thread gets the same part, whose data may still be in
  /// its cache.
  std::vector<Part> give(Team& team) {
    std::vector<Part> parts;
    const int workers = std::min(processors() - 1, static_cast<int>(workers_.size()));
    try {  // nothing may throw once a thread has work
      if (workers > 0) parts.reserve(static_cast<std::size_t>(std::min(workers, team.threads() - 1)));
    } catch (const std::bad_alloc&) {
      return parts;  // the caller's thread does all of the work
    }
    for (int thread = 1, index = 0; thread < team.threads() && index < workers; ++index) {
      Worker* const worker = find_or_start(static_cast<std::size_t>(index));
      if (!worker) break;
      if (const auto work = worker->give(team, thread)) parts.push_back({worker, *work, thread++});
    }
    return parts;
  }

  /// Worker number `index`; nullptr: the system refuses one, or another call is starting it.
  Worker* find_or_start(std::size_t index) {
    if (Worker* const worker = workers_[index].load(std::memory_order_acquire)) return worker;
    if (is_growing_.test_and_set(std::memory_order_acquire)) return nullptr;
    Worker* worker = workers_[index].load(std::memory_order_acquire);
    try {
      if (!worker) workers_[index].store(worker = new Worker, std::memory_order_release);
    } catch (const std::exception&) {
    }
    is_growing_.clear(std::memory_order_release);
    return worker;
  }

  std::array<std::atomic<Worker*>, 1023> workers_{};
  std::atomic_flag is_growing_ = ATOMIC_FLAG_INIT;
};

constinit Pool pool;

#ifndef _WIN32
// The child of a fork has none of its parent's threads.
[[maybe_unused]] const int fork_handler = pthread_atfork(nullptr, nullptr, [] { new (&pool) Pool; });
#endif

}  // namespace

std::string_view layer_name() { return "std"; }

int default_threads() {
  if (const char* const text = std::getenv("OMP_NUM_THREADS")) {
    int threads = 0;
    const auto [end, error] = std::from_chars(text, text + std::strlen(text), threads);
    if (error == std::errc() && threads > 0) return std::min(threads, processors());
  }
  return processors();
}

// More threads than processors would only push each other's data out of the caches: a training step with 64
// threads took 1.15 times as long as with one, on one processor (Emerald Rapids).
int most_threads() { return processors(); }

void run_team(Team& team) { pool.run(team); }

}  // namespace saccade::threads
