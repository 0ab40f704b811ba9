// What follows from the rows of kAttentionOptions: options as text, "softcap=30" in a problem or "--softcap 30" on
// the command line, and options drawn at random.
#pragma once

#include <saccade/attention_options.h>

#include <string>
#include <string_view>
#include <vector>

#include "cases/random.h"

namespace saccade::cases {

/// Whether the option has another value than its default.
bool is_set(const AttentionOption& option, const AttentionOptions& options);

/// Its value: "30", "256,0", "top_left"; of a tensor "f32 [4]", of a flag or a function nothing.
std::string value_text(const AttentionOption& option, const AttentionOptions& options);

/// Whether it is a number, two of them, or a name: what set_from_text() takes.
bool has_text(const AttentionOption& option);

/// Sets the option to what the text says. Returns what was wanted, "a number", where the text does not say it;
/// nothing otherwise. Names may have - for _.
std::string set_from_text(const AttentionOption& option, std::string_view text, AttentionOptions& options);

/// Draws the option as its row says. A tensor, one number for each of `heads`, goes to `tensors`, where `options`
/// then look at it.
void draw_option(const AttentionOption& option, std::int64_t heads, Random& random, AttentionOptions& options,
                 std::vector<Tensor>& tensors);

}  // namespace saccade::cases
