// Random attention problems: every option at random, all combined, memory laid out at random.
#pragma once

#include <cstdint>

#include "cases/attention_case.h"

namespace saccade::cases {

/// Draws the problem of a seed; the same one on every machine. Shapes are awkward on purpose (see shapes.h), most
/// of them small: the reference takes some milliseconds. NaN stands in all gaps of memory, behind lengths, in
/// pages that nobody has, and sometimes behind masks.
AttentionCase draw_case(std::uint64_t seed);

}  // namespace saccade::cases
