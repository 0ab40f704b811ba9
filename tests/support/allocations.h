// Watches every allocation of a program, and lets some fail: replaces operator new. A program includes it in one
// source.
#pragma once

#include <atomic>
#include <cstddef>
#include <new>
#include <utility>

#include "support/system.h"

namespace saccade::test {

/// Of all allocations since a test has set them to 0.
inline std::atomic<std::size_t> largest_allocation{0}, allocations{0};

/// Allocations that fail.
struct FailingAllocations {
  std::size_t first = 0;        ///< the number of the first one, counted from 1; 0: none
  bool for_good = false;        ///< whether all after it fail too
  std::size_t least_bytes = 0;  ///< smaller ones are not counted
};

inline FailingAllocations failing_allocations;
inline std::atomic<std::size_t> counted_allocations{0};

/// Whether the allocations of a thread succeed and are not counted.
inline thread_local bool is_spared = false;

/// Spares those of this thread while it lives.
class SparedAllocations {
 public:
  SparedAllocations() : before_(std::exchange(is_spared, true)) {}
  ~SparedAllocations() { is_spared = before_; }
  SparedAllocations(const SparedAllocations&) = delete;
  SparedAllocations& operator=(const SparedAllocations&) = delete;

 private:
  bool before_;
};

/// Whether an allocation of this size fails.
inline bool fails_now(std::size_t bytes) {
  const FailingAllocations& failing = failing_allocations;
  if (failing.first == 0 || bytes < failing.least_bytes || is_spared) return false;
  const std::size_t number = ++counted_allocations;
  return number == failing.first || (failing.for_good && number > failing.first);
}

/// Lets allocations of any thread fail while it lives. Other threads must be idle when it is made and destroyed.
class AllocationFault {
 public:
  explicit AllocationFault(const FailingAllocations& failing) {
    counted_allocations = 0;
    failing_allocations = failing;
  }
  ~AllocationFault() { failing_allocations = {}; }
  AllocationFault(const AllocationFault&) = delete;
  AllocationFault& operator=(const AllocationFault&) = delete;

  /// Whether the first one has failed.
  bool has_come() const { return counted_allocations >= failing_allocations.first; }
};

inline void* allocate(std::size_t bytes, std::size_t alignment) {
  ++allocations;
  if (fails_now(bytes)) throw std::bad_alloc();
  std::size_t largest = largest_allocation.load();
  while (bytes > largest && !largest_allocation.compare_exchange_weak(largest, bytes)) {
  }
  void* memory = allocate_aligned(alignment, (bytes + alignment - 1) / alignment * alignment + alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace saccade::test

// All forms of operator new, because a sanitizer has its own versions of those not replaced here.
void* operator new(std::size_t bytes) { return saccade::test::allocate(bytes, alignof(std::max_align_t)); }
void* operator new[](std::size_t bytes) { return saccade::test::allocate(bytes, alignof(std::max_align_t)); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return saccade::test::allocate(bytes, alignof(std::max_align_t));
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return saccade::test::allocate(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return saccade::test::allocate(bytes, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { saccade::test::free_aligned(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { saccade::test::free_aligned(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { saccade::test::free_aligned(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept {
  saccade::test::free_aligned(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  saccade::test::free_aligned(memory);
}
[[gnu::noinline]] void operator delete[](void* memory, std::align_val_t) noexcept {
  saccade::test::free_aligned(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  saccade::test::free_aligned(memory);
}
[[gnu::noinline]] void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
  saccade::test::free_aligned(memory);
}
