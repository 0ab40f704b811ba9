// Threads (core/threads, which alone starts them), their work and scratch memory (parallel.cpp).
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>

#pragma GCC visibility push(default)
namespace saccade {

/// Calls body(thread) for thread = 0 ... threads - 1, each on its own thread, and returns when all have finished.
/// Rethrows the first exception. Works in the child of a fork, and from several threads at once.
void run_on_threads(int threads, const std::function<void(int)>& body);

/// How long wait_for() polls before it sleeps.
[[gnu::visibility("hidden")]] inline constexpr std::chrono::milliseconds kPolling{1};

/// Waits until another thread of the work has set `number` to `value` and called threads::wake_all().
void wait_for(const std::atomic<std::int64_t>& number, std::int64_t value);

/// Calls body(item, scratch) for each item. Threads take the next item, in ascending order, when they are free.
/// Each thread has its own `scratch`: `scratch_bytes` long, 64-byte aligned, not initialized. Without scratch it
/// throws no std::bad_alloc of its own, unless a host's function does (set_parallel_for()).
void parallel_for(int threads, std::int64_t items, std::size_t scratch_bytes,
                  const std::function<void(std::int64_t item, std::byte* scratch)>& body);

/// The same for items that may still be in a thread's cache from earlier work by this function or another that
/// gives each thread a run of equal length: each thread begins with its own run, then takes items of other runs.
void parallel_for_in_place(int threads, std::int64_t items, std::size_t scratch_bytes,
                           const std::function<void(std::int64_t item, std::byte* scratch)>& body);

/// Rows of `columns` numbers in a block of for_blocks; does not depend on the number of threads.
std::int64_t rows_of_block(std::int64_t columns);

/// For work of a few operations per number: calls body(row, row_end) for rows [0, rows) in blocks of
/// rows_of_block(columns), on several threads if there are enough blocks. Throws as parallel_for() without
/// scratch; but to make a std::function of a lambda allocates memory, while of a std::ref() of one it does not.
void for_blocks(std::int64_t rows, std::int64_t columns,
                const std::function<void(std::int64_t row, std::int64_t row_end)>& body);

/// Memory kept between calls. Large blocks request huge pages.
class Workspace {
 public:
  /// At least `bytes` bytes, 64-byte aligned, not initialized; none for 0. Throws std::bad_alloc.
  explicit Workspace(std::size_t bytes);
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  std::byte* data() const;

  /// Frees memory that no call is using.
  static void release_idle();

 private:
  struct Block;
  /// Puts an unused block into an empty slot, `first` before others, or frees it if there is none.
  [[gnu::visibility("hidden")]] static void keep(Block* block, std::atomic<Block*>* first = nullptr);

  static std::array<std::atomic<Block*>, 64> idle_;
  Block* block_ = nullptr;  // nullptr: no bytes
};

/// The option num_threads of a public function: the maximum number of threads for work that this thread starts
/// while the object lives; 0: num_threads(). Restores the previous limit, because a score modifier may call
/// attention itself.
class ThreadLimit {
 public:
  explicit ThreadLimit(int num_threads) : outer_(current_) { current_ = num_threads > 0 ? num_threads : 0; }
  ~ThreadLimit() { current_ = outer_; }
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;

 private:
  friend int max_threads();
  static constinit thread_local int current_;  // 0: the limit is num_threads()
  int outer_;                                  // the previous limit, to restore
};

/// The most threads that a call gets, whatever it asks for.
int most_threads();

/// The number of threads that a call may use: its ThreadLimit, or num_threads(), but at most most_threads().
int max_threads();

/// The number of threads for `items` independent items of work.
int threads_for(std::int64_t items, int most = max_threads());

/// The same for items that together take a few operations on each of `numbers` numbers: one thread if a second
/// would cost more than it saves. (cpu/policy/threads.h decides for attention and products.)
int threads_for_numbers(std::int64_t items, std::int64_t numbers);

}  // namespace saccade
#pragma GCC visibility pop
