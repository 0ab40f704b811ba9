// The axes of a line chart: which numbers they show, where, and the round numbers beside them.
#pragma once

#include <limits>
#include <string>
#include <vector>

namespace saccade::picture {

/// The numbers that an axis is to show.
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

/// From numbers to places in the document. Both ends are above 0 on a logarithmic axis.
struct ChartAxis {
  double low = 0, high = 1;
  bool logarithmic = false;
  bool whole = false;          // ticks have no fractions
  double first = 0, last = 1;  // the places of low and high

  double place(double value) const;

  /// Round numbers from low to high, at most count + 1 of them: 1, 2 or 5 times powers of ten at even steps, on a
  /// logarithmic axis powers of ten as long as three fit in.
  std::vector<ChartTick> ticks(int count) const;
};

/// An axis that ends at the numbers; around the number where there is one only.
ChartAxis tight_axis(const Range& range);

/// An axis that ends a little beyond the numbers, but does not cross 0 for that.
ChartAxis loose_axis(const Range& range, bool logarithmic);

}  // namespace saccade::picture
