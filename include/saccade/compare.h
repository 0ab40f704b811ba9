// The one rule by which a computed result agrees with the reference. There is no tolerance to choose: what is
// allowed follows from what plain code of the same precision gets wrong, and from the rounding that nobody can
// avoid.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "saccade/tensor.h"

namespace saccade {

/// What a result is held against; all of its shape, floating-point, any strides.
struct Expected {
  TensorView reference;  ///< the oracle, computed in f64
  TensorView naive;      ///< the same maths unfused in the result's precision: its error is what is normal
  TensorView bound{};    ///< the reference with absolute values for its terms; not given: |reference|
  /// The coarsest type that numbers were kept in on the way; not given: the result's.
  std::optional<DType> coarsest{};
};

/// |out - reference| <= naive_factor * max|naive - reference| + eps_factor * eps * bound for each element, with
/// eps the distance from 1 to the next number of the coarsest type.
struct Tolerance {
  double naive_factor = 0;
  double eps_factor = 0;
};
inline constexpr Tolerance kForward{.naive_factor = 2, .eps_factor = 8};
inline constexpr Tolerance kGradient{.naive_factor = 3, .eps_factor = 16};

/// How a result compares with what is expected.
struct Comparison {
  bool holds = true;
  std::int64_t elements = 0;
  std::int64_t failures = 0;        ///< elements that are further off than allowed
  double largest_difference = 0.0;  ///< infinite where NaN or an infinity is out of place
  double naive_error = 0.0;         ///< the largest difference of the naive result
  // The element that used most of its allowance:
  Shape worst_index;
  double worst_ratio = 0.0;  ///< its difference as a multiple of what is allowed
  double worst_difference = 0.0;
  double worst_value = 0.0;
  double worst_reference = 0.0;
};

/// Compares element by element. NaN and infinities have to stand where the reference has them; an element that the
/// naive result cannot compute at all (an overflow) allows nobody anything. Throws std::invalid_argument when the
/// shapes differ.
Comparison compare(const TensorView& out, const Expected& expected, Tolerance tolerance = kForward);

/// "element [1, 5] is 3 but the reference has 5: off by 2, 4 times what is allowed (naive code: 0.25); 2 of 6
/// elements are off": the worst element in one line.
std::string to_string(const Comparison& comparison);

}  // namespace saccade
