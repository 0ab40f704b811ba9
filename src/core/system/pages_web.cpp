#include <cstdlib>

#include "core/system/pages.h"

namespace saccade::pages {

void* allocate(std::size_t alignment, std::size_t bytes) { return std::aligned_alloc(alignment, bytes); }

void release(void* memory) { std::free(memory); }

void request_huge(void*, std::size_t) {}

}  // namespace saccade::pages
