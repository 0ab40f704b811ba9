#include "core/parallel.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "core/ceil_div.h"
#include "core/memory.h"
#include "core/progress.h"
#include "saccade/runtime.h"

namespace saccade {

void parallel_for(int threads, std::int64_t items, std::size_t scratch_bytes,
                  const std::function<void(std::int64_t, std::byte*)>& body) {
  std::atomic<std::int64_t> next = 0;
  const auto work = [&](int) {
    const Workspace scratch(scratch_bytes);
    for (std::int64_t item; (item = next.fetch_add(1, std::memory_order_relaxed)) < items;) {
      body(item, scratch.data());
      poll_progress();
    }
  };
  run_on_threads(threads, std::ref(work));  // a reference, for which no memory is allocated
}

void parallel_for_in_place(int threads, std::int64_t items, std::size_t scratch_bytes,
                           const std::function<void(std::int64_t, std::byte*)>& body) {
  struct alignas(64) Part {
    std::atomic<std::int64_t> next;
    std::int64_t end;
  };
  std::vector<Part> parts(static_cast<std::size_t>(threads));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    parts[i].next = items * static_cast<std::int64_t>(i) / threads;
    parts[i].end = items * static_cast<std::int64_t>(i + 1) / threads;
  }
  run_on_threads(threads, [&](int thread) {
    const Workspace scratch(scratch_bytes);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      Part& part = parts[(static_cast<std::size_t>(thread) + i) % parts.size()];
      for (std::int64_t item; (item = part.next.fetch_add(1, std::memory_order_relaxed)) < part.end;) {
        body(item, scratch.data());
        poll_progress();
      }
    }
  });
}

std::int64_t rows_of_block(std::int64_t columns) {
  constexpr std::int64_t kNumbers = 16384;  // for fewer numbers the overhead is larger than the work
  return std::max<std::int64_t>(1, kNumbers / std::max<std::int64_t>(1, columns));
}

void for_blocks(std::int64_t rows, std::int64_t columns,
                const std::function<void(std::int64_t, std::int64_t)>& body) {
  const std::int64_t block = rows_of_block(columns), blocks = ceil_div(rows, block);
  const auto one_block = [&](std::int64_t item) { body(item * block, std::min(rows, (item + 1) * block)); };
  const int threads = threads_for_numbers(blocks, rows * columns);
  if (threads > 1 || progress_hook)
    return parallel_for(threads, blocks, 0, [&](std::int64_t item, std::byte*) { one_block(item); });
  for (std::int64_t item = 0; item < blocks; ++item) one_block(item);
}

constinit thread_local int ThreadLimit::current_ = 0;

int max_threads() {
  return std::min(ThreadLimit::current_ > 0 ? ThreadLimit::current_ : num_threads(), most_threads());
}

int threads_for(std::int64_t items, int most) {
  return static_cast<int>(std::clamp<std::int64_t>(items, 1, most));
}

int threads_for_numbers(std::int64_t items, std::int64_t numbers) {
  constexpr std::int64_t kWorthThreads = 1 << 16;  // some 10 microseconds
  return numbers > kWorthThreads ? threads_for(items) : 1;
}

struct Workspace::Block {
  Memory memory;
  /// From half a megabyte on, a huge page pays off: 1% of a backward pass (Zen 4).
  explicit Block(std::size_t bytes)
      : memory(bytes > Memory::kHugePage / 4 ? std::max(bytes, Memory::kHugePage) : bytes) {}
  std::size_t bytes() const { return memory.bytes(); }
};

// Unused blocks. Exchanging pointers needs no lock, which a fork could leave locked.
std::array<std::atomic<Workspace::Block*>, 64> Workspace::idle_{};

Workspace::Workspace(std::size_t bytes) {
  if (bytes == 0) return;
  // The smallest block that fits is used. A block far too large for this call stays available to other calls. If
  // none fits, a smaller one makes room for the new one, and only one: the others serve the call's other sizes.
  std::unique_ptr<Block> best, smaller;
  for (std::atomic<Block*>& slot : idle_) {
    if (!slot.load(std::memory_order_relaxed)) continue;
    std::unique_ptr<Block> block(slot.exchange(nullptr, std::memory_order_acquire));
    if (!block) continue;
    const bool fits = block->bytes() >= bytes && block->bytes() / 8 <= bytes + 16384;
    if (fits && (!best || block->bytes() < best->bytes()))
      std::swap(block, best);
    else if (block->bytes() < bytes && !smaller)
      std::swap(block, smaller);
    if (block) keep(block.release(), &slot);
  }
  if (best) {
    if (smaller) keep(smaller.release());
    block_ = best.release();
  } else {
    smaller.reset();
    block_ = new Block(bytes);
  }
}

Workspace::~Workspace() {
  if (block_) keep(block_);
}

void Workspace::keep(Block* block, std::atomic<Block*>* first) {
  Block* empty = nullptr;
  if (first && first->compare_exchange_strong(empty, block, std::memory_order_release)) return;
  for (std::atomic<Block*>& slot : idle_) {
    empty = nullptr;
    if (slot.compare_exchange_strong(empty, block, std::memory_order_release)) return;
  }
  delete block;
}

std::byte* Workspace::data() const { return block_ ? block_->memory.data() : nullptr; }

void Workspace::release_idle() {
  for (std::atomic<Block*>& slot : idle_) delete slot.exchange(nullptr, std::memory_order_acquire);
}

}  // namespace saccade
