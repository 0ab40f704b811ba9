// attention_lines_svg: query tokens on the left, key tokens on the right, a curve for each weight.
#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "picture/color.h"
#include "picture/heatmap/matrix.h"
#include "picture/svg.h"
#include "picture/text.h"

namespace saccade {
namespace {

using namespace picture;

constexpr std::int64_t kMaxTokens = 128;     // in a column
constexpr std::int64_t kMaxWeights = 65536;  // in a picture
constexpr std::int64_t kMaxTooltips = 1200;  // lines with a tooltip
constexpr double kLeastShare = 1.0 / 100;    // of the largest weight: a thinner line is not drawn
constexpr double kMaxColumn = 720, kMaxSpacing = 34, kLeastSpacing = 13;
constexpr double kLabelSize = 13, kHeadingHeight = 22, kTitleHeight = 24, kLongestLabel = 150;
constexpr double kLabelGap = 7, kPanelGap = 36;
constexpr double kSampleLength = 24;
constexpr double kLineShade = 0.66;  // of the ramp

struct Column {
  std::vector<std::string> labels;
  double widest = 0;
  double first = 0;  // the y of the first token, from the top of the column's area

  double y(std::int64_t i, double spacing) const { return first + (static_cast<double>(i) + 0.5) * spacing; }
};

struct LinesLayout {
  Cells cells;
  Scale scale;  // from 0 to the weight of the thickest line
  double spacing = 0, font_size = kLabelSize, thickest = 0;
  Column query, key;
  double reach = 0;  // the width from the start to the end of the lines
  double panel_width = 0, panel_height = 0, panel_title = 0, heading = 0;
  std::int64_t grid_columns = 1;

