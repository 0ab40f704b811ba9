// The axes of a line chart: their ranges, their places in the document, and the round numbers beside them.
#pragma once

#include <limits>
#include <string>
#include <vector>

namespace saccade::picture {

/// The range of the numbers on an axis.
struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  bool whole = true;  // no number has a fraction

  void include(double value);
  bool empty() const { return low > high; }
};

struct ChartTick {
  double value;
  std::string text;
};

/// Maps numbers to positions in the document. On a logarithmic axis both ends are above 0.
struct ChartAxis {
  double low = 0, high = 1;
  bool logarithmic = false;
  bool whole = false;          // ticks have no fractions
  double first = 0, last = 1;  // the positions of low and high

  double place(double value) const;

  /// Round numbers from low to high, at most count + 1 of them: 1, 2 or 5 times powers of ten at even steps; on a
  /// logarithmic axis powers of ten if at least three fit.
  std::vector<ChartTick> ticks(int count) const;
};

/// An axis that ends at the numbers; a single number gets room around it.
ChartAxis tight_axis(const Range& range);

/// An axis that ends a little beyond the numbers, without crossing 0.
ChartAxis loose_axis(const Range& range, bool logarithmic);

}  // namespace saccade::picture
