#include <time.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <fstream>
#include <string>

#include "resources.h"

namespace saccade::cli::bench {
namespace {

double seconds(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// A line of Linux's /proc/self/status in bytes.
double memory(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    double kibibytes = 0.0;
    if (word == name + ":" && status >> kibibytes) return kibibytes * 1024;
  }
  return 0.0;
}

}  // namespace

double thread_seconds() { return seconds(CLOCK_THREAD_CPUTIME_ID); }
double process_seconds() { return seconds(CLOCK_PROCESS_CPUTIME_ID); }

double memory() { return memory("VmRSS"); }
double most_memory() { return memory("VmHWM"); }

void reset_most_memory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
  std::ofstream("/proc/self/clear_refs") << "5";  // proc(5)
}

}  // namespace saccade::cli::bench
