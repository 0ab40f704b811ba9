// The numbers of tensors, for the matchers of the tests.
#pragma once

#include <gmock/gmock.h>

#include <algorithm>
#include <vector>

#include "saccade/tensor.h"

namespace saccade::test {

/// All numbers of a view in C order.
inline std::vector<double> numbers_of(const TensorView& view) {
  const Tensor copy = Tensor::copy_of(view, DType::f64);
  return {copy.values<double>().begin(), copy.values<double>().end()};
}

/// Fails unless both have one shape and the same numbers, where NaN equals NaN.
inline void expect_same(const TensorView& a, const TensorView& b) {
  EXPECT_TRUE(std::ranges::equal(a.dims(), b.dims())) << to_string(a.dims()) << " and " << to_string(b.dims());
  EXPECT_THAT(numbers_of(a), ::testing::Pointwise(::testing::NanSensitiveDoubleEq(), numbers_of(b)));
}

}  // namespace saccade::test
