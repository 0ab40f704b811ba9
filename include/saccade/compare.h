// The rule that decides whether a computed result agrees with the reference. There is no tolerance to choose: it
// follows from the error of plain code in the same precision, and from unavoidable rounding.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "saccade/tensor.h"

#pragma GCC visibility push(default)
namespace saccade {

/// What a result is compared with; all with the shape of the result, floating-point, any strides.
struct Expected {
  TensorView reference;  ///< the oracle, computed in f64
  TensorView naive;      ///< the same math, unfused, in the result's precision: its error is the yardstick
  TensorView bound{};    ///< the reference summed over absolute values; default: |reference|
  /// The coarsest type of intermediate results; default: the result's.
  std::optional<DType> coarsest{};
};

/// |out - reference| <= naive_factor * max|naive - reference| + eps_factor * eps * bound for each element, where
/// eps is the distance from 1 to the next number of the coarsest type.
struct Tolerance {
  double naive_factor = 0;
  double eps_factor = 0;
};
inline constexpr Tolerance kForward{.naive_factor = 2, .eps_factor = 8};
inline constexpr Tolerance kGradient{.naive_factor = 3, .eps_factor = 16};

/// The outcome of a comparison.
struct Comparison {
  bool holds = true;                ///< whether every element is within the tolerance
  std::int64_t elements = 0;        ///< how many were compared
  std::int64_t failures = 0;        ///< elements with a larger error than allowed
  double largest_difference = 0.0;  ///< infinite where NaN or an infinity is misplaced
  double naive_error = 0.0;         ///< the largest difference of the naive result
  // The element with the largest share of its allowance:
  Shape worst_index;              ///< where it is
  double worst_ratio = 0.0;       ///< its difference as a multiple of what is allowed
  double worst_difference = 0.0;  ///< how far it is off
  double worst_value = 0.0;       ///< its value in the result
  double worst_reference = 0.0;   ///< its value in the reference
};

/// Compares `out` with what is `expected`, element by element; `tolerance` says how far off an element may be. NaN
/// and infinities must be where the reference has them. An element where the naive result overflows does not widen
/// the tolerance of the others. Throws std::invalid_argument when the shapes differ, and for i4.
Comparison compare(const TensorView& out, const Expected& expected, Tolerance tolerance = kForward);

/// "element [1, 5] is 3 but the reference has 5: off by 2, 4 times what is allowed (naive code: 0.25); 2 of 6
/// elements are off": the worst element of a comparison in one line.
std::string to_string(const Comparison& comparison);

}  // namespace saccade
#pragma GCC visibility pop
