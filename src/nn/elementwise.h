// Sums of tensors, element by element, on all threads.
#pragma once

#include "saccade/tensor.h"

#pragma GCC visibility push(default)
namespace saccade {

/// sum += x; both f32 and of equal shapes, sum contiguous.
void add_to(const MutableTensorView& sum, const TensorView& x);

/// Adds rows, f32 [...], to each entry of x, f32 [batch, ...].
void add_to_each_entry(Tensor& x, const TensorView& rows);

/// The sum over the batch of x, f32 [batch, ...].
Tensor sum_of_entries(const TensorView& x);

}  // namespace saccade
#pragma GCC visibility pop
