// A team: the threads that work on one call. team.cpp says what each does; a layer starts them.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <string_view>

namespace saccade::threads {

/// Lets the threads of a team begin together. In a virtual machine, Linux mistakes sleeping processors for busy
/// ones and wakes a thread on its waker's processor. There it waits 4 ms, until the load is balanced, and the
/// first thread waits for it in turn: after 50 ms of rest, half a millisecond of work for two threads took 6 to 8
/// ms, and takes 0.65 ms with this class (Zen 5, Linux 6.18 under KVM).
class TeamStart {
 public:
  /// For the thread that starts a team, before it does.
  TeamStart();
  ~TeamStart();
  TeamStart(const TeamStart&) = delete;
  TeamStart& operator=(const TeamStart&) = delete;

  /// For each of `members` threads, before it works; member 0 is the one that starts the team.
  void begin(int member, int members);

 private:
  using Clock = std::chrono::steady_clock;
  static thread_local Clock::time_point last_end_;

  const bool rested_;
  const int processor_;
  std::atomic<int> arrived_ = 0;
};

/// The calls body(0) ... body(threads - 1).
class Team {
 public:
  Team(int threads, const std::function<void(int)>& body) : threads_(threads), body_(body) {}

  int threads() const { return threads_; }
  TeamStart& start() { return start_; }

  /// Calls body(thread), and keeps what it throws.
  void run(int thread) noexcept;

  /// Calls all of them on this thread, in ascending order.
  void run_all() noexcept {
    for (int thread = 0; thread < threads_; ++thread) run(thread);
  }

  /// How many have ended.
  const std::atomic<std::int64_t>& ended() const { return ended_; }

  /// Of the first call that threw, once all have ended; nullptr: none.
  const std::exception_ptr& error() const { return error_; }

 private:
  const int threads_;
  const std::function<void(int)>& body_;
  TeamStart start_;
  std::atomic<std::int64_t> ended_ = 0;
  std::atomic_flag failed_ = ATOMIC_FLAG_INIT;
  std::exception_ptr error_;
};

/// The threading layer, chosen when the library is built: openmp.cpp, std.cpp or none.cpp.
/// Its name: "openmp", "std" or "none".
std::string_view layer_name();

/// The threads that it gives a call by default.
int default_threads();

/// The most that it gives a call.
int most_threads();

/// Calls team.run(thread) for thread = 0 ... team.threads() - 1, on this thread and others, and returns when all
/// have ended. Where it has fewer threads, one makes several of the calls, in ascending order. Works in the child
/// of a fork, and from several threads at once.
void run_team(Team& team);

}  // namespace saccade::threads
