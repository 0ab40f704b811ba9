// Line charts as SVG: the loss of a training over its steps, and whatever else is a number at a place.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace saccade {

/// One line of a chart.
struct ChartSeries {
  std::string name{};       ///< UTF-8, written where the line ends; empty: none
  std::vector<double> x{};  ///< finite, never less than the number before
  std::vector<double> y{};  ///< one for each x; NaN and infinity: a gap in the line
};

/// Everything optional about a chart; fill it with designated initialisers.
struct ChartOptions {
  std::string title{};    ///< above the chart; empty: none
  std::string x_label{};  ///< what x is, in words; empty: none
  std::string y_label{};  ///< what y is, in words; empty: none
  /// Equal ratios of y take equal heights. What is 0 or negative is a gap then, and a line under the title says
  /// so.
  bool log_y = false;
  int width = 720;   ///< of the document, in its units: 360 to 8192
  int height = 420;  ///< 300 to 8192
};

/// A line chart as an SVG document of width x height: a line for each series over a thin grid at round numbers,
/// its name at the right, at the height of its last point or as near as other names allow.
///
/// The x axis goes from the smallest x that has a y to the largest, the y axis a little beyond the numbers; where
/// there is one number only, around it. A point between two gaps is a dot. Of the points above one unit of width
/// the lowest and the highest are drawn, besides a line's first and last: a series of any length takes about two
/// points a unit, and a gap narrower than that cannot be seen. Numbers closer to 0 than 1e-200 count as 0, those
/// beyond 1e200 as infinite. Names and labels that do not fit are shortened with an ellipsis, and the same input
/// gives the same bytes on every machine and locale. The first six colours are told apart with every common kind
/// of colour blindness, the first three also in grey; the next six lines are dashed.
///
/// For a PNG pass the document to png_of_svg of heatmap.h.
///
/// Throws std::invalid_argument for more than 12 series, one whose x and y have different sizes or whose x is not
/// finite or decreases (naming series and index), and a width or height out of range.
std::string chart_svg(std::span<const ChartSeries> series, const ChartOptions& options = {});

}  // namespace saccade
