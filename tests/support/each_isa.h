// Runs a test once for each instruction set that this machine has or emulates.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "saccade/runtime.h"

namespace saccade::test {

/// The instruction sets that this machine can run, emulated ones too.
inline std::vector<Isa> isas_of_tests() {
  std::vector<Isa> isas = built_isas(), available = available_isas();
  std::erase_if(isas, [&](Isa isa) { return !is_emulated(isa) && std::ranges::count(available, isa) == 0; });
  return isas;
}

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

/// A fixture, derived from testing::Test or testing::TestWithParam, whose tests run on AMX tiles or on their twin.
template <class Base>
class OnAmx : public Base {
 protected:
  void SetUp() override {
    if (std::ranges::count(isas_of_tests(), Isa::avx512amx) == 0)
      GTEST_SKIP() << "this processor neither has AMX nor AVX2 to emulate it";
    before_ = active_isa();
    set_active_isa(Isa::avx512amx);
  }
  void TearDown() override { set_active_isa(before_); }

 private:
  Isa before_ = active_isa();
};

/// Instantiates the tests of a fixture derived from EachIsa.
#define SACCADE_FOR_EACH_ISA(Fixture)                                                           \
  INSTANTIATE_TEST_SUITE_P(Isa, Fixture, ::testing::ValuesIn(::saccade::test::isas_of_tests()), \
                           [](const auto& isa) { return std::string(::saccade::name_of(isa.param)); })

}  // namespace saccade::test
