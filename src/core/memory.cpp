#include "core/memory.h"

#include <algorithm>
#include <cstdint>
#include <new>

namespace saccade {

void request_huge_pages(void* data, std::size_t bytes) {
  constexpr std::size_t kLarge = 2 * Memory::kHugePage;  // so that at least one page is whole
  if (bytes < kLarge) return;
  const std::size_t before = -reinterpret_cast<std::uintptr_t>(data) % Memory::kHugePage;
  const std::size_t whole = (bytes - before) / Memory::kHugePage * Memory::kHugePage;
  pages::request_huge(static_cast<std::byte*>(data) + before, whole);
}

Memory::Memory(std::size_t bytes) {
  const std::size_t alignment = bytes >= kHugePage ? kHugePage : 64;
  bytes_ = (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  if (bytes_ < bytes) throw std::bad_alloc();
  data_.reset(static_cast<std::byte*>(pages::allocate(alignment, bytes_)));
  if (!data_) throw std::bad_alloc();
  if (alignment == kHugePage) pages::request_huge(data_.get(), bytes_);
}

}  // namespace saccade
