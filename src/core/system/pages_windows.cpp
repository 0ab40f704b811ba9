#include <malloc.h>

#include "core/system/pages.h"

namespace saccade::pages {

void* allocate(std::size_t alignment, std::size_t bytes) { return _aligned_malloc(bytes, alignment); }

void release(void* memory) { _aligned_free(memory); }

// Windows gives large pages only to accounts with the privilege to lock memory.
void request_huge(void*, std::size_t) {}

}  // namespace saccade::pages
