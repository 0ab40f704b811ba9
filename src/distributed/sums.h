// Adding up what several calls or ranks computed.
#pragma once

#include "saccade/tensor.h"

namespace saccade::distributed {

/// to += from, for views of one shape, both f32 or both f64.
void add_numbers(const TensorView& from, const MutableTensorView& to);

}  // namespace saccade::distributed
