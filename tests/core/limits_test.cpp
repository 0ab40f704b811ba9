#include "saccade/limits.h"

#include <gtest/gtest.h>

#include "support/each_isa.h"

namespace saccade::test {
namespace {

class LimitsOnIsa : public EachIsa {};
SACCADE_FOR_EACH_ISA(LimitsOnIsa);

#ifdef SACCADE_EMULATED
constexpr double kLeast = 1e6;
#else
constexpr double kLeast = 1e8;
#endif

TEST_P(LimitsOnIsa, ArePlausible) {
  const double bytes = measure_read_bandwidth(1, std::size_t{64} << 20);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const double flops = measure_peak_flops(1, 0.05, dtype);
    EXPECT_GT(flops, kLeast);
    EXPECT_LT(flops, 1e13);
  }
  EXPECT_GT(bytes, kLeast);
  EXPECT_LT(bytes, 1e13);
}

TEST(Limits, RefuseWhatCannotBeMeasured) {
  EXPECT_THROW(measure_peak_flops(0), std::invalid_argument);
  EXPECT_THROW(measure_peak_flops(1, 0.0), std::invalid_argument);
  EXPECT_THROW(measure_read_bandwidth(0), std::invalid_argument);
  EXPECT_THROW(measure_read_bandwidth(1, 100), std::invalid_argument);
}

}  // namespace
}  // namespace saccade::test
