// compare() of compare.h as an assertion, so that no test chooses a tolerance.
#pragma once

#include <gtest/gtest.h>

#include <stdexcept>

#include "saccade/compare.h"

namespace saccade::test {

/// Success, or a failure that names the worst element.
inline ::testing::AssertionResult is_close(const TensorView& out, const Expected& expected,
                                           Tolerance tolerance = kForward) {
  try {
    const Comparison comparison = compare(out, expected, tolerance);
    if (comparison.holds) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << to_string(comparison);
  } catch (const std::invalid_argument& error) {
    return ::testing::AssertionFailure() << error.what();
  }
}

/// Fails the test, at the caller's line, unless is_close.
inline void expect_close(const TensorView& out, const Expected& expected, Tolerance tolerance = kForward,
                         const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  const ::testing::AssertionResult result = is_close(out, expected, tolerance);
  if (!result) ADD_FAILURE_AT(file, line) << result.message();
}

}  // namespace saccade::test
