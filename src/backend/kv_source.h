// Keys and values as they are stored: what a back end knows of the rows of k or v that one head reads.
#pragma once

#include <cstdint>

#include "saccade/dtype.h"

namespace saccade {

/// Where the rows of k or v of one head lie, and the type of their elements. Rows are contiguous, and a constant
/// distance apart or in pages. A kernel asks for them as rows of a type that it can load (on the CPU by
/// cpu/attention/kv_source.h) and never computes an address itself.
///
/// Rows of a quantized type (saccade/quantize.h) have a scale each, and rows of i4 a multiplier for each group of
/// numbers, in planes of their own; `pages` and `page_size` serve all planes.
struct KvSource {
  const void* data = nullptr;  // row 0; paged: row 0 of page 0
  DType dtype = DType::f32;
  std::int64_t row_stride = 0;  // in elements

  // Row j is row j % page_size of page pages[j / page_size]; nullptr: not paged.
  const std::int32_t* pages = nullptr;
  std::int64_t page_size = 0, page_stride = 0;  // in rows, in elements

  // Of a quantized type only.
  std::int64_t dim = 0;           // numbers of a row
  const float* scales = nullptr;  // of rows; nullptr: 1
  std::int64_t scale_stride = 0, scale_page_stride = 0;
  const std::int8_t* multipliers = nullptr;  // of i4: the groups of a row are contiguous
  std::int64_t multiplier_stride = 0, multiplier_page_stride = 0;
};

}  // namespace saccade
