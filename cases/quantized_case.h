// Random problems whose keys and values are quantized.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "cases/attention_case.h"
#include "cases/random.h"
#include "cases/simplification.h"

namespace saccade::cases {

/// Quantizes the keys and values of a drawn problem, or one of them, or, of most seeds, none. This is drawn last
/// and by a generator of its own, so that the other problems stay as they are. `begin` is called where a part of
/// it begins, and may set the generator.
void quantize_randomly(AttentionCase& c, std::uint64_t seed, const Simplification& simpler,
                       const std::function<void(std::string_view, Random&)>& begin);

}  // namespace saccade::cases
