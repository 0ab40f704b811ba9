// The one comparison of numbers in the tests. No test has a tolerance of its own: what is allowed follows from
// what plain code of the same precision gets wrong, and from the rounding that nobody can avoid.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <iomanip>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "saccade/tensor.h"

namespace saccade::test {

/// What a result is held against; all have its shape.
struct Expected {
  TensorView reference;  ///< the oracle, computed in f64
  TensorView naive;      ///< the same maths unfused in the result's precision: its error is what is normal
  TensorView bound{};    ///< the reference with absolute values for its terms; not given: |reference|
  std::optional<DType>
      coarsest{};  ///< the coarsest type that numbers were kept in on the way; not given: the result's
};

/// |out - reference| <= naive_factor * max|naive - reference| + eps_factor * eps * bound for each element.
struct Tolerance {
  double naive_factor = 0;
  double eps_factor = 0;
};
inline constexpr Tolerance kForward{.naive_factor = 2, .eps_factor = 8};
inline constexpr Tolerance kGradient{.naive_factor = 3, .eps_factor = 16};

namespace detail {

/// The distance from 1 to the next number.
inline double epsilon_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 0x1p-52;
    case DType::f32:
      return 0x1p-23;
    case DType::f16:
      return 0x1p-10;
    case DType::bf16:
      return 0x1p-7;
    default:
      return 0;
  }
}

/// "[1, 0, 5]": the index of an element in C order.
inline std::string index_text(std::size_t element, std::span<const std::int64_t> shape) {
  std::vector<std::int64_t> index(shape.size());
  auto rest = static_cast<std::int64_t>(element);
  for (std::size_t dim = shape.size(); dim-- > 0; rest /= shape[dim]) index[dim] = rest % shape[dim];
  return to_string(std::span<const std::int64_t>(index));
}

/// How far `value` is from `wanted`. NaN and Inf have to stand where they are wanted, with the same sign.
inline double difference(double value, double wanted) {
  if (value == wanted || (std::isnan(value) && std::isnan(wanted))) return 0;
  const bool is_comparable = std::isfinite(value) && std::isfinite(wanted);
  return is_comparable ? std::abs(value - wanted) : std::numeric_limits<double>::infinity();
}

/// The largest difference where there is any to speak of: an element that naive code cannot compute at all
/// (an overflow) allows nobody else anything.
inline double largest_difference(std::span<const double> values, std::span<const double> wanted) {
  double largest = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double off = difference(values[i], wanted[i]);
    if (std::isfinite(off)) largest = std::max(largest, off);
  }
  return largest;
}

}  // namespace detail

/// Success, or a failure that names the worst element, both its values, and how many times the allowance it is
/// off.
inline ::testing::AssertionResult is_close(const TensorView& out, const Expected& expected,
                                           Tolerance tolerance = kForward) {
  const TensorView bound_view = expected.bound ? expected.bound : expected.reference;
  for (const TensorView& other : {expected.reference, expected.naive, bound_view}) {
    if (!std::ranges::equal(out.dims(), other.dims())) {
      return ::testing::AssertionFailure() << "the result has shape " << to_string(out.dims())
                                           << ", what it is held against " << to_string(other.dims());
    }
  }
  const Tensor out_copy = Tensor::copy_of(out, DType::f64);
  const Tensor reference_copy = Tensor::copy_of(expected.reference, DType::f64);
  const Tensor naive_copy = Tensor::copy_of(expected.naive, DType::f64);
  const Tensor bound_copy = Tensor::copy_of(bound_view, DType::f64);
  const auto values = out_copy.values<double>();
  const auto reference = reference_copy.values<double>();
  const auto bound = bound_copy.values<double>();
  const double naive_error = detail::largest_difference(naive_copy.values<double>(), reference);
  const double eps = detail::epsilon_of(expected.coarsest.value_or(out.dtype));

  std::size_t failures = 0;
  std::size_t worst = 0;
  double worst_ratio = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double off = detail::difference(values[i], reference[i]);
    const double unavoidable = std::isfinite(bound[i]) ? tolerance.eps_factor * eps * std::abs(bound[i]) : 0;
    const double allowed = tolerance.naive_factor * naive_error + unavoidable;
    if (off <= allowed) continue;
    ++failures;
    const double ratio = off / allowed;
    if (ratio > worst_ratio) {
      worst = i;
      worst_ratio = ratio;
    }
  }
  if (failures == 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << std::setprecision(9) << "element "
                                       << detail::index_text(worst, out.dims()) << " is " << values[worst]
                                       << " but the reference has " << reference[worst] << ": off by "
                                       << detail::difference(values[worst], reference[worst]) << ", "
                                       << worst_ratio << " times what is allowed (" << tolerance.naive_factor
                                       << " * " << naive_error << ", the worst of naive, + "
                                       << tolerance.eps_factor << " * " << eps << " * " << bound[worst] << "); "
                                       << failures << " of " << values.size() << " elements are off";
}

/// Fails the test, at the caller's line, unless is_close.
inline void expect_close(const TensorView& out, const Expected& expected, Tolerance tolerance = kForward,
                         const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  const ::testing::AssertionResult result = is_close(out, expected, tolerance);
  if (!result) ADD_FAILURE_AT(file, line) << result.message();
}

}  // namespace saccade::test
