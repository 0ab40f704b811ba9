// Calls of a ProgressHook (saccade/runtime.h) between pieces of work. Kernels poll too: one piece of work may take
// seconds.
#pragma once

#include <exception>

namespace saccade {

class ProgressHook;

/// The hook of this thread; nullptr: none, or its function is running.
extern constinit thread_local ProgressHook* progress_hook;

/// Calls its function unless the last call was a moment ago. Returns whether it did.
bool call_progress_hook() noexcept;

/// For loops whose turns take some microseconds or more. Returns whether the function was called, which may have
/// used tile registers. Inlined everywhere, for it has no instruction set of its own.
__attribute__((always_inline)) inline bool poll_progress() {
  return __builtin_expect(progress_hook != nullptr, 0) && call_progress_hook();
}

/// What the hook's function has thrown since the last call of this; nullptr: nothing.
std::exception_ptr take_progress_error() noexcept;

}  // namespace saccade
