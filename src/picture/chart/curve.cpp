#include "picture/chart/curve.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>

namespace saccade::picture {
namespace {

constexpr double kLeastValue = 1e-200, kLargestValue = 1e200;  // beyond these, ratios and differences can overflow

double drawable(double value) {
  if (!(std::abs(value) <= kLargestValue)) return std::numeric_limits<double>::quiet_NaN();
  return std::abs(value) < kLeastValue ? 0 : value;
}

// The points in one unit of width, by their index.
struct Column {
  double place = 0;
  std::size_t first = 0, lowest = 0, highest = 0, last = 0;
};

}  // namespace

Curve curve_of(std::span<const double> x, std::span<const double> y, bool logarithmic) {
  Curve curve;
  for (std::size_t i = 0; i < x.size(); ++i) {
    double value = drawable(y[i]);
    if (logarithmic && value <= 0) {
      value = std::numeric_limits<double>::quiet_NaN();
      curve.hides = true;
    }
    curve.x.push_back(drawable(x[i]));
    curve.y.push_back(value);
  }
  return curve;
}

std::vector<Run> runs_of(const Curve& curve, const ChartAxis& x_axis, const ChartAxis& y_axis) {
  std::vector<Run> runs;
  Column column;
  bool is_open = false;                // the column has points
  bool begins = true;                  // a run begins with it
  const auto close = [&](bool ends) {  // a run ends with it
    if (!is_open) return;
    std::array<std::size_t, 4> kept = {begins ? column.first : column.lowest, column.lowest, column.highest,
                                       ends ? column.last : column.highest};
    std::ranges::sort(kept);
    const auto end = std::unique(kept.begin(), kept.end());
    if (begins) runs.emplace_back();
    for (auto i = kept.begin(); i != end; ++i) {
      runs.back().push_back({x_axis.place(curve.x[*i]), y_axis.place(curve.y[*i])});
    }
    begins = ends;
    is_open = false;
  };
  bool gap = false;
  for (std::size_t i = 0; i < curve.x.size(); ++i) {
    if (std::isnan(curve.y[i])) {
      gap = true;
      continue;
    }
    const double place = std::floor(x_axis.place(curve.x[i]));
    if (!is_open || place != column.place) {
      close(gap);
      column = {place, i, i, i, i};
      is_open = true;
    }
    gap = false;
    if (curve.y[i] < curve.y[column.lowest]) column.lowest = i;
    if (curve.y[i] > curve.y[column.highest]) column.highest = i;
    column.last = i;
  }
  close(true);
  return runs;
}

}  // namespace saccade::picture
