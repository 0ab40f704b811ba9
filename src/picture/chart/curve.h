// A series as it is drawn: few points, in runs that are joined by lines.
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

/// The numbers of a series as the chart takes them: y is NaN where the line has a gap.
struct Curve {
  std::vector<double> x, y;
  bool hides = false;  // numbers that a logarithmic axis has no place for
};

/// Numbers of any size; those beyond 1e200 are gaps, on a logarithmic axis also those that are not above 0.
Curve curve_of(std::span<const double> x, std::span<const double> y, bool logarithmic);

/// The curve in document units: every point, but of those that share a unit of width the lowest, the highest, and
/// the ends of a run. Gaps within that unit are closed.
std::vector<Run> runs_of(const Curve& curve, const ChartAxis& x_axis, const ChartAxis& y_axis);

}  // namespace saccade::picture
