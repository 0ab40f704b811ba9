#include "core/progress.h"

#include <stdexcept>
#include <utility>

#include "saccade/runtime.h"

namespace saccade {

constinit thread_local ProgressHook* progress_hook = nullptr;

ProgressHook::ProgressHook(std::function<void()> function)
    : function_(std::move(function)), outer_(progress_hook) {
  if (!function_) throw std::invalid_argument("[ProgressHook] function must be callable, but it is empty");
  progress_hook = this;
}

ProgressHook::~ProgressHook() { progress_hook = outer_; }

bool call_progress_hook() noexcept {
  constexpr std::chrono::microseconds kPause{500};
  ProgressHook* const hook = progress_hook;
  if (hook->error_ || std::chrono::steady_clock::now() - hook->last_end_ < kPause) return false;
  progress_hook = nullptr;  // the function does not run again within its own calls
  try {
    hook->function_();
  } catch (...) {
    hook->error_ = std::current_exception();
  }
  progress_hook = hook;
  hook->last_end_ = std::chrono::steady_clock::now();
  return true;
}

std::exception_ptr take_progress_error() noexcept {
  return progress_hook ? std::exchange(progress_hook->error_, nullptr) : nullptr;
}

}  // namespace saccade
