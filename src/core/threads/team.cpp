// What the threads of a call do, whatever starts them; and a host program's threads in place of the library's.
#include "core/threads/team.h"

#ifdef __linux__
#include <sched.h>
#endif

#include <list>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/parallel.h"
#include "core/progress.h"
#include "core/threads/platform.h"
#include "core/threads/wait.h"
#include "saccade/runtime.h"

namespace saccade {
namespace threads {
namespace {

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

constexpr std::chrono::microseconds kRest{100};  // idle threads spin for longer than this
constexpr std::chrono::microseconds kPatience{100};

/// Whether this thread is in Team::run().
thread_local bool is_in_team = false;

}  // namespace

thread_local TeamStart::Clock::time_point TeamStart::last_end_;

TeamStart::TeamStart() : rested_(Clock::now() - last_end_ > kRest), processor_(processor_of_this_thread()) {}

TeamStart::~TeamStart() { last_end_ = Clock::now(); }

void TeamStart::begin(int member, int members) {
  if (!rested_) return;
  if (member != 0) {
    if (processor_ >= 0 && processor_of_this_thread() == processor_) leave(processor_);
    arrived_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  const Clock::time_point latest = Clock::now() + kPatience;
  while (arrived_.load(std::memory_order_relaxed) < members - 1 && Clock::now() < latest) yield();
}

void Team::run(int thread) noexcept {
  const bool was_in_team = std::exchange(is_in_team, true);
  try {
    body_(thread);
  } catch (...) {
    if (!failed_.test_and_set()) error_ = std::current_exception();
  }
  is_in_team = was_in_team;
  ended_.fetch_add(1, std::memory_order_acq_rel);
}

namespace {

/// The host's function; nullptr: none. Functions that were set stay: a call may still be using them.
std::atomic<const ParallelFor*> host = nullptr;

void keep(ParallelFor parallel_for) {
  static Mutex mutex;
  static std::list<ParallelFor> kept;
  const Lock lock(mutex);
  host.store(&kept.emplace_back(std::move(parallel_for)), std::memory_order_release);
}

void run_on_host(const ParallelFor& parallel_for, Team& team) {
  parallel_for(team.threads(), [&team](int task) { team.run(task); });
  if (const std::int64_t ended = team.ended().load(std::memory_order_acquire); ended != team.threads())
    throw std::logic_error("[set_parallel_for] the function must run each of its " +
                           std::to_string(team.threads()) + " tasks once before it returns, but it ran " +
                           std::to_string(ended));
}

/// Ends work that this thread started, once its threads are done: throws `error`, else what a ProgressHook's
/// function threw.
void end_work(const std::exception_ptr& error) {
  const std::exception_ptr of_hook = take_progress_error();
  if (error) std::rethrow_exception(error);
  if (of_hook) std::rethrow_exception(of_hook);
}

}  // namespace
}  // namespace threads

void set_parallel_for(ParallelFor parallel_for) {
  if (parallel_for)
    threads::keep(std::move(parallel_for));
  else
    threads::host.store(nullptr, std::memory_order_release);
}

std::string_view threading_layer() { return threads::layer_name(); }

int most_threads() {
  constexpr int kMostOfHost = 1024;
  return threads::host.load(std::memory_order_relaxed) ? kMostOfHost : threads::most_threads();
}

void run_on_threads(int threads, const std::function<void(int)>& body) {
  using namespace threads;
  if (threads <= 1 && !progress_hook) return body(0);
  Team team(threads, body);
  const ParallelFor* const parallel_for = host.load(std::memory_order_acquire);
  try {
    if (threads <= 1 || is_in_team)
      team.run_all();
    else if (parallel_for)
      run_on_host(*parallel_for, team);
    else
      run_team(team);
  } catch (...) {  // from the host program
    end_work(std::current_exception());
  }
  poll_progress();  // on busy cores the others may have done the work before this thread had a turn
  end_work(team.error());
}

void wait_for(const std::atomic<std::int64_t>& number, std::int64_t value) {
  const auto has_come = [&] { return number.load(std::memory_order_acquire) == value; };
  if (progress_hook) return threads::poll_until(has_come);
  if (threads::poll_for_a_while(has_come)) return;
  for (std::int64_t now; (now = number.load(std::memory_order_acquire)) != value;)
    threads::sleep_while(number, now);
}

}  // namespace saccade
