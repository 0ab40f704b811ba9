// Calls a ProgressHook (saccade/runtime.h) between items of work. Kernels poll too: one item may take seconds.
#pragma once

#include <exception>

namespace saccade {

class ProgressHook;

/// The hook of this thread; nullptr: none, or its function is running.
extern constinit thread_local ProgressHook* progress_hook;

/// Calls its function, at a limited rate. Returns whether it did.
bool call_progress_hook() noexcept;

/// For loops whose iterations take a few microseconds or more. Returns whether the function was called; it may
/// have used tile registers. Always inlined: it must not bring an instruction set of its own.
__attribute__((always_inline)) inline bool poll_progress() {
  return __builtin_expect(progress_hook != nullptr, 0) && call_progress_hook();
}

/// What the hook's function has thrown since the last call of take_progress_error(); nullptr: nothing.
std::exception_ptr take_progress_error() noexcept;

}  // namespace saccade
