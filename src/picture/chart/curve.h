// A series in drawable form: few points, in runs joined by lines.
#pragma once

#include <span>
#include <vector>

#include "picture/chart/axis.h"

namespace saccade::picture {

struct Point {
  double x, y;
};

/// The points of a series between two gaps.
using Run = std::vector<Point>;

/// The numbers of a series in the chart's form: y is NaN where the line has a gap.
struct Curve {
  std::vector<double> x, y;
  bool hides = false;  // whether a logarithmic axis hides some numbers
};

/// Accepts numbers of any size; those beyond 1e200 become gaps, on a logarithmic axis also those that are not
/// above 0.
Curve curve_of(std::span<const double> x, std::span<const double> y, bool logarithmic);

/// The curve in document units. Within each unit of width it keeps only the lowest point, the highest, and the
/// ends of a run, and closes gaps.
std::vector<Run> runs_of(const Curve& curve, const ChartAxis& x_axis, const ChartAxis& y_axis);

}  // namespace saccade::picture
