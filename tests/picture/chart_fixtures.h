// Shared helpers of the chart tests: series with known numbers, and reading a chart as a viewer does.
#pragma once

#include <saccade/chart.h>
#include <saccade/random.h>

#include <gtest/gtest.h>

#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "picture/heatmap_fixtures.h"

namespace saccade::test {

inline std::string chart(const std::vector<ChartSeries>& series, const ChartOptions& options = {}) {
  return chart_svg(series, options);
}

inline std::vector<std::string> texts_of(const std::string& svg) {
  std::vector<std::string> texts;
  for (const std::string& text : elements_of(svg, "text")) texts.push_back(content(text));
  return texts;
}

inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

/// About the width of a text in a font of size 1: raised digits are small.
inline double extent_of(const std::string& text) {
  double extent = display_width(text) * 0.6;
  for (const char* raised : {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹", "⁻"}) {
    extent -= 0.2 * static_cast<double>(count_of(text, raised));
  }
  return extent;
}

/// The number that a tick label shows: "-0.5", "2*10^-7", "10^3" with typographic signs.
inline double number_of(const std::string& text) {
  const char* const digits[] = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
  std::string plain = replaced(text, "⁻", "e-");
  for (int digit = 0; digit < 10; ++digit) plain = replaced(plain, digits[digit], "e" + std::to_string(digit));
  plain = replaced(plain, "−", "-");
  const std::size_t ten = plain.find("10e");
  if (ten == std::string::npos) return std::stod(plain);
  const std::string mantissa = plain.substr(0, ten), power = replaced(plain.substr(ten + 2), "e", "");
  return std::stod((mantissa.empty() ? "1" : replaced(mantissa, "×", "")) + "e" + power);
}

struct Tick {
  double value, place;
  std::string text;
  double x, size;  // of the label
};

/// The axes as a viewer sees them: the lines of the grid and the labels beside them.
struct Axes {
  std::vector<Tick> x{}, y{};
  double left = 0, right = 0, top = 0, bottom = 0;  // of the plot
  bool log_y = false;

  static double value_at(const std::vector<Tick>& ticks, double place) {
    const Tick &a = ticks.front(), &b = ticks.back();
    return a.value + (b.value - a.value) * (place - a.place) / (b.place - a.place);
  }
  double x_at(double place) const { return value_at(x, place); }
  double y_at(double place) const {
    if (!log_y) return value_at(y, place);
    std::vector<Tick> logarithms = y;
    for (Tick& tick : logarithms) tick.value = std::log(tick.value);
    return std::exp(value_at(logarithms, place));
  }
  double x_unit() const { return std::abs(x_at(1) - x_at(0)); }  // the value of one unit of the document
};

inline Axes axes_of(const std::string& svg, bool log_y = false) {
  const std::size_t begin = svg.find("class=\"grid\"");
  const std::string grid = svg.substr(begin, svg.find("</g>", begin) - begin);
  const auto lines = elements_of(grid, "line"), texts = elements_of(grid, "text");
  EXPECT_EQ(lines.size(), texts.size());
  Axes axes{.log_y = log_y};
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const bool level = attribute(lines[i], "y1") == attribute(lines[i], "y2");
    (level ? axes.y : axes.x)
        .push_back({number_of(content(texts[i])), number(lines[i], level ? "y1" : "x1"), content(texts[i]),
                    number(texts[i], "x"), number(texts[i], "font-size")});
    if (level) axes.left = number(lines[i], "x1"), axes.right = number(lines[i], "x2");
    if (!level) axes.top = number(lines[i], "y1"), axes.bottom = number(lines[i], "y2");
  }
  return axes;
}

struct Place {
  double x, y;
};

/// The elements of one series: its group, the points of each run, and its dots.
struct Drawn {
  std::string tag;
  std::vector<std::vector<Place>> runs;
  std::vector<Place> dots;

  std::vector<Place> points() const {
    std::vector<Place> all = dots;
    for (const auto& run : runs) all.insert(all.end(), run.begin(), run.end());
    return all;
  }
};

inline std::vector<Drawn> drawn_of(const std::string& svg) {
  std::vector<Drawn> all;
  for (std::size_t at = svg.find("<g class=\"series\""); at != std::string::npos;
       at = svg.find("<g class=\"series\"", at + 1)) {
    const std::string group = svg.substr(at, svg.find("</g>", at) - at);
    Drawn drawn{.tag = group.substr(0, group.find('>') + 1), .runs = {}, .dots = {}};
    for (const std::string& path : elements_of(group, "path")) {
      std::istringstream data(attribute(path, "d"));
      char command = 0;
      for (Place place{}; data >> command >> place.x >> place.y;) {
        if (command == 'M') drawn.runs.emplace_back();
        drawn.runs.back().push_back(place);
      }
    }
    for (const std::string& dot : elements_of(group, "circle")) {
      drawn.dots.push_back({number(dot, "cx"), number(dot, "cy")});
    }
    all.push_back(std::move(drawn));
  }
  return all;
}

/// A number for every whole x from 0 on.
inline ChartSeries steps(const std::string& name, std::vector<double> y) {
  ChartSeries series{.name = name, .x = {}, .y = std::move(y)};
  for (std::size_t i = 0; i < series.y.size(); ++i) series.x.push_back(static_cast<double>(i));
  return series;
}

inline ChartSeries noisy_fall(const std::string& name, std::int64_t count) {
  const Tensor noise = NumpyRandomState(5).standard_normal({count});
  std::vector<double> y;
  for (std::int64_t i = 0; i < count; ++i) {
    const double share = static_cast<double>(i) / static_cast<double>(count);
    y.push_back((2 + 8 * std::exp(-20 * share)) * (1 + 0.05 * noise.at<double>(i)));
  }
  return steps(name, y);
}

struct NameText {
  std::string text;
  double x, y;
};

inline std::vector<NameText> names_right_of(const std::string& svg, double right) {
  std::vector<NameText> names;
  for (const std::string& text : elements_of(svg, "text")) {
    if (attribute(text, "text-anchor").empty() && number(text, "x") > right) {
      names.push_back({content(text), number(text, "x"), number(text, "y")});
    }
  }
  return names;
}

}  // namespace saccade::test
