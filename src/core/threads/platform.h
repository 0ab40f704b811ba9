// What the standard library has for threads, and its stand-ins where the platform has none: WebAssembly without
// threads (__wasi__) lacks std::mutex, std::this_thread and waiting for atomics. There nothing is ever locked or
// awaited.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#ifndef __wasi__
#include <mutex>
#include <thread>
#endif

namespace saccade::threads {

#ifdef __wasi__

struct Mutex {};
/// Holds a mutex while it lives.
class Lock {
 public:
  explicit Lock(Mutex&) {}
  ~Lock() {}
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
};

inline void yield() {}
inline void sleep_for(std::chrono::microseconds) {}
inline void sleep_while(const std::atomic<std::int64_t>&, std::int64_t) {}
inline void wake_all(std::atomic<std::int64_t>&) {}

#else

using Mutex = std::mutex;
/// Holds a mutex while it lives.
using Lock = std::lock_guard<std::mutex>;

/// Lets another thread run.
inline void yield() { std::this_thread::yield(); }
inline void sleep_for(std::chrono::microseconds time) { std::this_thread::sleep_for(time); }
/// Sleeps until wake_all() is called, if the number is `value`.
inline void sleep_while(const std::atomic<std::int64_t>& number, std::int64_t value) { number.wait(value); }
/// Wakes the threads that sleep until a number changes.
inline void wake_all(std::atomic<std::int64_t>& number) { number.notify_all(); }

#endif

}  // namespace saccade::threads
