// Watches every allocation of a program: replaces operator new. A program includes it in one source.
#pragma once

#include <atomic>
#include <cstddef>
#include <new>

#include "support/system.h"

namespace saccade::test {

/// Of all allocations since a test has set them to 0.
inline std::atomic<std::size_t> largest_allocation{0}, allocations{0};

inline void* allocate(std::size_t bytes, std::size_t alignment) {
  ++allocations;
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
