// Random attention problems with random options and memory layouts.
#pragma once

#include <cstdint>

#include "cases/attention_case.h"
#include "cases/simplification.h"

namespace saccade::cases {

/// Draws the problem of a seed, the same on every machine. Shapes are awkward on purpose (see shapes.h) and mostly
/// small: the reference takes a few milliseconds. All gaps in memory, keys beyond lengths and unused pages hold
/// NaN, and sometimes masked keys do too. `simpler` changes the problem.
AttentionCase draw_case(std::uint64_t seed, const Simplification& simpler = {});

}  // namespace saccade::cases
