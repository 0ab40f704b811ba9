// Options by the rows of kAttentionOptions: as text, "softcap=30" in a problem or "--softcap 30" on the command
// line, and drawn at random.
#pragma once

#include <saccade/attention_options.h>

#include <string>
#include <string_view>
#include <vector>

#include "cases/random.h"

namespace saccade::cases {

/// Whether the option's value differs from its default.
bool is_set(const AttentionOption& option, const AttentionOptions& options);

/// Its value: "30", "256,0", "top_left"; "f32 [4]" for a tensor; empty for a flag or a function.
std::string value_text(const AttentionOption& option, const AttentionOptions& options);

/// The members of options, by their names in C++, that are set: what leave_out() accepts.
std::vector<std::string> names_of_set(const AttentionOptions& options);

/// Whether this is the name of a member of AttentionOptions.
bool is_option_name(std::string_view name);

/// Sets the member of this name to its default. Other names are ignored.
void leave_out(std::string_view name, AttentionOptions& options);

/// Whether it is a number, a pair of numbers or a name, which set_from_text() accepts.
bool has_text(const AttentionOption& option);

/// Sets the option to the value of the text. If the text is invalid, returns what was expected, such as "a
/// number"; otherwise nothing. Names may have - for _.
std::string set_from_text(const AttentionOption& option, std::string_view text, AttentionOptions& options);

/// Draws the option as its row says. A tensor, with one number per head, is added to `tensors`, and `options` view
/// it there.
void draw_option(const AttentionOption& option, std::int64_t heads, Random& random, AttentionOptions& options,
                 std::vector<Tensor>& tensors);

}  // namespace saccade::cases
