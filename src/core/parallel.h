// Threads and their scratch memory: all that the library knows of OpenMP.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace saccade {

/// Calls body(thread) for thread = 0 ... threads - 1, each on a thread of its own, and returns when all have. The
/// first exception is thrown again here. Works in the child of a fork, and from several threads at once.
void run_on_threads(int threads, const std::function<void(int)>& body);

/// Calls body(item, scratch) for each item, which threads take in ascending order as they become free. `scratch`
/// is the thread's own, `scratch_bytes` long, 64-byte aligned, not initialised.
void parallel_for(int threads, std::int64_t items, std::size_t scratch_bytes,
                  const std::function<void(std::int64_t item, std::byte* scratch)>& body);

/// Rows of `columns` numbers that for_blocks takes at a time, whatever the number of threads.
std::int64_t rows_of_block(std::int64_t columns);

/// For work that is a few operations a number: calls body(row, row_end) for rows [0, rows) in blocks of
/// rows_of_block(columns), on several threads where there are enough of them.
void for_blocks(std::int64_t rows, std::int64_t columns,
                const std::function<void(std::int64_t row, std::int64_t row_end)>& body);

/// Memory that is kept between calls. Large pieces ask for huge pages.
class Workspace {
 public:
  /// At least `bytes` bytes, 64-byte aligned, not initialised. Throws std::bad_alloc.
  explicit Workspace(std::size_t bytes);
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  std::byte* data() const;

  /// Frees what no call uses at the moment.
  static void release_idle();

 private:
  struct Block;
  static std::array<std::atomic<Block*>, 64> idle_;
  Block* block_ = nullptr;
};

/// The option num_threads of a public function: what is computed on this thread while the object lives uses at
/// most so many threads. 0 leaves the limit as it is.
class ThreadLimit {
 public:
  explicit ThreadLimit(int num_threads) {
    if (num_threads <= 0) return;
    outer_ = current_;
    current_ = num_threads;
  }
  ~ThreadLimit() {
    if (outer_ >= 0) current_ = outer_;
  }
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;

 private:
  friend int most_threads();
  static constinit thread_local int current_;  // 0: no limit but num_threads()
  int outer_ = -1;                             // to return to
};

/// Threads that a call may use: its ThreadLimit, or num_threads().
int most_threads();

/// Threads for `items` independent pieces of work.
int threads_for(std::int64_t items, int most = most_threads());

}  // namespace saccade
