// Runs a test once for each instruction set that this machine has.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "saccade/runtime.h"

namespace saccade::test {

/// A fixture whose tests run with the kernels of GetParam(), which it verifies.
class EachIsa : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    before_ = active_isa();
    set_active_isa(GetParam());
    ASSERT_EQ(active_isa(), GetParam());
  }
  void TearDown() override { set_active_isa(before_); }

 private:
  Isa before_ = Isa::scalar;
};

/// Instantiates the tests of a fixture derived from EachIsa.
#define SACCADE_FOR_EACH_ISA(Fixture)                                                      \
  INSTANTIATE_TEST_SUITE_P(Isa, Fixture, ::testing::ValuesIn(::saccade::available_isas()), \
                           [](const auto& isa) { return std::string(::saccade::name_of(isa.param)); })

}  // namespace saccade::test
