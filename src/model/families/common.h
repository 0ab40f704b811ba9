// Helpers for the tables of several families.
#pragma once

#include <string_view>

#include "model/families.h"

namespace saccade::model {

/// Whether `architectures` names a class with this suffix: "ForMaskedLM".
bool has_architecture(const Config& config, std::string_view ending);

/// The sizes that have the same keys in most families.
StackTable usual_sizes(const Config& config);

/// Rotary positions for every layer. The base is in rope_parameters, or at `base_key`; `rotary_part` of each
/// head is rotated unless rope_parameters says otherwise.
void add_rope(const Config& config, StackTable& stack, const std::string& base_key, double rotary_part);
/// The same for models whose layers with a window have their own: rope_parameters.sliding_attention, or
/// rope_local_base_freq.
void add_ropes_by_kind(const Config& config, StackTable& stack, const std::vector<bool>& is_sliding);

}  // namespace saccade::model
