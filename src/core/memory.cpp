#include "core/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace saccade {

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
