// The rule by which a result of fast code agrees with the reference.
#pragma once

#include <saccade/tensor.h>

#include <cstdint>
#include <string>

namespace saccade::cli {

/// How a result compares with the reference. Element by element
///
///     |out - reference| <= 2 max|naive - reference| + 8 eps bound
///
/// must hold, where `naive` is the same maths, unfused, in the result's own precision, eps the distance from 1 to
/// the next f32, and `bound` the sum of the absolute values of the terms. NaN and infinities must stand where the
/// reference has them.
struct Comparison {
  std::string name;  ///< of the result
  bool holds = true;
  double largest_difference = 0.0;  ///< infinite where NaN or an infinity is out of place
  double worst_ratio = 0.0;         ///< the largest |out - reference| as a multiple of what is allowed there
  Shape worst_index;                ///< where that is
  double worst_value = 0.0;         ///< what was computed there
  double worst_reference = 0.0;     ///< and what should have been
};

/// Compares an f32 result. All tensors have its shape; `bound` may be `reference` itself.
Comparison compare(std::string name, const TensorView& out, const TensorView& reference, const TensorView& naive,
                   const TensorView& bound);

}  // namespace saccade::cli
