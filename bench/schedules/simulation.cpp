#include "simulation.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "core/parallel.h"
#include "saccade/runtime.h"

namespace saccade {
namespace simulation {
namespace {

ThreadCosts thread_costs;
int virtual_threads = 1;
double clock_alone = 0.0;  // of the thread that starts teams

/// The virtual threads of a run_on_threads(). Each has a thread of the system, of which one runs at a time.
class Team {
 public:
  Team(int threads, double begin) : members_(static_cast<std::size_t>(threads)) {
    for (Member& member : members_) member.clock = begin;
  }

  /// Runs the team, and returns when its last thread ends.
  double run(const std::function<void(int)>& body) {
    std::vector<std::thread> threads;
    for (int i = 0; i < static_cast<int>(members_.size()); ++i)
      threads.emplace_back([this, i, &body] { run_member(i, body); });
    for (std::thread& thread : threads) thread.join();
    if (error_) std::rethrow_exception(error_);
    return std::ranges::max_element(members_, {}, &Member::clock)->clock;
  }

  void spend(double seconds) {
    std::unique_lock lock(mutex_);
    wake_up();
    members_[running_].clock += seconds;
    hand_over(lock);
  }

  void wait(const std::atomic<std::int64_t>& number, std::int64_t value) {
    if (number.load() == value) return;
    std::unique_lock lock(mutex_);
    wake_up();
    members_[running_].number = &number, members_[running_].value = value;
    hand_over(lock);
  }

  static Team*& of_this_thread() {
    static thread_local Team* team = nullptr;
    return team;
  }

 private:
  struct Member {
    double clock = 0.0;
    const std::atomic<std::int64_t>* number = nullptr;  // waits until it is `value`; nullptr: does not wait
    std::int64_t value = 0;
    bool has_ended = false;
    std::condition_variable turn;

    bool can_run() const { return !has_ended && !number; }
  };

  void run_member(int i, const std::function<void(int)>& body) {
    const auto self = static_cast<std::size_t>(i);
    of_this_thread() = this;
    {
      std::unique_lock lock(mutex_);
      members_[self].turn.wait(lock, [&] { return running_ == self; });
    }
    try {
      body(i);
    } catch (...) {
      if (!error_) error_ = std::current_exception();
    }
    std::unique_lock lock(mutex_);
    wake_up();
    members_[self].has_ended = true;
    pass_to_next();
  }

  /// Lets those go on that waited for a number which the running thread has set since its last event.
  void wake_up() {
    for (Member& member : members_) {
      if (!member.number || member.number->load() != member.value) continue;
      member.number = nullptr;
      const double end = std::max(member.clock, members_[running_].clock);
      const bool polls = end - member.clock < std::chrono::duration<double>(kPolling).count();
      member.clock = end + (polls ? thread_costs.notice : thread_costs.wake);
    }
  }

  /// Lets the next thread run, and returns when it is this thread's turn again.
  void hand_over(std::unique_lock<std::mutex>& lock) {
    const std::size_t self = running_;
    pass_to_next();
    members_[self].turn.wait(lock, [&] { return running_ == self; });
    if (!is_stuck_) return;
    members_[self].number = nullptr;
    throw std::logic_error("all threads wait for each other");
  }

  void pass_to_next() {
    std::size_t next = members_.size();
    for (std::size_t i = 0; i < members_.size(); ++i)
      if (members_[i].can_run() && (next == members_.size() || members_[i].clock < members_[next].clock)) next = i;
    if (next == members_.size()) {
      // Those that still wait end one after the other, each with an error.
      next = static_cast<std::size_t>(
          std::ranges::find_if(members_, [](const Member& member) { return !member.has_ended; }) -
          members_.begin());
      if (next == members_.size()) return;
      is_stuck_ = true;
    }
    if (next == running_) return;
    running_ = next;
    members_[next].turn.notify_one();
  }

  std::vector<Member> members_;
  std::mutex mutex_;
  std::size_t running_ = 0;
  bool is_stuck_ = false;
  std::exception_ptr error_;
};

}  // namespace

double simulate(int threads, const ThreadCosts& costs, const std::function<void()>& work) {
  thread_costs = costs, virtual_threads = threads, clock_alone = 0.0;
  work();
  return clock_alone;
}

void spend(double seconds) {
  if (Team* const team = Team::of_this_thread())
    team->spend(seconds);
  else
    clock_alone += seconds;
}

}  // namespace simulation

void run_on_threads(int threads, const std::function<void(int)>& body) {
  using namespace simulation;
  if (Team::of_this_thread()) throw std::logic_error("a thread of a team starts another team");
  if (threads <= 1) return body(0);
  Team team(threads, clock_alone);
  clock_alone = team.run(body) + thread_costs.team * std::log2(threads);
}

void wait_for(const std::atomic<std::int64_t>& number, std::int64_t value) {
  using namespace simulation;
  if (Team* const team = Team::of_this_thread()) return team->wait(number, value);
  if (number.load() != value) throw std::logic_error("the only thread waits for another");
}

int num_threads() { return simulation::virtual_threads; }

int most_threads() { return simulation::virtual_threads; }

}  // namespace saccade
