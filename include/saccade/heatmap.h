// Attention as pictures: heat maps in the terminal, as SVG and as PNG, and tokens joined by lines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "saccade/tensor.h"

#pragma GCC visibility push(default)
namespace saccade {

/// How values become colors; a larger value is never paler. `automatic` is linear, except for more than 64 keys
/// when over half of the positive values would be in the palest fiftieth of the linear scale (a long sequence has
/// a few weights near 1 and thousands near 0): then it is logarithmic.
enum class ColorScale : std::uint8_t { automatic, linear, logarithmic };

/// Everything optional about a picture; fill it with designated initializers.
struct HeatmapOptions {
  /// Labels of the rows, UTF-8, one for each query; empty: positions, from 0.
  std::vector<std::string> query_tokens{};
  /// Labels of the columns, one for each key; empty: the query tokens where the matrix is square, else positions.
  std::vector<std::string> key_tokens{};

  std::string title{};    ///< above the picture; empty: none
  std::string caption{};  ///< below it, smaller; empty: none
  /// Above each panel, one for each head; empty: "head 0", "head 1", ... if there is more than one head.
  std::vector<std::string> panel_titles{};

  std::string query_axis = "query";   ///< the name of the rows' axis, in words; empty: none
  std::string key_axis = "key";       ///< that of the columns' axis
  std::string value_name = "weight";  ///< that of the value; terminal pictures show this one only

  /// The numbers of queries and keys behind the rows and columns, where the matrix is a pooled map from inspect();
  /// the axes then show these positions. 0: as many as rows and columns. A map is drawn with up to 512 x 512
  /// cells.
  std::int64_t queries = 0, keys = 0;

  /// The values of the palest and of the darkest color, for all panels; values outside get the color of the
  /// nearer end. Not given: 0 (the smallest value if any is negative) and the largest value.
  std::optional<double> low{}, high{};
  ColorScale scale = ColorScale::automatic;  ///< how values between them are mapped to colors

  /// Write the values into the cells where they fit.
  bool show_values = true;
  /// Digits after the point in the cells, 0 to 12; default: depends on the largest value (0.24, 1.50, 12.3, 123).
  std::optional<int> decimals{};
};

/// A heat map as an SVG document: a row for each query, a column for each key, darker = larger, one color bar.
///
/// `weights` is [seqlen_q, seqlen_k], or [heads, seqlen_q, seqlen_k] for a grid of panels with a common color
/// scale; any element type, any strides. Exact zeros (of a matrix without negative values) and -inf count as
/// masked: no color and, if there is room, a dot. NaN is a red cross. In small pictures each cell has its tokens
/// and its value as a tooltip.
///
/// A matrix with too many rows or columns to show is pooled: each cell shows the largest value of a block (NaN if
/// the block contains one), and a line under the title says so. Labels that do not fit are shortened with an
/// ellipsis, rotated or thinned out; control characters are shown as escapes (`\n`, `\x1b`), and each byte of
/// invalid UTF-8 as U+FFFD. The document has at most a few megabytes for any input, and the same input gives the
/// same bytes on every machine and locale.
///
/// Throws std::invalid_argument for another rank, an empty dimension, more than 256 heads, a number of labels or
/// panel titles that does not match (naming both), low >= high or not finite, a logarithmic scale of negative
/// weights or with a `low` or `high` that is not above 0, and decimals outside 0 to 12.
std::string heatmap_svg(const TensorView& weights, const HeatmapOptions& options = {});

/// The other classic picture as an SVG document: query tokens in a column on the left, key tokens on the right,
/// joined by lines whose width and opacity show the weight. Omits weights below 1/100 of the largest (if there are
/// any, a line under the title says so), masked ones and NaN.
///
/// Arguments and exceptions are those of heatmap_svg. Also throws std::invalid_argument for more than 128 rows or
/// columns or 65536 weights (use a heat map for those), for negative weights and for a `high` (the weight of the
/// thickest line) that is not above 0. `low`, `scale`, `show_values` and `decimals` have no effect.
std::string attention_lines_svg(const TensorView& weights, const HeatmapOptions& options = {});

/// The colors a terminal can show.
enum class TerminalColor : std::uint8_t { none, ansi256, truecolor };

/// The colors to use, from the properties of the output; a pure function, so the caller reads the environment:
///
///     terminal_color(isatty(1), std::getenv("NO_COLOR"), std::getenv("COLORTERM"), std::getenv("TERM"))
///
/// `none` unless is_terminal, when no_color is not empty (no-color.org), or `term` is missing, empty or "dumb";
/// `truecolor` when `colorterm` is "truecolor" or "24bit" or `term` names a terminal known to support it;
/// `ansi256` when `term` contains "256color"; else `none`. A null pointer is a variable that is not set.
TerminalColor terminal_color(bool is_terminal, const char* no_color, const char* colorterm, const char* term);

/// A heat map as lines of text, each ending in a newline and at most `width` columns wide.
///
/// weights, options and rules are those of heatmap_svg. `color`: what the terminal can show. With colors the cells
/// have a background (darker = larger). With `none` there are no escape sequences: each number has a bar of one of
/// eight heights next to it, and cells without numbers are shaded. If the picture is too wide it first drops the
/// numbers, then shrinks the cells, then pools the matrix. Panels are placed side by side if `width` allows.
/// Labels in any script align in a terminal that follows the Unicode widths.
///
/// Throws std::invalid_argument as heatmap_svg does, and for a width below 20.
std::string heatmap_terminal(const TensorView& weights, const HeatmapOptions& options, TerminalColor color,
                             int width);

/// Renders an SVG document, `svg`, to a PNG file in memory, with `zoom` pixels for each unit of the document, by
/// librsvg with the fonts of this machine; ignores references to other files.
///
/// Throws std::invalid_argument when librsvg cannot read the document (with its reason) or the document has no
/// size, when zoom is not a positive number, and when the picture would be wider or higher than 16384 pixels.
/// In a build without librsvg it throws std::runtime_error, and so does pixels_of_png().
std::vector<std::byte> png_of_svg(std::string_view svg, double zoom = 2.0);

/// The pixels of `png`, the bytes of a PNG file: u8 [height, width, 3], on white where they are transparent.
/// Throws std::invalid_argument for anything else and for sides of over 16384 pixels.
Tensor pixels_of_png(std::span<const std::byte> png);

/// The width of a text, `utf8`, in terminal columns: East Asian wide and fullwidth characters and emoji 2,
/// combining marks and joiners 0, the rest 1 (Unicode Standard Annex 11; ambiguous characters count as narrow).
/// Control characters and invalid UTF-8 count as the pictures show them: "\n" 2, "\x1b" 4, each invalid byte 1.
int display_width(std::string_view utf8);

}  // namespace saccade
#pragma GCC visibility pop
