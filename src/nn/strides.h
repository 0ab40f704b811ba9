// A tensor as rows of its innermost dimension.
#pragma once

#include <cstdint>

#include "saccade/tensor.h"

namespace saccade {

/// Whether the outer dimensions of a view form rows with one stride; then x and y need no loop over outer
/// dimensions.
inline bool has_single_stride(const TensorView& view) {
  for (int i = view.rank - 3; i >= 0; --i)
    if (view.shape[i] > 1 && view.strides[i] != view.strides[i + 1] * view.shape[i + 1]) return false;
  return true;
}

inline std::int64_t row_stride(const TensorView& view) { return view.rank > 1 ? view.strides[view.rank - 2] : 0; }

inline std::int64_t row_count(const TensorView& view) {
  std::int64_t rows = 1;
  for (int i = 0; i + 1 < view.rank; ++i) rows *= view.shape[i];
  return rows;
}

/// Whether two views of equal rank have equal lengths except for the innermost one.
inline bool same_outer_lengths(const TensorView& x, const TensorView& y) {
  bool same = true;
  for (int i = 0; i + 1 < x.rank; ++i) same &= x.shape[i] == y.shape[i];
  return same;
}

}  // namespace saccade
