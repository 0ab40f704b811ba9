// Keys and values as they are stored: what a back end knows of the rows of k or v that one head reads.
#pragma once

#include <cstdint>

#include "saccade/dtype.h"

namespace saccade {

/// Where the rows of k or v of one head lie, and the type of their elements. Rows are contiguous, and a constant
/// distance apart or in pages. A kernel asks for them as rows of a type that it can load (on the CPU by
/// cpu/attention/kv_source.h) and never computes an address itself.
///
/// A format that multiplies elements by scales keeps the scales in a plane of their own: one for each row, or for
/// each group of a row's elements. The plane's pointer, element type and strides of a row and of a page belong
/// here, as those of the elements do; `pages` and `page_size` serve both. Code that reads a row also reads its
/// scale.
struct KvSource {
  const void* data = nullptr;  // row 0; paged: row 0 of page 0
  DType dtype = DType::f32;
  std::int64_t row_stride = 0;  // in elements

  // Row j is row j % page_size of page pages[j / page_size]; nullptr: not paged.
  const std::int32_t* pages = nullptr;
  std::int64_t page_size = 0, page_stride = 0;  // in rows, in elements
};

}  // namespace saccade
