// Random problems whose keys and values are quantized.
#pragma once

#include <cstdint>

#include "cases/attention_case.h"
#include "cases/simplification.h"

namespace saccade::cases {

/// Quantizes the keys and values of a drawn problem, or one of them, or, of most seeds, none. This is drawn last
/// and by a generator of its own, so that the other problems stay as they are.
void quantize_randomly(AttentionCase& c, std::uint64_t seed, const Simplification& simpler);

}  // namespace saccade::cases
