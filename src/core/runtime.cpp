#include "saccade/runtime.h"

#include <atomic>
#include <stdexcept>

#include "core/parallel.h"
#include "core/system/processor_name.h"
#include "core/threads/team.h"

namespace saccade {
namespace {

std::atomic<int> default_threads = 0;  // 0: the threading layer's

}  // namespace

std::string cpu_name() { return processor_name(); }

int num_threads() {
  const int threads = default_threads.load(std::memory_order_relaxed);
  return threads > 0 ? threads : threads::default_threads();
}

void set_num_threads(int threads) {
  if (threads < 0)
    throw std::invalid_argument("[set_num_threads] expected 0 or more threads, got " + std::to_string(threads));
  default_threads.store(threads, std::memory_order_relaxed);
}

void release_workspaces() { Workspace::release_idle(); }

std::string_view version() { return SACCADE_VERSION; }

}  // namespace saccade
