// Memory as the operating system gives it: aligned, in huge pages where it has them.
#pragma once

#include <cstddef>

namespace saccade::pages {

/// Memory at a multiple of `alignment`, not initialized; nullptr if there is none. `bytes` is a multiple of
/// `alignment`, which is a power of two.
void* allocate(std::size_t alignment, std::size_t bytes);

/// Frees what allocate() gave, or nullptr.
void release(void* memory);

/// Requests huge pages for this memory, which begins at a multiple of their size. A hint: failure costs speed
/// only.
void request_huge(void* memory, std::size_t bytes);

}  // namespace saccade::pages
