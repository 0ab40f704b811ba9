// Round numbers along an axis or a scale.
#pragma once

#include <cmath>

namespace saccade::picture {

/// The smallest of 1, 2 and 5 times a power of ten that divides a range into at most `count` parts.
inline double tick_step(double range, int count) {
  const double magnitude = std::pow(10.0, std::floor(std::log10(range / count)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (range / (magnitude * factor) <= count) return magnitude * factor;
  }
  return magnitude * 10;
}

}  // namespace saccade::picture
