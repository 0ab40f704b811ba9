// Back-end conformance: runs a problem through every function that takes one.
#pragma once

#include <cstdint>
#include <vector>

#include "cases/attention_case.h"

namespace saccade::cases {

/// Calls attention() and decode(), attention_backward() if the problem has gradients, AttentionState with the keys
/// in two parts, and decode_states() with its states merged by the CPU, and the CPU's states merged by the back
/// end. Each result is compared with the reference. `checked` is the problem's own; `seed` draws the inputs of the
/// gradients. The calls use the back end of the caller's BackendScope.
std::vector<Finding> run_conformance(AttentionCase& c, CheckedCase& checked, std::uint64_t seed);

}  // namespace saccade::cases
