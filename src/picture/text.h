// Text helpers of the pictures: cleaning UTF-8, measuring in columns and pixels, shortening, and formatting
// numbers.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace saccade::picture {

/// What a reader perceives as one character: a base with its marks, an emoji sequence, a flag.
struct Cluster {
  std::string_view bytes;
  int columns = 0;
};

/// Valid UTF-8 without control characters: C0 and DEL become escapes (\n, \x1b); invalid bytes and characters that
/// would disturb the text around them (C1, bidirectional overrides, noncharacters) become U+FFFD. Drops marks
/// without width after the eighth in a row.
std::string cleaned(std::string_view raw);

/// The label of a token: cleaned, without spaces around it; an open box if nothing visible is left.
std::string label_of(std::string_view token);

/// The clusters of a cleaned text.
std::vector<Cluster> clusters_of(std::string_view text);

/// The width of a cleaned text in columns.
int columns_of(std::string_view text);

/// The advance width in pixels of a cleaned text in a common sans-serif at this font size: a generous estimate.
double pixels_of(std::string_view text, double font_size);

using Measure = std::function<double(std::string_view)>;

/// pixels_of at this font size.
Measure measure_at(double font_size);

/// The text, or as much of its start as fits into `limit` together with an ellipsis.
std::string shortened(std::string_view text, double limit, const Measure& measure);

/// The text broken into lines of at most `limit`, at spaces and around wide characters; text that does not fit
/// into `max_lines` ends in an ellipsis.
std::vector<std::string> wrapped(std::string_view text, double limit, int max_lines, const Measure& measure);

/// The text padded with spaces to `columns`: after it, before it, or on both sides.
std::string padded_right(std::string_view text, int columns);
std::string padded_left(std::string_view text, int columns);
std::string centered(std::string_view text, int columns);

/// A number with a fixed number of decimals; very large ones in scientific notation. Never "-0.00".
std::string fixed(double value, int decimals);

/// A number with at most `digits` significant digits, as short as possible.
std::string concise(double value, int digits);

}  // namespace saccade::picture
