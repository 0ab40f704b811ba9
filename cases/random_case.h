// Random attention problems with random options and memory layouts.
#pragma once

#include <cstdint>

#include "cases/attention_case.h"

namespace saccade::cases {

/// Draws the problem of a seed, the same one on every machine. Shapes are awkward on purpose (see shapes.h), most
/// of them small: the reference takes some milliseconds. All gaps in memory, keys beyond lengths and unused pages
/// hold NaN, and sometimes so do masked keys.
AttentionCase draw_case(std::uint64_t seed);

}  // namespace saccade::cases
