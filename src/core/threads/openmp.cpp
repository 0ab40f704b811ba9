// The threading layer "openmp": threads of the compiler's OpenMP, which a program may share with other libraries.
#include <omp.h>
#include <pthread.h>

#include <thread>

#include "core/progress.h"
#include "core/threads/team.h"
#include "core/threads/wait.h"

namespace saccade::threads {
namespace {

std::atomic<bool> is_forked_child = false;

// GNU OpenMP binds its threads to the thread that started them. After a fork the child's main thread still refers
// to threads that are gone, but a new thread does not.
[[maybe_unused]] const int fork_handler =
    pthread_atfork(nullptr, nullptr, [] { is_forked_child.store(true, std::memory_order_relaxed); });

void run_region(Team& team) {
  // The start and end of the region already order memory; these atomics tell ThreadSanitizer, which cannot see
  // into OpenMP.
  std::atomic<int> started = 0;
  started.store(1, std::memory_order_release);
#pragma omp parallel num_threads(team.threads())
  {
    started.load(std::memory_order_acquire);
    const int member = omp_get_thread_num(), members = omp_get_num_threads();
    team.start().begin(member, members);
    // OpenMP may start fewer threads than requested.
    for (int thread = member; thread < team.threads(); thread += members) team.run(thread);
    if (member == 0 && progress_hook) poll_until([&] { return team.ended().load() == team.threads(); });
  }
  team.ended().load(std::memory_order_acquire);
}

/// In the child of a fork.
void run_region_of_new_thread(Team& team) {
  std::atomic<bool> ended = false;
  std::thread starter([&] {
    run_region(team);
    ended.store(true, std::memory_order_release);
  });
  if (progress_hook) poll_until([&] { return ended.load(std::memory_order_acquire); });
  starter.join();
}

}  // namespace

std::string_view layer_name() { return "openmp"; }

int default_threads() { return omp_get_max_threads(); }

int most_threads() { return 1024; }  // GNU OpenMP ends the program if the system refuses a thread

void run_team(Team& team) {
  if (is_forked_child.load(std::memory_order_relaxed))
    run_region_of_new_thread(team);
  else
    run_region(team);
}

}  // namespace saccade::threads
