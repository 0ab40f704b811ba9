// Views tensors, whose axes callers may order in several ways, in one order.
#pragma once

#include <algorithm>

#include "saccade/attention.h"

namespace saccade {

/// The view with axes of length 1 prepended until it has `rank` axes.
template <class View>
View with_rank(View view, int rank) {
  for (; view.rank < rank; ++view.rank) {
    std::copy_backward(view.shape.begin(), view.shape.begin() + view.rank, view.shape.begin() + view.rank + 1);
    std::copy_backward(view.strides.begin(), view.strides.begin() + view.rank,
                       view.strides.begin() + view.rank + 1);
    view.shape[0] = 1;
    view.strides[0] = 0;
  }
  return view;
}

/// The view as [batch, heads, seqlen, dim]; missing axes get length 1. Its rank is 2, 3 or 4.
template <class View>
View as_bhsd(View view, Layout layout) {
  if (layout == Layout::bshd && view.rank > 2) view = view.transposed(-3, -2);
  return with_rank(view, 4);
}

}  // namespace saccade
