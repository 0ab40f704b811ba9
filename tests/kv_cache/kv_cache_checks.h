// Shared helpers of the cache tests.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <stdexcept>
#include <string>

#include "support/refusal.h"
#include "support/tensors.h"

namespace saccade::test {

inline ::testing::AssertionResult have_same_bits(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape())
    return ::testing::AssertionFailure() << to_string(a.shape()) << " and " << to_string(b.shape());
  if (a.dtype() != b.dtype()) return ::testing::AssertionFailure() << "the types differ";
  if (std::memcmp(a.data(), b.data(), a.bytes()) == 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << to_string(a) << "\nand\n" << to_string(b);
}

}  // namespace saccade::test
