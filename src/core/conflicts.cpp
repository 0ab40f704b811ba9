#include "core/conflicts.h"

#include "core/check.h"

namespace saccade {

void refuse_combination(std::string_view function, const AttentionOptions& options) {
  for (const OptionConflict& conflict : kOptionConflicts)
    if (conflict.first.is_given(options) && conflict.second.is_given(options))
      refuse(function, conflict.first.name, " and ", conflict.second.name,
             " were both given; only one may be: ", conflict.why);
  for (const auto& [option, needed, or_else] : kOptionNeeds)
    if (option.is_given(options) && !needed.is_given(options) && !or_else.is_given(options))
      refuse(function, option.name, " was given without ", needed.name, or_else.name.empty() ? "" : " or ",
             or_else.name);
  throw std::logic_error("these options combine");
}

void check_options_of(AttentionCall call, std::string_view function, const AttentionOptions& options) {
  for (const RefusedOption& refused : kRefusedOptions)
    if (refused.call == call && refused.option.is_given(options))
      refuse(function, refused.option.name, " was given: ", refused.why);
}

}  // namespace saccade
