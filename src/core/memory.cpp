#include "core/memory.h"

#ifdef __linux__
#include <sys/mman.h>
#endif

#include <algorithm>
#include <cstdint>
#include <new>

namespace saccade {

void request_huge_pages([[maybe_unused]] void* data, [[maybe_unused]] std::size_t bytes) {
#ifdef MADV_HUGEPAGE
  constexpr std::size_t kLarge = 2 * Memory::kHugePage;  // so that at least one page is whole
  if (bytes < kLarge) return;
  const std::size_t before = -reinterpret_cast<std::uintptr_t>(data) % Memory::kHugePage;
  const std::size_t whole = (bytes - before) / Memory::kHugePage * Memory::kHugePage;
  madvise(static_cast<std::byte*>(data) + before, whole, MADV_HUGEPAGE);
#endif
}

Memory::Memory(std::size_t bytes) {
  const std::size_t alignment = bytes >= kHugePage ? kHugePage : 64;
  bytes_ = (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  if (bytes_ < bytes) throw std::bad_alloc();
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(alignment, bytes_)));
  if (!data_) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
  if (alignment == kHugePage) madvise(data_.get(), bytes_, MADV_HUGEPAGE);  // a hint: failure costs speed only
#endif
}

}  // namespace saccade
