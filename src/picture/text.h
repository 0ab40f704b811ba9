// Text as the pictures need it: clean UTF-8, measured in columns and in pixels, shortened, and numbers.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace saccade::picture {

/// What a reader sees as one character: a base with its marks, an emoji sequence, a flag.
struct Cluster {
  std::string_view bytes;
  int columns = 0;
};

/// Valid UTF-8 without control characters: C0 and DEL become escapes (\n, \x1b), invalid bytes and characters that
/// would disturb the text around them (C1, bidirectional overrides, noncharacters) U+FFFD. Marks without width are
/// dropped after the eighth in a row.
std::string cleaned(std::string_view raw);

/// A token as its label: cleaned, without spaces around it; an open box where nothing would be left to see.
std::string label_of(std::string_view token);

/// The clusters of a cleaned text.
std::vector<Cluster> clusters_of(std::string_view text);

/// Columns of a cleaned text.
int columns_of(std::string_view text);

/// The advance width in pixels of a cleaned text in a common sans-serif at this font size: an estimate, on the
/// wide side.
double pixels_of(std::string_view text, double font_size);

using Measure = std::function<double(std::string_view)>;

/// pixels_of at this font size.
Measure measure_at(double font_size);

/// The text, or as much of its beginning as fits in `limit` together with an ellipsis.
std::string shortened(std::string_view text, double limit, const Measure& measure);

/// The text broken into lines of at most `limit`, at spaces and around wide characters; what does not fit in
/// `max_lines` ends in an ellipsis.
std::vector<std::string> wrapped(std::string_view text, double limit, int max_lines, const Measure& measure);

/// The text with spaces up to `columns`, after it, before it, or around it.
std::string padded_right(std::string_view text, int columns);
std::string padded_left(std::string_view text, int columns);
std::string centered(std::string_view text, int columns);

/// A number with a fixed count of decimals; very large ones in scientific notation. Never "-0.00".
std::string fixed(double value, int decimals);

/// A number in at most `digits` significant digits, as short as it can be.
std::string concise(double value, int digits);

}  // namespace saccade::picture
