// heatmap_svg: a grid of panels with axes at the left and bottom and a color bar at the right.
#include <algorithm>
#include <array>
#include <cmath>

#include "picture/color.h"
#include "picture/heatmap/grid_layout.h"
#include "picture/heatmap/matrix.h"
#include "picture/svg.h"
#include "picture/text.h"

namespace saccade {
namespace {

using namespace picture;

constexpr std::int64_t kMaxSeparate = 4096;  // cells that are separate elements
constexpr int kLevels = 128;                 // shades of a dense panel
constexpr double kLeastDotted = 11;          // masked cells of this size or larger have a dot
constexpr double kBarWidth = 12, kBarGap = 28;
constexpr int kBarSteps = 64;

void draw_masked(Svg& svg, double x, double y, double width, double height, double radius,
                 const std::string& tooltip) {
  svg.rect(x, y, width, height, kNothing, radius, tooltip);
  if (std::min(width, height) >= kLeastDotted) svg.circle(x + width / 2, y + height / 2, 1.4, kNothingDot);
}

void draw_nan(Svg& svg, double x, double y, double width, double height, double radius,
              const std::string& tooltip) {
  svg.rect(x, y, width, height, kNothing, radius, tooltip);
  svg.cross(x + width / 2, y + height / 2, std::min(width, height) * 0.2, kAlarm);
}

std::string tooltip_of(const Input& input, std::int64_t row, std::int64_t column, double value) {
  const auto name = [](const std::vector<std::string>& labels, std::int64_t i) {
    return labels.empty() ? std::to_string(i)
                          : shortened(labels[static_cast<std::size_t>(i)], 100, measure_at(kSmall));
  };
  return name(input.query_labels, row) + " \u2192 " + name(input.key_labels, column) + ": " +
         typographic(concise(value, 6));
}

void draw_cell(Svg& svg, const GridLayout& layout, double x, double y, double value, const std::string& tooltip) {
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
  const std::string number = value_text(layout, value);
  const bool rounds_to_zero = number.find_first_of("123456789") == std::string::npos;
  const char* ink = wants_white_text(color) ? "#ffffff" : rounds_to_zero ? kFaintInk : kInk;
  svg.text(x + width / 2, y + height / 2, number,
           {.size = layout.value_size, .fill = ink, .anchor = Anchor::middle});
}

void draw_separate_cells(Svg& svg, const Input& input, const GridLayout& layout, std::int64_t head) {
  for (std::int64_t i = 0; i < layout.cells.rows; ++i) {
    for (std::int64_t j = 0; j < layout.cells.columns; ++j) {
      const double value = layout.cells.at(head, i, j);
      const std::string tooltip = layout.cells.pooled() ? "" : tooltip_of(input, i, j, value);
      draw_cell(svg, layout, layout.panel_x(head) + static_cast<double>(j) * layout.key.cell,
                layout.panel_y(head) + static_cast<double>(i) * layout.query.cell, value, tooltip);
    }
  }
}

// One path for each shade, from runs along the rows: a few bytes per cell.
void draw_dense_cells(Svg& svg, const GridLayout& layout, std::int64_t head) {
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
  // A run is a line as thick as a cell, along the middle of its row.
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

void draw_query_axis(Svg& svg, const GridLayout& layout, double x, double y) {
  for (const Mark& mark : layout.query.marks) {
    if (layout.query.tick_lines) svg.line(x - 5, y + mark.at, x - 2, y + mark.at, kHairline);
    svg.text(x - 9, y + mark.at, mark.text, {.size = layout.query.font_size, .fill = kInk, .anchor = Anchor::end});
  }
}

void draw_key_axis(Svg& svg, const GridLayout& layout, double x, double y) {
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

// The names of the axes, above the query labels and below the key labels; returns the y of the picture's end.
double draw_axis_names(Svg& svg, const GridLayout& layout, const HeatmapOptions& options) {
  svg.text(layout.left - 9, layout.top - kNameRise, layout.query_name, {.fill = kQuiet, .anchor = Anchor::end});
  const double below_labels = layout.top + layout.grid_height() + 6 + layout.key.label_height();
  if (options.key_axis.empty()) return below_labels;
  const std::string name = shortened(cleaned(options.key_axis), layout.grid_width(), measure_at(kSmall));
  svg.text(layout.left + layout.grid_width() / 2, below_labels + 10, name,
           {.fill = kQuiet, .anchor = Anchor::middle});
  return below_labels + 10 + kSmall / 2;
}

struct ColorBar {
  std::vector<Scale::Tick> ticks;
  std::string name;
  std::string masked_note;  // the meaning of the cells without a color; empty if there are none
  bool has_dots = false;    // whether these cells have dots
  bool has_nan = false;
  double height = 0, width = 0;
};

ColorBar color_bar_of(const GridLayout& layout, const HeatmapOptions& options) {
  ColorBar bar;
  bar.height = std::clamp(layout.grid_height(), 90.0, 200.0);
  bar.ticks = layout.scale.ticks(static_cast<int>(bar.height / 28));
  const Measure measure = measure_at(kSmall);
  bar.name = shortened(cleaned(options.value_name), 120, measure);
  if (layout.scale.logarithmic) bar.name += bar.name.empty() ? "logarithmic" : ", log";
  bar.masked_note = masked_note(layout.cells, layout.scale);
  bar.has_nan = layout.cells.has_nan;
  bar.has_dots = std::min(layout.query.cell, layout.key.cell) > kLeastDotted;
  bar.width = std::max(measure(bar.name), kBarWidth + 9 + measure(bar.masked_note));
  for (const Scale::Tick& tick : bar.ticks) bar.width = std::max(bar.width, kBarWidth + 9 + measure(tick.text));
  return bar;
}

// Samples of masked cells and NaN, below the bar; returns the y of their end.
double draw_legend(Svg& svg, const ColorBar& bar, double x, double y) {
  double end = y;
  const auto sample = [&](const std::string& note) {
    const double top = end + 14, middle = top + kBarWidth / 2;
    svg.rect(x, top, kBarWidth, kBarWidth, kNothing);
    svg.text(x + kBarWidth + 8, middle, note, {.fill = kQuiet});
    end = top + kBarWidth;
    return middle;
  };
  if (!bar.masked_note.empty()) {
    const double middle = sample(bar.masked_note);
    if (bar.has_dots) svg.circle(x + kBarWidth / 2, middle, 1.4, kNothingDot);
  }
  if (bar.has_nan) svg.cross(x + kBarWidth / 2, sample("NaN"), 2.5, kAlarm);
  return end;
}

// Returns the y of the end of the bar and its legend.
double draw_color_bar(Svg& svg, const ColorBar& bar, double x, double y) {
  const TextStyle quiet{.fill = kQuiet};
  svg.text(x, y - kNameRise, bar.name, quiet);
  svg.open_group("class=\"scale\" shape-rendering=\"crispEdges\"");
  for (int i = 0; i < kBarSteps; ++i) {  // each overlaps the next ones, so that no seam is visible
    const double from = y + bar.height * i / kBarSteps;
    svg.rect(x, from, kBarWidth, y + bar.height - from, hex(ramp(1 - (i + 0.5) / kBarSteps)));
  }
  svg.close_group();
  for (const Scale::Tick& tick : bar.ticks) {
    const double at = y + bar.height * (1 - tick.position);
    svg.line(x + kBarWidth, at, x + kBarWidth + 3, at, kQuiet);
    svg.text(x + kBarWidth + 8, at, typographic(tick.text), quiet);
  }
  return draw_legend(svg, bar, x, y + bar.height);
}

void draw_panels(Svg& svg, const Input& input, const GridLayout& layout) {
  const bool separate = static_cast<std::int64_t>(layout.cells.values.size()) <= kMaxSeparate;
  for (std::int64_t head = 0; head < input.heads; ++head) {
    const double x = layout.panel_x(head), y = layout.panel_y(head);
    svg.open_group("class=\"panel\"");
    if (layout.panel_title > 0) {
      const std::string& title = input.panel_titles[static_cast<std::size_t>(head)];
      svg.text(x, y - kNameRise, shortened(title, layout.key.side, measure_at(layout.title_size)),
               {.size = layout.title_size, .fill = kInk});
    }
    if (separate) {
      draw_separate_cells(svg, input, layout, head);
    } else {
      draw_dense_cells(svg, layout, head);
    }
    svg.close_group();
    if (head % layout.grid_columns == 0) draw_query_axis(svg, layout, x, y);
    if (head + layout.grid_columns >= input.heads) draw_key_axis(svg, layout, x, y + layout.query.side);
  }
}

}  // namespace

std::string heatmap_svg(const TensorView& weights, const HeatmapOptions& options) {
  const Input input = checked(weights, options, "heatmap_svg");
  GridLayout layout = grid_layout(input, options);
  const ColorBar bar = color_bar_of(layout, options);
  const double bar_x = layout.left + layout.grid_width() + kBarGap;
  const Frame frame({.title = options.title, .note = pooling_note(layout.cells), .caption = options.caption},
                    bar_x + bar.width - kMargin);
  layout.top = frame.top() + kHeadroom;

  Svg svg;
  draw_panels(svg, input, layout);
  const double axes_end = draw_axis_names(svg, layout, options);
  const double bar_end = draw_color_bar(svg, bar, bar_x, layout.top);
  return frame.finish(svg, std::max(axes_end, bar_end));
}

}  // namespace saccade