  double share(double weight) const { return std::min(weight / scale.high, 1.0); }
  bool drawn(double weight) const { return weight > 0 && weight >= scale.high * kLeastShare; }
};

Column column_of(const std::vector<std::string>& labels, std::int64_t count, double font_size) {
  Column column;
  const Measure measure = measure_at(font_size);
  for (std::int64_t i = 0; i < count; ++i) {
    column.labels.push_back(labels.empty()
                                ? std::to_string(i)
                                : shortened(labels[static_cast<std::size_t>(i)], kLongestLabel, measure));
    column.widest = std::max(column.widest, measure(column.labels.back()));
  }
  return column;
}

void check_not_negative(const Cells& cells) {
  if (cells.smallest >= 0) return;
  throw std::invalid_argument("[attention_lines_svg] weights must not be negative, got " +
                              concise(cells.smallest, 6));
}

void check_size(const Input& input) {
  const auto refuse = [](std::string_view what, std::int64_t most, std::int64_t count) {
    throw std::invalid_argument("[attention_lines_svg] lines show at most " + std::to_string(most) + " " +
                                std::string(what) + ", got " + std::to_string(count) +
                                "; heatmap_svg shows any number");
  };
  if (input.seqlen_q > kMaxTokens) refuse("query tokens", kMaxTokens, input.seqlen_q);
  if (input.seqlen_k > kMaxTokens) refuse("key tokens", kMaxTokens, input.seqlen_k);
  const std::int64_t weights = input.heads * input.seqlen_q * input.seqlen_k;
  if (weights > kMaxWeights) refuse("weights", kMaxWeights, weights);
}

LinesLayout layout_of(const Input& input, const HeatmapOptions& options) {
  LinesLayout layout;
  layout.cells = pooled(input, 1, 1);
  check_not_negative(layout.cells);
  if (options.high && *options.high <= 0) {
    throw std::invalid_argument("[attention_lines_svg] high must be above 0, got " + concise(*options.high, 6));
  }
  const HeatmapOptions range{.low = 0.0, .high = options.high, .scale = ColorScale::linear};
  layout.scale = scale_of(layout.cells, range, "attention_lines_svg");

  const auto longest = static_cast<double>(std::max(input.seqlen_q, input.seqlen_k));
  layout.spacing = std::clamp(std::floor(kMaxColumn / longest), kLeastSpacing, kMaxSpacing);
  layout.font_size = std::min(kLabelSize, layout.spacing - 2);
  layout.thickest = std::min(5.5, layout.spacing * 0.25);
  layout.query = column_of(input.query_labels, input.seqlen_q, layout.font_size);
  layout.key = column_of(input.key_labels, input.seqlen_k, layout.font_size);
  const double column_height = longest * layout.spacing;
  layout.query.first = (column_height - static_cast<double>(input.seqlen_q) * layout.spacing) / 2;
  layout.key.first = (column_height - static_cast<double>(input.seqlen_k) * layout.spacing) / 2;

  layout.reach = std::clamp(column_height * 0.8, input.heads > 1 ? 110.0 : 200.0, input.heads > 1 ? 160.0 : 300.0);
  layout.panel_width = layout.query.widest + layout.reach + layout.key.widest + 2 * kLabelGap;
  layout.panel_title = input.panel_titles.empty() ? 0 : kTitleHeight;
  layout.heading = options.query_axis.empty() && options.key_axis.empty() ? 0 : kHeadingHeight;
  layout.panel_height = layout.panel_title + layout.heading + column_height;
  layout.grid_columns = columns_of_grid(input.heads, layout.panel_height / layout.panel_width, input.heads);
  return layout;
}

struct Line {
  std::int64_t query, key;
  double weight;
};

// The lines of one head, thin ones first, so that thick ones are on top.
std::vector<Line> lines_of(const LinesLayout& layout, std::int64_t head) {
  std::vector<Line> lines;
  for (std::int64_t i = 0; i < layout.cells.rows; ++i) {
    for (std::int64_t j = 0; j < layout.cells.columns; ++j) {
      const double weight = layout.cells.at(head, i, j);
      if (layout.drawn(weight)) lines.push_back({i, j, weight});
    }
  }
  std::stable_sort(lines.begin(), lines.end(), [](const Line& a, const Line& b) { return a.weight < b.weight; });
  return lines;
}

std::string stroke_of(const LinesLayout& layout, double weight) {
  const double share = layout.share(weight);
  return "stroke-width=\"" + px(std::max(0.35, share * layout.thickest)) + "\" stroke-opacity=\"" +
         px(0.1 + 0.75 * share) + "\"";
}

void draw_lines(Svg& svg, const LinesLayout& layout, std::int64_t head, double left, double top, bool tooltips) {
  const double right = left + layout.reach, bend = layout.reach * 0.45;
  svg.open_group("class=\"lines\" fill=\"none\" stroke=\"" + hex(ramp(kLineShade)) + "\"");
  for (const Line& line : lines_of(layout, head)) {
    const double from = top + layout.query.y(line.query, layout.spacing);
    const double to = top + layout.key.y(line.key, layout.spacing);
    const std::string data = "M" + px(left) + " " + px(from) + "C" + px(left + bend) + " " + px(from) + " " +
                             px(right - bend) + " " + px(to) + " " + px(right) + " " + px(to);
    std::string tooltip;
    if (tooltips) {
      tooltip = layout.query.labels[static_cast<std::size_t>(line.query)] + " \u2192 " +
                layout.key.labels[static_cast<std::size_t>(line.key)] + ": " + concise(line.weight, 6);
    }
    svg.path(data, stroke_of(layout, line.weight), tooltip);
  }
  svg.close_group();
}

void draw_column(Svg& svg, const LinesLayout& layout, const Column& column, double x, double top, Anchor anchor) {
  const double away = anchor == Anchor::end ? -kLabelGap : kLabelGap;
  for (std::size_t i = 0; i < column.labels.size(); ++i) {
    const double y = top + column.y(static_cast<std::int64_t>(i), layout.spacing);
    svg.text(x + away, y, column.labels[i], {.size = layout.font_size, .fill = kInk, .anchor = anchor});
  }
}

void draw_panel(Svg& svg, const Input& input, const HeatmapOptions& options, const LinesLayout& layout,
                std::int64_t head, double x, double y) {
  const double left = x + layout.query.widest + kLabelGap, right = left + layout.reach;
  if (layout.panel_title > 0) {
    const std::string& title = input.panel_titles[static_cast<std::size_t>(head)];
    svg.text((left + right) / 2, y + kTitleHeight / 2 - 3, shortened(title, layout.panel_width, measure_at(12)),
             {.size = 12, .fill = kInk, .anchor = Anchor::middle});
  }
  const double heading = y + layout.panel_title + kHeadingHeight / 2 - 3;
  const Measure measure = measure_at(kSmall);
  const double room = layout.reach / 2 - kLabelGap;
  svg.text(left + 2, heading, shortened(cleaned(options.query_axis), room, measure), {.fill = kQuiet});
  svg.text(right - 2, heading, shortened(cleaned(options.key_axis), room, measure),
           {.fill = kQuiet, .anchor = Anchor::end});
  const double top = y + layout.panel_title + layout.heading;
  draw_lines(svg, layout, head, left, top, input.heads * input.seqlen_q * input.seqlen_k <= kMaxTooltips);
  draw_column(svg, layout, layout.query, left, top, Anchor::end);
  draw_column(svg, layout, layout.key, right, top, Anchor::start);
}

// The legend of line widths: samples in a row, at round weights.
struct Legend {
  struct Sample {
    double x, weight;
    std::string text;
  };
  std::string name;
  std::vector<Sample> samples;
  double width = 0;
};

Legend legend_of(const LinesLayout& layout, const HeatmapOptions& options) {
  constexpr double kSpace = 16;
  Legend legend;
  legend.name = shortened(cleaned(options.value_name), 120, measure_at(kSmall));
  double x = legend.name.empty() ? 0 : pixels_of(legend.name, kSmall) + kSpace;
  for (const Scale::Tick& tick : layout.scale.ticks(5)) {
    if (tick.position <= 0) continue;
    legend.samples.push_back({x, layout.scale.high * tick.position, tick.text});
    legend.width = x + kSampleLength + 6 + pixels_of(tick.text, kSmall);
    x = legend.width + kSpace;
  }
  return legend;
}

// Returns the y where it ends.
double draw_legend(Svg& svg, const LinesLayout& layout, const Legend& legend, double y) {
  const TextStyle quiet{.fill = kQuiet};
  svg.text(kMargin, y, legend.name, quiet);
  svg.open_group("stroke=\"" + hex(ramp(kLineShade)) + "\"");
  for (const Legend::Sample& sample : legend.samples) {
    svg.path("M" + px(kMargin + sample.x) + " " + px(y) + "h" + px(kSampleLength),
             stroke_of(layout, sample.weight));
  }
  svg.close_group();
  for (const Legend::Sample& sample : legend.samples) {
    svg.text(kMargin + sample.x + kSampleLength + 6, y, sample.text, quiet);
  }
  return y + kSmall / 2;
}

std::string hidden_note(const LinesLayout& layout) {
  const bool hides = std::any_of(layout.cells.values.begin(), layout.cells.values.end(),
                                 [&](double weight) { return weight > 0 && !layout.drawn(weight); });
  return hides ? "Weights below " + concise(layout.scale.high * kLeastShare, 2) + " are not drawn." : "";
}

}  // namespace

std::string attention_lines_svg(const TensorView& weights, const HeatmapOptions& options) {
  const Input input = checked(weights, options, "attention_lines_svg");
  check_size(input);
  const LinesLayout layout = layout_of(input, options);
  const auto across = static_cast<double>(layout.grid_columns);
  const Legend legend = legend_of(layout, options);
  const double panels_width = across * (layout.panel_width + kPanelGap) - kPanelGap;
  const Frame frame({.title = options.title, .note = hidden_note(layout), .caption = options.caption},
                    std::max(panels_width, legend.width));

  Svg svg;
  double bottom = frame.top();
  for (std::int64_t head = 0; head < input.heads; ++head) {
    const auto column = static_cast<double>(head % layout.grid_columns);
    const auto row = static_cast<double>(head / layout.grid_columns);
    const double x = kMargin + column * (layout.panel_width + kPanelGap);
    const double y = frame.top() + row * (layout.panel_height + kPanelGap);
    draw_panel(svg, input, options, layout, head, x, y);
    bottom = y + layout.panel_height;
  }
  return frame.finish(svg, draw_legend(svg, layout, legend, bottom + 22));
}

}  // namespace saccade
