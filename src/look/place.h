// Checks the heads that a caller names.
#pragma once

#include "core/check.h"
#include "saccade/model.h"

namespace saccade::heads {

/// Throws std::invalid_argument, in the name of `function`, for a head that the model does not have.
inline void check_place(const char* function, const HeadPlace& place, const ModelSizes& sizes) {
  if (place.layer < 0 || place.layer >= sizes.num_layers || place.head < 0 || place.head >= sizes.num_heads)
    refuse(function, "L", place.layer, "H", place.head, ": the model has ", sizes.num_layers, " layers of ",
           sizes.num_heads, " heads, counted from 0");
}

}  // namespace saccade::heads
