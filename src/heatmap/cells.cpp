// heatmap_svg: a grid of panels, axes at its left and lower edge, a colour bar at its right.
#include <algorithm>
#include <array>
#include <cmath>

#include "heatmap/color.h"
#include "heatmap/matrix.h"
#include "heatmap/svg.h"
#include "heatmap/text.h"

namespace saccade {
namespace {

using namespace picture;

constexpr double kMostSide = 768, kMostGridSide = 960;  // of one panel alone, of a grid
constexpr double kLeastCell = 2, kMostCell = 48, kLeastSide = 96;
constexpr std::int64_t kMostCells = 256;        // along one side of a panel
constexpr std::int64_t kMostSeparate = 2500;    // cells that are elements of their own
constexpr std::int64_t kMostWithValues = 1024;  // cells that may carry numbers
constexpr int kLevels = 128;                    // shades of a dense panel
constexpr double kLabelSize = 13, kLeastLabelSize = 9, kTitleSize = 12, kTitleHeight = 20;
constexpr double kBarWidth = 12, kBarGap = 28, kBarLabel = 20, kLegendLine = 18;

Measure measure_at(double size) {
  return [size](std::string_view text) { return pixels_of(text, size); };
}

enum class Turn : std::uint8_t { level, slanted, upright };

struct Mark {
  double at;  // along the axis, from the panel's edge
  std::string text;
};

// One axis of every panel: the size of its cells and the labels beside them.
struct Axis {
  double cell = 0;
  double side = 0;
  double font_size = kLabelSize;
  bool tick_lines = false;
  Turn turn = Turn::level;
  std::vector<Mark> marks;
  double widest = 0;  // of the labels
};

// The whole picture, in document units.
struct Layout {
  Cells cells;
  Scale scale;
  Axis query, key;
  std::int64_t grid_columns = 1, grid_rows = 1;
  double gap = 0, panel_title = 0;
  double left = 0, top = 0;  // of the first panel
  double value_size = 0;     // font size of the numbers in the cells; 0: none

