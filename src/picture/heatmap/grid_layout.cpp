#include "picture/heatmap/grid_layout.h"

#include <algorithm>
#include <cmath>

#include "picture/text.h"

namespace saccade::picture {
namespace {

constexpr double kMaxSide = 768, kMaxGridSide = 960;  // of a single panel, and of a grid
constexpr double kMaxMapSide = 1024;                  // of one map of a larger matrix
constexpr double kLeastCell = 2, kMaxCell = 48, kLeastSide = 96;
constexpr std::int64_t kMaxCells = 256, kMaxMapCells = 512;  // along one side of a panel
constexpr std::int64_t kMaxWithValues = 1024;                // cells that may carry numbers
constexpr double kMaxPositions = 12;                         // along one side, if not all are shown
constexpr double kLabelSize = 13, kLeastLabelSize = 9;
constexpr double kPanelTitleSize = 12, kLeastPanelTitleSize = 9;

std::int64_t block_of(std::int64_t length, double side, std::int64_t most_cells) {
  const auto most = std::clamp<std::int64_t>(static_cast<std::int64_t>(side / kLeastCell), 1, most_cells);
  return (length + most - 1) / most;
}

// Square cells, unless that would make a panel with a short axis too thin.
void set_cell_sizes(GridLayout& layout, double side, double largest) {
  const auto rows = static_cast<double>(layout.cells.rows), columns = static_cast<double>(layout.cells.columns);
  const auto size_for = [&](double count) { return std::clamp(std::floor(side / count), kLeastCell, largest); };
  const double square = std::min(size_for(rows), size_for(columns));
  const auto widened = [&](double count) {
    return std::max(square, std::min(size_for(count), std::ceil(kLeastSide / count)));
  };
  layout.query.cell = widened(rows);
  layout.key.cell = widened(columns);
  layout.query.side = layout.query.cell * rows;
  layout.key.side = layout.key.cell * columns;
}

// Labels every token if they fit or if thinning keeps at least every fourth; else positions. `length` is the
// number of positions, also where the matrix is a map of them.
void set_marks(Axis& axis, const std::vector<std::string>& labels, std::int64_t length, std::int64_t block,
               double per_token, double longest) {
  const auto stride = static_cast<std::int64_t>(std::ceil(12 / axis.cell));
  const bool tokens = static_cast<std::int64_t>(labels.size()) == length && block == 1 && stride <= 4;
  axis.font_size =
      tokens ? std::clamp(axis.cell * static_cast<double>(stride) * 0.75, kLeastLabelSize, kLabelSize) : kSmall;
  const Measure measure = measure_at(axis.font_size);
  const double number = measure(std::to_string(length - 1)) + 8;
  const bool every_position = length <= 32 && number <= per_token;
  std::int64_t step = tokens ? stride : 1;
  if (!tokens && !every_position) {
    step = round_step(std::max(number / per_token, static_cast<double>(length) / kMaxPositions));
  }
  axis.tick_lines = step > 1 || block > 1;
  for (std::int64_t i = 0; i < length; i += step) {
    const std::string text =
        tokens ? shortened(labels[static_cast<std::size_t>(i)], longest, measure) : std::to_string(i);
    axis.widest = std::max(axis.widest, measure(text));
    axis.marks.push_back({(static_cast<double>(i) + 0.5) * per_token, text});
  }
  const double room = static_cast<double>(step) * per_token;
  if (tokens && axis.widest > room - 6) axis.turn = room >= axis.font_size * 1.5 ? Turn::slanted : Turn::upright;
}

std::string longest_value(const GridLayout& layout) {
  std::string longest;
  for (const double value : layout.cells.values) {
    if (layout.scale.kind(value) != Kind::value) continue;
    std::string text = value_text(layout, value);
    if (text.size() > longest.size()) longest = std::move(text);
  }
  return longest;
}

// Cells of small pictures grow a little to fit their numbers, and to avoid rotated key labels.
double most_cell(const std::string& longest_number, const std::vector<std::string>& key_labels) {
  constexpr double kGrown = 1.5 * kMaxCell;
  double wanted = pixels_of(longest_number, kLabelSize) + 12;
  double label = 0;
  for (const std::string& text : key_labels) label = std::max(label, pixels_of(text, kLabelSize) + 8);
  if (label <= kGrown) wanted = std::max(wanted, label);
  return std::clamp(std::ceil(wanted), kMaxCell, kGrown);
}

// The largest font size at which all panel titles fit, or the minimum.
double title_size(const std::vector<std::string>& titles, double room) {
  double widest = 0;
  for (const std::string& title : titles) widest = std::max(widest, pixels_of(title, 1));
  return widest * kPanelTitleSize <= room
             ? kPanelTitleSize
             : std::clamp(std::floor(room / widest), kLeastPanelTitleSize, kPanelTitleSize);
}

// The largest font size at which the longest number fits into a cell; 0: none fits.
double value_size(const GridLayout& layout, const std::string& longest) {
  for (const double size : {12.0, 11.0, 10.0, 9.0}) {
    if (layout.key.cell >= pixels_of(longest, size) + 6 && layout.query.cell >= size + 6) return size;
  }
  return 0;
}

}  // namespace

GridLayout grid_layout(const Input& input, const HeatmapOptions& options) {
  GridLayout layout;
  const double shape = static_cast<double>(input.seqlen_q) / static_cast<double>(input.seqlen_k);
  layout.grid_columns = columns_of_grid(input.heads, std::clamp(shape, 0.1, 10.0), input.heads);
  layout.grid_rows = (input.heads + layout.grid_columns - 1) / layout.grid_columns;
  layout.panel_title = input.panel_titles.empty() ? 0 : kHeadroom;
  layout.gap = layout.grid_columns <= 4 ? 20 : 12;
  const auto across = static_cast<double>(layout.grid_columns);
  const double alone = input.is_map() ? kMaxMapSide : kMaxSide;
  const double side = across == 1 ? alone : std::floor((kMaxGridSide + layout.gap) / across - layout.gap);
  const std::int64_t most = input.is_map() ? kMaxMapCells : kMaxCells;
  layout.cells = pooled(input, block_of(input.seqlen_q, side, most), block_of(input.seqlen_k, side, most));
  layout.scale = scale_of(layout.cells, options, "heatmap_svg");

  const auto cell_count = static_cast<std::int64_t>(layout.cells.values.size());
  const bool values = options.show_values && !layout.cells.pooled() && cell_count <= kMaxWithValues;
  const std::string longest = values ? longest_value(layout) : "";
  set_cell_sizes(layout, side, most_cell(longest, input.key_labels));
  layout.title_size = title_size(input.panel_titles, layout.key.side);
  if (values) layout.value_size = value_size(layout, longest);
  const auto per_token = [](double cell, std::int64_t block, std::int64_t cells, std::int64_t tokens) {
    return cell / static_cast<double>(block) * static_cast<double>(cells) / static_cast<double>(tokens);
  };
  set_marks(layout.query, input.query_labels, input.queries, layout.cells.block_q,
            per_token(layout.query.cell, layout.cells.block_q, input.seqlen_q, input.queries), 160);
  set_marks(layout.key, input.key_labels, input.keys, layout.cells.block_k,
            per_token(layout.key.cell, layout.cells.block_k, input.seqlen_k, input.keys), 130);

  layout.query_name = shortened(cleaned(options.query_axis), 160, measure_at(kSmall));
  layout.left = kMargin + std::max(layout.query.widest, pixels_of(layout.query_name, kSmall)) + 9;
  if (layout.key.turn == Turn::slanted) {
    layout.left = std::max(layout.left, kMargin + layout.key.widest * 0.71 - layout.key.marks.front().at + 8);
  }
  layout.left = std::ceil(layout.left);  // cells begin at whole pixels
  return layout;
}

std::string value_text(const GridLayout& layout, double value) {
  return typographic(fixed(value, layout.scale.decimals));
}

}  // namespace saccade::picture
