#include <sys/mman.h>

#include <cstdlib>

#include "core/system/pages.h"

namespace saccade::pages {

void* allocate(std::size_t alignment, std::size_t bytes) { return std::aligned_alloc(alignment, bytes); }

void release(void* memory) { std::free(memory); }

void request_huge([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) {
#ifdef MADV_HUGEPAGE  // Linux only
  madvise(memory, bytes, MADV_HUGEPAGE);
#endif
}

}  // namespace saccade::pages
