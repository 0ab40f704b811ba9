// chart_svg: title, a grid at round numbers, a line for each series, and its name at the end of the line.
#include "saccade/chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>

#include "picture/chart/axis.h"
#include "picture/chart/curve.h"
#include "picture/color.h"
#include "picture/svg.h"
#include "picture/text.h"

namespace saccade {
namespace {

using namespace picture;

// Any two differ by at least 0.16 in OKLab, also without one kind of cone (simulated after Machado, Oliveira and
// Fernandes, 2009); the first three differ by 0.14 in lightness; each has a contrast of 3 to white.
constexpr std::array<const char*, 6> kColors = {"#22468a", "#e0701a", "#3c1818", "#3c9ca8", "#9c48f0", "#843c0c"};
constexpr std::size_t kMaxSeries = 2 * kColors.size();  // as solid lines, then as dashed ones
constexpr int kLeastWidth = 360, kLeastHeight = 300, kMaxSide = 8192;
constexpr double kLargestX = 1e200;

constexpr double kLineWidth = 1.5, kDot = 2.2;
constexpr double kNoisy = 4;  // a line longer than this many plot widths looks like a band
constexpr double kXTickRoom = 20, kXNameRoom = 20, kYNameRoom = 22;       // heights around the plot
constexpr double kTickGap = 8;                                            // between the plot and a label
constexpr double kXTick = 100, kYTick = 45;                               // from one tick to the next
constexpr double kLabelSpace = 5, kLabelLine = kSmall + 1;                // minimum space between labels
constexpr double kLead = 12, kSample = 16, kNameGap = 6, kNameLine = 15;  // from the plot to the names
constexpr double kNameShare = 0.3;                                        // of the width, for the longest name

[[noreturn]] void refuse_chart(const std::string& what) { throw std::invalid_argument("[chart_svg] " + what); }

void check_side(std::string_view name, int value, int least) {
  if (value >= least && value <= kMaxSide) return;
  refuse_chart(std::string(name) + " must be " + std::to_string(least) + " to " + std::to_string(kMaxSide) +
               ", got " + std::to_string(value));
}

void check_series(const ChartSeries& series, std::size_t index) {
  const auto refuse_series = [&](const std::string& what) {
    const std::string name = shortened(
        cleaned(series.name), 40, [](std::string_view text) { return static_cast<double>(columns_of(text)); });
    refuse_chart("series " + std::to_string(index) + (name.empty() ? "" : " (" + name + ")") + " " + what);
  };
  const std::vector<double>& x = series.x;
  if (x.size() != series.y.size()) {
    refuse_series("has " + std::to_string(x.size()) + " numbers in x but " + std::to_string(series.y.size()) +
                  " in y");
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto got = [&] { return ", got x[" + std::to_string(i) + "] = " + concise(x[i], 6); };
    if (!(std::abs(x[i]) <= kLargestX)) refuse_series("must have finite x" + got());
    if (i > 0 && x[i] < x[i - 1]) {
      refuse_series("must have x that does not decrease" + got() + " after " + concise(x[i - 1], 6));
    }
  }
}

void check(std::span<const ChartSeries> series, const ChartOptions& options) {
  check_side("width", options.width, kLeastWidth);
  check_side("height", options.height, kLeastHeight);
  if (series.size() > kMaxSeries) {
    refuse_chart("a chart shows at most " + std::to_string(kMaxSeries) + " series, got " +
                 std::to_string(series.size()));
  }
  for (std::size_t i = 0; i < series.size(); ++i) check_series(series[i], i);
}

std::string color_of(std::size_t series) { return kColors[series % kColors.size()]; }

// The stroke of a line, of its dots and of its sample.
std::string stroke_of(std::size_t series) {
  const bool dashed = series >= kColors.size();
  return "stroke=\"" + color_of(series) + "\"" + (dashed ? " stroke-dasharray=\"5 4\"" : "");
}

struct Name {
  std::size_t series = 0;
  std::string text;
  double line_end = 0;  // the y of the last point
  bool has_line = false;
  double y = 0;
};

// The whole picture, in document units.
struct ChartLayout {
  std::vector<Curve> curves;
  ChartAxis x, y;
  std::vector<ChartTick> x_ticks, y_ticks;
  std::vector<std::vector<Run>> runs;               // of each series
  std::vector<Name> names;                          // from top to bottom
  double left = 0, right = 0, top = 0, bottom = 0;  // of the plot
};

void set_axes(ChartLayout& layout, bool log_y) {
  Range x, y;
  for (const Curve& curve : layout.curves) {
    for (std::size_t i = 0; i < curve.x.size(); ++i) {
      if (std::isnan(curve.y[i])) continue;
      x.include(curve.x[i]);
      y.include(curve.y[i]);
    }
  }
  layout.x = tight_axis(x);
  layout.y = loose_axis(y, log_y);
}

double widest_of(const std::vector<ChartTick>& ticks) {
  double widest = 0;
  for (const ChartTick& tick : ticks) widest = std::max(widest, pixels_of(tick.text, kSmall));
  return widest;
}

bool apart(const ChartAxis& axis, const std::vector<ChartTick>& ticks, double least) {
  for (std::size_t i = 1; i < ticks.size(); ++i) {
    if (std::abs(axis.place(ticks[i].value) - axis.place(ticks[i - 1].value)) < least) return false;
  }
  return true;
}

// At least three ticks, about `usual` units of length apart, with space for labels of the size `extent`.
template <class Extent>
std::vector<ChartTick> ticks_of(const ChartAxis& axis, double usual, const Extent& extent) {
  const double wanted = std::max(3.0, std::abs(axis.last - axis.first) / usual);
  std::vector<ChartTick> best;
  double least = INFINITY;
  for (int count = 1; count <= 2 * wanted + 2; ++count) {
    std::vector<ChartTick> ticks = axis.ticks(count);
    const double difference = std::abs(std::log(static_cast<double>(ticks.size()) / wanted));
    if (difference >= least || !apart(axis, ticks, extent(ticks))) continue;
    least = difference;
    best = std::move(ticks);
  }
  return best;
}

// The positions closest to the requested ones (ascending) that are `apart` from each other, between low and
// high.
std::vector<double> spread(const std::vector<double>& wanted, double apart, double low, double high) {
  struct Group {
    double sum;  // of the positions that each member requests for the first one
    double count;
    double mean() const { return sum / count; }
  };
  std::vector<Group> groups;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    groups.push_back({wanted[i] - static_cast<double>(i) * apart, 1});
    while (groups.size() > 1 && groups.end()[-2].mean() > groups.back().mean()) {
      groups.end()[-2].sum += groups.back().sum;
      groups.end()[-2].count += groups.back().count;
      groups.pop_back();
    }
  }
  std::vector<double> places;
  const double room = high - low - static_cast<double>(wanted.size() - 1) * apart;
  for (const Group& group : groups) {
    for (double i = 0; i < group.count; ++i) {
      places.push_back(std::clamp(group.mean(), low, low + room) + static_cast<double>(places.size()) * apart);
    }
  }
  return places;
}

std::vector<Name> names_of(std::span<const ChartSeries> series, double width) {
  std::vector<Name> names;
  for (std::size_t i = 0; i < series.size(); ++i) {
    std::string text = shortened(cleaned(series[i].name), width * kNameShare, measure_at(kSmall));
    if (!text.empty()) names.push_back({.series = i, .text = std::move(text)});
  }
  return names;
}

double name_line(const ChartLayout& layout) {
  return std::min(kNameLine, (layout.bottom - layout.top) / static_cast<double>(layout.names.size()));
}

void place_names(ChartLayout& layout) {
  if (layout.names.empty()) return;
  for (Name& name : layout.names) {
    const std::vector<Run>& runs = layout.runs[name.series];
    name.has_line = !runs.empty();
    name.line_end = runs.empty() ? layout.bottom : runs.back().back().y;
  }
  std::ranges::stable_sort(layout.names, {}, &Name::line_end);
  std::vector<double> wanted;
  for (const Name& name : layout.names) wanted.push_back(name.line_end);
  const double line = name_line(layout);
  const std::vector<double> places = spread(wanted, line, layout.top + line / 2, layout.bottom - line / 2);
  for (std::size_t i = 0; i < places.size(); ++i) layout.names[i].y = places[i];
}

void lay_out(ChartLayout& layout, std::span<const ChartSeries> series, const ChartOptions& options, double top) {
  layout.top = top + (options.y_label.empty() ? kSmall / 2 : kYNameRoom);
  layout.bottom = options.height - kMargin - kXTickRoom - (options.x_label.empty() ? 0 : kXNameRoom);
  set_axes(layout, options.log_y);
  layout.y.first = layout.bottom;
  layout.y.last = layout.top;
  layout.y_ticks = ticks_of(layout.y, kYTick, [](const auto&) { return kLabelLine; });

  layout.names = names_of(series, options.width);
  double names_width = kTickGap;
  for (const Name& name : layout.names) {
    names_width = std::max(names_width, kLead + kSample + kNameGap + pixels_of(name.text, kSmall));
  }
  layout.left = kMargin + widest_of(layout.y_ticks) + kTickGap;
  layout.right = options.width - kMargin - names_width;
  layout.x.first = layout.left;
  layout.x.last = layout.right;
  layout.x_ticks = ticks_of(layout.x, kXTick, [](const auto& ticks) { return widest_of(ticks) + kLabelSpace; });
  for (const Curve& curve : layout.curves) layout.runs.push_back(runs_of(curve, layout.x, layout.y));
  place_names(layout);
}

void draw_axes(Svg& svg, const ChartLayout& layout, const ChartOptions& options) {
  const TextStyle quiet{.fill = kQuiet};
  svg.open_group("class=\"grid\"");
  for (const ChartTick& tick : layout.y_ticks) {
    const double y = layout.y.place(tick.value);
    svg.line(layout.left, y, layout.right, y, kHairline, 0.75);
    svg.text(layout.left - kTickGap, y, tick.text, {.fill = kQuiet, .anchor = Anchor::end});
  }
  for (const ChartTick& tick : layout.x_ticks) {
    const double x = layout.x.place(tick.value);
    const double half = pixels_of(tick.text, kSmall) / 2;
    svg.line(x, layout.top, x, layout.bottom, kHairline, 0.75);
    svg.text(std::min(x, options.width - 4 - half), layout.bottom + kTickGap + kSmall / 2, tick.text,
             {.fill = kQuiet, .anchor = Anchor::middle});
  }
  svg.close_group();
  const bool crosses_zero = !layout.y.logarithmic && layout.y.low < 0 && layout.y.high > 0;
  if (crosses_zero) svg.line(layout.left, layout.y.place(0), layout.right, layout.y.place(0), kFaintInk);
  svg.line(layout.left, layout.bottom, layout.right, layout.bottom, kFaintInk);

  const Measure measure = measure_at(kSmall);
  const double width = layout.right - layout.left;
  svg.text(kMargin, layout.top - kYNameRoom + kSmall / 2,
           shortened(cleaned(options.y_label), layout.right - kMargin, measure), quiet);
  svg.text((layout.left + layout.right) / 2, layout.bottom + kXTickRoom + kXNameRoom - kSmall / 2,
           shortened(cleaned(options.x_label), width, measure), {.fill = kQuiet, .anchor = Anchor::middle});
}

double length_of(const std::vector<Run>& runs) {
  double length = 0;
  for (const Run& run : runs) {
    for (std::size_t i = 1; i < run.size(); ++i)
      length += std::hypot(run[i].x - run[i - 1].x, run[i].y - run[i - 1].y);
  }
  return length;
}

void draw_series(Svg& svg, const std::vector<Run>& runs, std::size_t series, bool noisy, const std::string& name) {
  std::string data;
  for (const Run& run : runs) {
    for (std::size_t i = 0; i < run.size() && run.size() > 1; ++i) {
      data += (i == 0 ? "M" : "L") + px(run[i].x) + " " + px(run[i].y);
    }
  }
  svg.open_group("class=\"series\" " + stroke_of(series) + (noisy ? " stroke-opacity=\"0.6\"" : ""));
  if (!data.empty()) svg.path(data, "fill=\"none\"", shortened(cleaned(name), 300, measure_at(kSmall)));
  for (const Run& run : runs) {
    if (run.size() == 1) svg.circle(run[0].x, run[0].y, kDot, color_of(series));
  }
  svg.close_group();
}

// Noisy lines are below the others, and are translucent.
void draw_all_series(Svg& svg, const ChartLayout& layout, std::span<const ChartSeries> series) {
  svg.open_group("stroke-width=\"" + px(kLineWidth) + "\" stroke-linejoin=\"round\" stroke-linecap=\"round\"");
  for (const bool noisy : {true, false}) {
    for (std::size_t i = 0; i < series.size(); ++i) {
      const bool is_noisy = length_of(layout.runs[i]) > kNoisy * (layout.right - layout.left);
      if (is_noisy == noisy) draw_series(svg, layout.runs[i], i, noisy, series[i].name);
    }
  }
  svg.close_group();
}

// A thin lead from the end of the line, a sample of the line, and the name.
void draw_names(Svg& svg, const ChartLayout& layout) {
  const double size = layout.names.empty() ? kSmall : std::min(kSmall, name_line(layout) - 1);
  const double from = layout.right + 3, to = layout.right + kLead, end = to + kSample;
  for (const Name& name : layout.names) {
    if (name.has_line) {
      svg.line(from, name.line_end, to, name.y, color_of(name.series), 0.5);
      svg.path("M" + px(to) + " " + px(name.y) + "H" + px(end),
               stroke_of(name.series) + " stroke-width=\"" + px(kLineWidth) + "\"");
    }
    svg.text(end + kNameGap, name.y, name.text, {.size = size, .fill = name.has_line ? kInk : kFaintInk});
  }
}

}  // namespace

std::string chart_svg(std::span<const ChartSeries> series, const ChartOptions& options) {
  check(series, options);
  ChartLayout layout;
  for (const ChartSeries& one : series) layout.curves.push_back(curve_of(one.x, one.y, options.log_y));
  const bool hides = std::ranges::any_of(layout.curves, &Curve::hides);
  const Frame frame({.title = options.title,
                     .note = hides ? "Numbers that are not above 0 are not drawn." : "",
                     .kind = "Line chart"},
                    options.width - 2 * kMargin);
  lay_out(layout, series, options, frame.top());

  Svg svg;
  draw_axes(svg, layout, options);
  draw_all_series(svg, layout, series);
  draw_names(svg, layout);
  const bool blank = std::ranges::all_of(layout.runs, [](const auto& runs) { return runs.empty(); });
  if (blank) {
    svg.text((layout.left + layout.right) / 2, (layout.top + layout.bottom) / 2, "nothing to draw",
             {.size = 12, .fill = kQuiet, .anchor = Anchor::middle});
  }
  return frame.finish(svg, options.height - kMargin);
}

}  // namespace saccade
