// Refuses options that do not combine, by the tables of saccade/attention_conflicts.h.
#pragma once

#include <string_view>
#include <utility>

#include "saccade/attention_conflicts.h"

namespace saccade {

/// Throws std::invalid_argument that names the two options of a conflict, or the one that is missing.
[[noreturn, gnu::cold]] void refuse_combination(std::string_view function, const AttentionOptions& options);

/// Throws if two options exclude each other, or an option is given without one that it needs.
inline void check_combination(std::string_view function, const AttentionOptions& options) {
  // Unrolls each table, so that a call costs a few comparisons and no calls through pointers.
  const auto conflicts = [&]<std::size_t... i>(std::index_sequence<i...>) {
    return ((kOptionConflicts[i].first.is_given(options) && kOptionConflicts[i].second.is_given(options)) || ...);
  };
  const auto lacks = [&]<std::size_t... i>(std::index_sequence<i...>) {
    return ((kOptionNeeds[i].option.is_given(options) && !kOptionNeeds[i].needed.is_given(options) &&
             !kOptionNeeds[i].or_else.is_given(options)) ||
            ...);
  };
  if (conflicts(std::make_index_sequence<kOptionConflicts.size()>()) ||
      lacks(std::make_index_sequence<kOptionNeeds.size()>()))
    refuse_combination(function, options);
}

/// Throws if an option is given that this call does not accept.
void check_options_of(AttentionCall call, std::string_view function, const AttentionOptions& options);

}  // namespace saccade