  double panel_x(std::int64_t head) const {
    return left + static_cast<double>(head % grid_columns) * (key.side + gap);
  }
  double panel_y(std::int64_t head) const {
    return top + static_cast<double>(head / grid_columns) * (query.side + panel_title + gap);
  }
  double grid_width() const { return static_cast<double>(grid_columns) * (key.side + gap) - gap; }
  double grid_height() const {
    return static_cast<double>(grid_rows) * (query.side + panel_title + gap) - gap - panel_title;
  }
};

// Columns of a grid about 4:3 that leaves few places empty.
std::int64_t columns_of_grid(const Input& input) {
  const double shape =
      std::clamp(static_cast<double>(input.seqlen_q) / static_cast<double>(input.seqlen_k), 0.1, 10.0);
  const double ideal = std::sqrt(static_cast<double>(input.heads) * 4 / 3 * shape);
  const auto first = std::clamp<std::int64_t>(static_cast<std::int64_t>(ideal), 1, input.heads);
  const std::int64_t last = std::min(first + 2, input.heads);
  std::int64_t best = first, least = input.heads;
  for (std::int64_t columns = first; columns <= last; ++columns) {
    const std::int64_t empty = (input.heads + columns - 1) / columns * columns - input.heads;
    if (empty < least) {
      least = empty;
      best = columns;
    }
  }
  return best;
}

std::int64_t block_of(std::int64_t length, double side) {
  const auto most = std::clamp<std::int64_t>(static_cast<std::int64_t>(side / kLeastCell), 1, kMostCells);
  return (length + most - 1) / most;
}

// Square cells, unless one axis is so short that its side would be a sliver.
void set_cell_sizes(Layout& layout, double side, double most_cell) {
  const auto rows = static_cast<double>(layout.cells.rows), columns = static_cast<double>(layout.cells.columns);
  const auto size_for = [&](double count) { return std::clamp(std::floor(side / count), kLeastCell, most_cell); };
  const double square = std::min(size_for(rows), size_for(columns));
  const auto widened = [&](double count) {
    return std::max(square, std::min(size_for(count), std::ceil(kLeastSide / count)));
  };
  layout.query.cell = widened(rows);
  layout.key.cell = widened(columns);
  layout.query.side = layout.query.cell * rows;
  layout.key.side = layout.key.cell * columns;
}

void set_marks(Axis& axis, const std::vector<std::string>& labels, std::int64_t length, std::int64_t block,
               double room_for_number, double longest) {
  const double per_token = axis.cell / static_cast<double>(block);
  const auto stride = static_cast<std::int64_t>(std::ceil(12 / axis.cell));
  const bool tokens = !labels.empty() && block == 1 && stride <= 4;
  const std::int64_t step = tokens ? stride : round_step(room_for_number / per_token);
  axis.font_size =
      tokens ? std::clamp(axis.cell * static_cast<double>(step) * 0.75, kLeastLabelSize, kLabelSize) : kSmall;
  axis.tick_lines = step > 1 || block > 1;
  const Measure measure = measure_at(axis.font_size);
  for (std::int64_t i = 0; i < length; i += step) {
    const std::string text =
        tokens ? shortened(labels[static_cast<std::size_t>(i)], longest, measure) : std::to_string(i);
    axis.widest = std::max(axis.widest, measure(text));
    axis.marks.push_back({(static_cast<double>(i) + 0.5) * per_token, text});
  }
  const double room = static_cast<double>(step) * per_token;
  if (tokens && axis.widest > room - 6) axis.turn = room >= axis.font_size * 1.5 ? Turn::slanted : Turn::upright;
}

std::string value_text(const Layout& layout, double value) {
  return typographic(fixed(value, layout.scale.decimals));
}

std::string longest_value(const Layout& layout) {
  std::string longest;
  for (const double value : layout.cells.values) {
    if (layout.scale.kind(value) != Kind::value) continue;
    std::string text = value_text(layout, value);
    if (text.size() > longest.size()) longest = std::move(text);
  }
  return longest;
}

double height_of_labels(const Axis& axis) {
  switch (axis.turn) {
    case Turn::level:
      return axis.font_size + 4;
    case Turn::slanted:
      return (axis.widest + axis.font_size) * 0.71 + 4;
    case Turn::upright:
      return axis.widest + 4;
  }
  return 0;
}

Layout layout_of(const Input& input, const HeatmapOptions& options) {
  Layout layout;
  layout.grid_columns = columns_of_grid(input);
  layout.grid_rows = (input.heads + layout.grid_columns - 1) / layout.grid_columns;
  layout.panel_title = input.panel_titles.empty() ? 0 : kTitleHeight;
  layout.gap = layout.grid_columns <= 4 ? 20 : 12;
  const auto across = static_cast<double>(layout.grid_columns);
  const double side = across == 1 ? kMostSide : std::floor((kMostGridSide + layout.gap) / across - layout.gap);
  layout.cells = pooled(input, block_of(input.seqlen_q, side), block_of(input.seqlen_k, side));
  layout.scale = scale_of(layout.cells, options, "heatmap_svg");

  const auto cell_count = static_cast<std::int64_t>(layout.cells.values.size());
  const bool values = options.show_values && !layout.cells.pooled() && cell_count <= kMostWithValues;
  const std::string longest = values ? longest_value(layout) : "";
  set_cell_sizes(layout, side, std::clamp(pixels_of(longest, 12) + 12, kMostCell, 1.5 * kMostCell));
  for (const double size : {12.0, 11.0, 10.0, 9.0}) {
    const bool fits = layout.key.cell >= pixels_of(longest, size) + 6 && layout.query.cell >= size + 6;
    if (values && fits && layout.value_size == 0) layout.value_size = size;
  }
  set_marks(layout.query, input.query_labels, input.seqlen_q, layout.cells.block_q, 26, 160);
  set_marks(layout.key, input.key_labels, input.seqlen_k, layout.cells.block_k, 36, 130);

  layout.left = kMargin + (options.query_axis.empty() ? 0 : 20) + layout.query.widest + 10;
  if (layout.key.turn == Turn::slanted) {
    layout.left = std::max(layout.left, kMargin + layout.key.widest * 0.71 - layout.key.marks.front().at + 8);
  }
  return layout;
}

void draw_masked(Svg& svg, double x, double y, double width, double height, double radius,
                 const std::string& tooltip) {
  svg.rect(x, y, width, height, kNothing, radius, tooltip);
  if (std::min(width, height) >= 12) svg.circle(x + width / 2, y + height / 2, 1.4, kNothingDot);
}

void draw_nan(Svg& svg, double x, double y, double width, double height, double radius,
              const std::string& tooltip) {
  svg.rect(x, y, width, height, kNothing, radius, tooltip);
  svg.cross(x + width / 2, y + height / 2, std::min(width, height) * 0.2, kAlarm);
}

std::string tooltip_of(const Input& input, std::int64_t row, std::int64_t column, double value) {
  const auto name = [](const std::vector<std::string>& labels, std::int64_t i) {
    return labels.empty() ? std::to_string(i)
                          : shortened(labels[static_cast<std::size_t>(i)], 160, measure_at(kSmall));
  };
  return name(input.query_labels, row) + " \u2192 " + name(input.key_labels, column) + ": " +
         typographic(concise(value, 6));
}

void draw_cell(Svg& svg, const Layout& layout, double x, double y, double value, const std::string& tooltip) {
  const double least = std::min(layout.query.cell, layout.key.cell);
  const double hairline = least >= 24 ? 2 : least >= 10 ? 1 : 0.5;
  const double width = layout.key.cell - hairline, height = layout.query.cell - hairline;
  const double radius = least >= 24 ? 2 : 0;
  const Kind kind = layout.scale.kind(value);
  if (kind == Kind::masked) return draw_masked(svg, x, y, width, height, radius, tooltip);
  if (kind == Kind::nan) return draw_nan(svg, x, y, width, height, radius, tooltip);
  const Rgb color = ramp(layout.scale.position(value));
  svg.rect(x, y, width, height, hex(color), radius, tooltip);
  if (layout.value_size == 0) return;
  svg.text(
      x + width / 2, y + height / 2, value_text(layout, value),
      {.size = layout.value_size, .fill = wants_white_text(color) ? "#ffffff" : kInk, .anchor = Anchor::middle});
}

void draw_separate_cells(Svg& svg, const Input& input, const Layout& layout, std::int64_t head) {
  for (std::int64_t i = 0; i < layout.cells.rows; ++i) {
    for (std::int64_t j = 0; j < layout.cells.columns; ++j) {
      const double value = layout.cells.at(head, i, j);
      const std::string tooltip = layout.cells.pooled() ? "" : tooltip_of(input, i, j, value);
      draw_cell(svg, layout, layout.panel_x(head) + static_cast<double>(j) * layout.key.cell,
                layout.panel_y(head) + static_cast<double>(i) * layout.query.cell, value, tooltip);
    }
  }
}

// One path for each shade, of runs along the rows: a few bytes a cell.
void draw_dense_cells(Svg& svg, const Layout& layout, std::int64_t head) {
  const Cells& cells = layout.cells;
  constexpr int kNanLevel = kLevels, kMaskedLevel = kLevels + 1;
  const auto level_of = [&](double value) {
    const Kind kind = layout.scale.kind(value);
    if (kind == Kind::nan) return kNanLevel;
    if (kind == Kind::masked) return kMaskedLevel;
    return static_cast<int>(std::lround(layout.scale.position(value) * (kLevels - 1)));
  };
  std::array<std::string, kLevels + 2> runs;
  for (std::int64_t i = 0; i < cells.rows; ++i) {
    for (std::int64_t j = 0; j < cells.columns;) {
      const int level = level_of(cells.at(head, i, j));
      const std::int64_t begin = j;
      while (j < cells.columns && level_of(cells.at(head, i, j)) == level) ++j;
      runs[static_cast<std::size_t>(level)] +=
          "M" + std::to_string(begin) + " " + std::to_string(i) + "h" + std::to_string(j - begin);
    }
  }
  const double x = layout.panel_x(head), y = layout.panel_y(head);
  svg.rect(x, y, layout.key.side, layout.query.side, kNothing);
  // A run is a line one cell thick, along the middle of its row.
  svg.open_group("transform=\"translate(" + px(x) + " " + px(y + layout.query.cell / 2) + ") scale(" +
                 px(layout.key.cell) + " " + px(layout.query.cell) + ")\" shape-rendering=\"crispEdges\"");
  for (int level = 0; level <= kNanLevel; ++level) {
    const std::string& data = runs[static_cast<std::size_t>(level)];
    if (data.empty()) continue;
    const std::string color = level == kNanLevel ? kAlarm : hex(ramp(static_cast<double>(level) / (kLevels - 1)));
    svg.path(data, "stroke=\"" + color + "\"");
  }
  svg.close_group();
}

void draw_query_axis(Svg& svg, const Layout& layout, double x, double y) {
  for (const Mark& mark : layout.query.marks) {
    if (layout.query.tick_lines) svg.line(x - 5, y + mark.at, x - 2, y + mark.at, kHairline);
    svg.text(x - 9, y + mark.at, mark.text, {.size = layout.query.font_size, .fill = kInk, .anchor = Anchor::end});
  }
}

void draw_key_axis(Svg& svg, const Layout& layout, double x, double y) {
  const Axis& axis = layout.key;
  for (const Mark& mark : axis.marks) {
    if (axis.tick_lines) svg.line(x + mark.at, y + 2, x + mark.at, y + 5, kHairline);
    TextStyle style{.size = axis.font_size, .fill = kInk, .anchor = Anchor::middle};
    if (axis.turn != Turn::level) style.anchor = Anchor::end;
    if (axis.turn == Turn::slanted) style.turn = -45;
    if (axis.turn == Turn::upright) style.turn = -90;
    const double below = axis.turn == Turn::level ? 8 + axis.font_size / 2 : 9;
    svg.text(x + mark.at, y + below, mark.text, style);
  }
}

// The names of the axes, beside the middle of the grid; returns the y where the picture ends.
double draw_axis_names(Svg& svg, const Layout& layout, const HeatmapOptions& options) {
  const double bottom = layout.top + layout.grid_height();
  const TextStyle style{.size = kSmall, .fill = kQuiet, .anchor = Anchor::middle};
  if (!options.query_axis.empty()) {
    TextStyle turned = style;
    turned.turn = -90;
    const std::string name = shortened(cleaned(options.query_axis), layout.grid_height(), measure_at(kSmall));
    svg.text(kMargin + kSmall / 2, layout.top + layout.grid_height() / 2, name, turned);
  }
  const double below_labels = bottom + 6 + height_of_labels(layout.key);
  if (options.key_axis.empty()) return below_labels;
  const std::string name = shortened(cleaned(options.key_axis), layout.grid_width(), measure_at(kSmall));
  svg.text(layout.left + layout.grid_width() / 2, below_labels + 10, name, style);
  return below_labels + 10 + kSmall / 2;
}

struct ColorBar {
  std::vector<Scale::Tick> ticks;
  std::string name;
  std::vector<std::string> legend;
  double height = 0, width = 0;
};

ColorBar color_bar_of(const Layout& layout, const HeatmapOptions& options) {
  ColorBar bar;
  bar.height = std::clamp(layout.grid_height() - kBarLabel, 90.0, 200.0);
  bar.ticks = layout.scale.ticks(static_cast<int>(bar.height / 28));
  const Measure measure = measure_at(kSmall);
  bar.name = shortened(cleaned(options.value_name), 120, measure);
  if (layout.scale.logarithmic) bar.name += bar.name.empty() ? "logarithmic" : ", log";
  if (std::string note = masked_note(layout.cells, layout.scale); !note.empty())
    bar.legend.push_back(std::move(note));
  if (layout.cells.has_nan) bar.legend.emplace_back("NaN");
  bar.width = measure(bar.name);
  for (const Scale::Tick& tick : bar.ticks) bar.width = std::max(bar.width, kBarWidth + 9 + measure(tick.text));
  for (const std::string& line : bar.legend) bar.width = std::max(bar.width, kBarWidth + 9 + measure(line));
  return bar;
}

// Returns the y where the bar and its legend end.
double draw_color_bar(Svg& svg, const ColorBar& bar, double x, double top) {
  const TextStyle quiet{.size = kSmall, .fill = kQuiet};
  svg.text(x, top + kSmall / 2 - 1, bar.name, quiet);
  const double y = top + kBarLabel;
  const int steps = 64;
  svg.open_group("class=\"scale\" shape-rendering=\"crispEdges\"");
  for (int i = 0; i < steps; ++i) {  // each a little over the next, so that no seam shows
    const double from = y + bar.height * i / steps;
    svg.rect(x, from, kBarWidth, y + bar.height - from, hex(ramp(1 - (i + 0.5) / steps)));
  }
  svg.close_group();
  for (const Scale::Tick& tick : bar.ticks) {
    const double at = y + bar.height * (1 - tick.position);
    svg.line(x + kBarWidth, at, x + kBarWidth + 3, at, kQuiet);
    svg.text(x + kBarWidth + 8, at, typographic(tick.text), quiet);
  }
  double line = y + bar.height + 14;
  for (const std::string& text : bar.legend) {
    (text == "NaN" ? draw_nan : draw_masked)(svg, x, line, kBarWidth, kBarWidth, 0, "");
    svg.text(x + kBarWidth + 8, line + kBarWidth / 2, text, quiet);
    line += kLegendLine;
  }
  return bar.legend.empty() ? y + bar.height : line - kLegendLine + kBarWidth;
}

void draw_panels(Svg& svg, const Input& input, const Layout& layout) {
  const bool separate = static_cast<std::int64_t>(layout.cells.values.size()) <= kMostSeparate;
  for (std::int64_t head = 0; head < input.heads; ++head) {
    const double x = layout.panel_x(head), y = layout.panel_y(head);
    svg.open_group("class=\"panel\"");
    if (layout.panel_title > 0) {
      const std::string& title = input.panel_titles[static_cast<std::size_t>(head)];
      svg.text(x, y - kTitleHeight / 2, shortened(title, layout.key.side, measure_at(kTitleSize)),
               {.size = kTitleSize, .fill = kInk});
    }
    separate ? draw_separate_cells(svg, input, layout, head) : draw_dense_cells(svg, layout, head);
    svg.close_group();
    if (head % layout.grid_columns == 0) draw_query_axis(svg, layout, x, y);
    if (head + layout.grid_columns >= input.heads) draw_key_axis(svg, layout, x, y + layout.query.side);
  }
}

}  // namespace

std::string heatmap_svg(const TensorView& weights, const HeatmapOptions& options) {
  const Input input = checked(weights, options, "heatmap_svg");
  Layout layout = layout_of(input, options);
  const ColorBar bar = color_bar_of(layout, options);
  const double bar_x = layout.left + layout.grid_width() + kBarGap;
  const Frame frame(options, pooling_note(layout.cells), bar_x + bar.width - kMargin);
  layout.top = frame.top() + layout.panel_title;

  Svg svg;
  draw_panels(svg, input, layout);
  const double axes_end = draw_axis_names(svg, layout, options);
  const double bar_end = draw_color_bar(svg, bar, bar_x, layout.top);
  return frame.finish(svg, std::max(axes_end, bar_end));
}

}  // namespace saccade
