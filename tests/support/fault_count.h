// How many faults the tests cause, which `script/faults` prints.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <string>

namespace saccade::test {

/// Adds to the faults of the running test: wrong calls, allocations that fail, kills. A report of the tests in XML
/// has them as the test's property "faults".
inline void count_faults(std::size_t more = 1) {
  static const ::testing::TestInfo* counted = nullptr;
  static std::size_t faults = 0;
  const ::testing::TestInfo* const running = ::testing::UnitTest::GetInstance()->current_test_info();
  if (running != counted) faults = 0;
  counted = running;
  faults += more;
  ::testing::Test::RecordProperty("faults", std::to_string(faults));
}

}  // namespace saccade::test
