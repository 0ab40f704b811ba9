// Attention as a picture: heat maps in the terminal, as SVG and as PNG, and tokens joined by lines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "saccade/tensor.h"

namespace saccade {

/// How values become colours; a larger value is never paler. `automatic` is linear, but logarithmic for more than
/// 64 keys when over half of the positive values would fall into the palest fiftieth of the linear scale (a long
/// sequence has a few weights near 1 and thousands near 0).
enum class ColorScale : std::uint8_t { automatic, linear, logarithmic };

/// Everything optional about a picture; fill it with designated initialisers.
struct HeatmapOptions {
  /// Labels of the rows, UTF-8, one for each query; empty: positions, from 0.
  std::vector<std::string> query_tokens{};
  /// Labels of the columns, one for each key; empty: the query tokens where the matrix is square, else positions.
  std::vector<std::string> key_tokens{};

  std::string title{};    ///< above the picture; empty: none
  std::string caption{};  ///< below it, smaller; empty: none
  /// Above each panel, one for each head; empty: "head 0", "head 1", ... where there is more than one.
  std::vector<std::string> panel_titles{};

  /// Names of the two axes and of what is shown, in words; empty: none. (Terminal pictures name the value only.)
  std::string query_axis = "query";
  std::string key_axis = "key";
  std::string value_name = "weight";

  /// How many queries and keys the rows and columns stand for where the matrix is a map of a larger one, as
  /// inspect() makes them: positions beside the axes count those. 0: as many as there are. A map is drawn with up
  /// to 512 x 512 cells.
  std::int64_t queries = 0;
  std::int64_t keys = 0;

  /// The values of the palest and of the darkest colour, for all panels; values beyond take the end's colour.
  /// Not given: 0 (the smallest value where one is negative) and the largest value.
  std::optional<double> low{};
  std::optional<double> high{};
  ColorScale scale = ColorScale::automatic;

  /// Write the numbers into the cells where they fit.
  bool show_values = true;
  /// Digits after the point in the cells, 0 to 12; not given: chosen by the largest value (0.24, 1.50, 12.3, 123).
  std::optional<int> decimals{};
};

/// A heat map as an SVG document: a row for each query, a column for each key, darker = larger, one colour bar.
///
/// `weights` is [seqlen_q, seqlen_k], or [heads, seqlen_q, seqlen_k] for a grid of panels that share the colour
/// scale; any element type, any strides. Exact zeros (of a matrix that is not negative anywhere) and -inf are
/// drawn as masked: no colour and, where it can be seen, a dot. NaN is a red cross. In small pictures each cell
/// carries its tokens and its value as a tooltip.
///
/// A matrix with more rows or columns than can be seen is pooled: each cell shows the largest of a block (NaN if
/// one is in it), and a line under the title says so. Labels that do not fit are shortened with an ellipsis,
/// turned, or thinned; control characters are shown as escapes (\n, \x1b), and each byte of invalid UTF-8 as
/// U+FFFD. The document is at most a few megabytes whatever the input, and the same input gives the same bytes on
/// every machine and locale.
///
/// Throws std::invalid_argument for another rank, an empty dimension, more than 256 heads, a number of labels or
/// panel titles that does not match (naming both), low >= high or not finite, a logarithmic scale of negative
/// weights or with a `low` or `high` that is not above 0, and decimals outside 0 to 12.
std::string heatmap_svg(const TensorView& weights, const HeatmapOptions& options = {});

/// The other classic picture as an SVG document: query tokens in a column on the left, key tokens on the right,
/// joined by lines whose width and opacity are the weight. Weights below 1/100 of the largest are left out
/// (where that hides any, a line under the title says so), and so are masked ones and NaN.
///
/// Takes what heatmap_svg takes and throws as it does; besides, throws std::invalid_argument for more than 128
/// rows or columns or 65536 weights (a heat map shows those better), for negative weights and for a `high` (the
/// weight of the thickest line) that is not above 0. `low`, `scale`, `show_values` and `decimals` have no
/// influence.
std::string attention_lines_svg(const TensorView& weights, const HeatmapOptions& options = {});

/// The colours a terminal can show.
enum class TerminalColor : std::uint8_t { none, ansi256, truecolor };

/// The colours to use, from what is known about the output; pure, so that the caller reads the environment:
///
///     terminal_color(isatty(1), std::getenv("NO_COLOR"), std::getenv("COLORTERM"), std::getenv("TERM"))
///
/// `none` when it is no terminal, NO_COLOR is set and not empty (no-color.org), or TERM is missing, empty or
/// "dumb"; `truecolor` when COLORTERM is "truecolor" or "24bit" or TERM names a terminal known to have it;
/// `ansi256` when TERM contains "256color"; else `none`. A null pointer is a variable that is not set.
TerminalColor terminal_color(bool is_terminal, const char* no_color, const char* colorterm, const char* term);

/// A heat map as lines of text, each ending in a newline and at most `width` columns wide.
///
/// Takes what heatmap_svg takes and follows the same rules. With colours the cells have a background (darker =
/// larger); with `none` there are no escape sequences at all: numbers stand beside bars of eight heights, and
/// cells without numbers are shaded. The numbers are left out where they do not fit, then cells shrink, then the
/// matrix is pooled. Panels stand side by side as far as `width` allows. Labels in any script line up in a
/// terminal that follows the Unicode widths.
///
/// Throws std::invalid_argument as heatmap_svg, and for a width below 20.
std::string heatmap_terminal(const TensorView& weights, const HeatmapOptions& options, TerminalColor color,
                             int width);

/// An SVG document as a PNG file in memory, `zoom` pixels for each unit of the document, rendered by librsvg with
/// the fonts of this machine; references to other files are not followed.
///
/// Throws std::invalid_argument when the document cannot be read (with librsvg's reason) or has no size, when zoom
/// is not a positive number, and when the picture would be wider or higher than 16384 pixels.
std::vector<std::byte> png_of_svg(std::string_view svg, double zoom = 2.0);

/// Columns that a text takes in a terminal: East Asian wide and fullwidth characters and emoji 2, combining marks
/// and joiners 0, the rest 1 (Unicode Standard Annex 11; ambiguous characters count as narrow). Control characters
/// and invalid UTF-8 count as the pictures show them: "\n" 2, "\x1b" 4, each invalid byte 1.
int display_width(std::string_view utf8);

}  // namespace saccade
