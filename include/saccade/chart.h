// Line charts as SVG: the loss of a training run over its steps, or any other series of numbers.
#pragma once

#include <span>
#include <string>
#include <vector>

#pragma GCC visibility push(default)
namespace saccade {

/// One line of a chart.
struct ChartSeries {
  std::string name{};       ///< UTF-8, written at the end of the line; empty: none
  std::vector<double> x{};  ///< finite and not decreasing
  std::vector<double> y{};  ///< one for each x; NaN and infinity: a gap in the line
};

/// Everything optional about a chart; fill it with designated initializers.
struct ChartOptions {
  std::string title{};    ///< above the chart; empty: none
  std::string x_label{};  ///< what x is, in words; empty: none
  std::string y_label{};  ///< what y is, in words; empty: none
  /// Logarithmic y axis. Values of 0 or below are then gaps, and a line under the title says so.
  bool log_y = false;
  int width = 720;   ///< of the document, in its units: 360 to 8192
  int height = 420;  ///< 300 to 8192
};

/// A line chart as an SVG document of width x height: a line for each series over a thin grid at round numbers.
/// The name of a series is at the right, at the height of its last point or as close as other names allow.
///
/// The x axis spans the smallest to the largest x that has a y, the y axis a little more than the range of y; a
/// single number is centered. A point between two gaps is a dot. For each unit of width only the lowest and the
/// highest point are drawn, and the first and last of a line: a series of any length needs about two points per
/// unit, and narrower gaps are invisible. Numbers closer to 0 than 1e-200 count as 0, those beyond 1e200 as
/// infinite. Names and labels that do not fit are shortened with an ellipsis, and the same input gives the same
/// bytes on every machine and locale. The first six colors are distinct for every common kind of color
/// blindness, the first three also in gray; the next six lines are dashed.
///
/// For a PNG pass the document to png_of_svg() of heatmap.h.
///
/// Throws std::invalid_argument for more than 12 series, one whose x and y have different sizes or whose x is not
/// finite or decreases (naming series and index), and a width or height out of range.
std::string chart_svg(std::span<const ChartSeries> series, const ChartOptions& options = {});

}  // namespace saccade
#pragma GCC visibility pop
