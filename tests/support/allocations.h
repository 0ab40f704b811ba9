// Watches every allocation of a program, and lets some fail: replaces operator new. A program includes it in one
// source.
#pragma once

#include <atomic>
#include <cstddef>
#include <limits>
#include <new>

#include "support/system.h"

namespace saccade::test {

/// Of all allocations since a test has set them to 0.
inline std::atomic<std::size_t> largest_allocation{0}, allocations{0};

/// The allocations that fail, counted from 1 since a test has set their number to 0: none, unless an
/// AllocationFault lives.
inline std::atomic<std::size_t> first_failing{std::numeric_limits<std::size_t>::max()}, last_failing{0};

/// Counts an allocation. Returns whether it fails.
inline bool fails_now() {
  const std::size_t number = ++allocations;
  return first_failing <= number && number <= last_failing;
}

/// Lets an allocation of any thread fail while it lives: its n-th, or all from the n-th on.
class AllocationFault {
 public:
  /// `number` is n, from 1 on.
  AllocationFault(std::size_t number, bool for_good) {
    allocations = 0;
    last_failing = for_good ? std::numeric_limits<std::size_t>::max() : number;
    first_failing = number;
  }
  ~AllocationFault() { first_failing = std::numeric_limits<std::size_t>::max(); }
  AllocationFault(const AllocationFault&) = delete;
  AllocationFault& operator=(const AllocationFault&) = delete;

  /// Whether there were as many allocations.
  bool has_come() const { return allocations >= first_failing; }
};

inline void* allocate(std::size_t bytes, std::size_t alignment) {
  if (fails_now()) throw std::bad_alloc();
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
