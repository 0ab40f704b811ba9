// Forward attention of bf16 on AMX tiles, by the processor or in software: what only this level does. Everything
// else is tested on every instruction set.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "cases/attention_case.h"
#include "cases/problem.h"
#include "each_isa.h"
#include "saccade/attention.h"
#include "saccade/runtime.h"
#include "tensors.h"

namespace saccade::test {
namespace {

class Amx : public testing::Test {
 protected:
  void SetUp() override {
    const std::vector<Isa> isas = isas_of_tests();
    if (std::ranges::count(isas, Isa::avx512amx) == 0)
      GTEST_SKIP() << "this processor neither has AMX nor AVX2 to emulate it";
    before_ = active_isa();
    set_active_isa(Isa::avx512amx);
  }
  void TearDown() override { set_active_isa(before_); }

 private:
  Isa before_ = Isa::scalar;
};

/// Multiplies key j of every head by factor(j).
template <class Factor>
void scale_keys(cases::AttentionCase& c, const Factor& factor) {
  const MutableTensorView k = c.k.view();
  for (std::int64_t b = 0; b < k.shape[0]; ++b)
    for (std::int64_t h = 0; h < k.shape[1]; ++h)
      for (std::int64_t j = 0; j < k.shape[2]; ++j)
        for (std::int64_t d = 0; d < k.shape[3]; ++d) {
          bfloat16& x = static_cast<bfloat16*>(
              k.mutable_data())[b * k.strides[0] + h * k.strides[1] + j * k.strides[2] + d * k.strides[3]];
          x = bfloat16(static_cast<float>(x) * static_cast<float>(factor(j)));
        }
}

void expect_agreement(cases::AttentionCase& c) {
  cases::CheckedCase checked(c);
  for (const auto& [result, comparison] : checked.run())
    EXPECT_TRUE(comparison.holds) << cases::describe(c) << ": " << result << ": " << to_string(comparison);
}

constexpr const char* kShapes[] = {
    "h=2 s=33 d=16 dtype=bf16",
    "h=2 s=600 d=64 dtype=bf16 lse",
    "h=2 s=600 d=64 dtype=bf16 dropout=0.3",
    "h=1 sq=70 sk=900 d=128 dv=40 dtype=bf16 lse",
    "h=2 s=600 d=40 dtype=bf16 causal=top_left",
    "h=2 s=300 d=160 dv=72 dtype=bf16 window=64,0 lse",
};

TEST_F(Amx, MakesRoomForScoresThatGrow) {
  for (const char* const shape : kShapes) {
    // Every few tiles, within the first tiles of a step, and only in the last tile.
    for (const auto& factor : {+[](std::int64_t j) { return 1.0 + static_cast<double>(j) / 4; },
                               +[](std::int64_t j) { return j < 70 ? 0.01 : 100.0; },
                               +[](std::int64_t j) { return j < 32 ? -50.0 : 50.0; }}) {
      cases::AttentionCase c = cases::draw_case(cases::parse_problem(shape), 1);
      scale_keys(c, factor);
      expect_agreement(c);
    }
  }
}

TEST_F(Amx, KeepsRowsWithoutAKeyInTheirFirstTiles) {
  cases::AttentionCase c =
      cases::draw_case(cases::parse_problem("h=2 sq=64 sk=400 d=64 dtype=bf16 mask=bool lse"), 1);
  for (std::int64_t i = 0; i < 64; ++i)
    for (std::int64_t j = 0; j < 400; ++j) c.mask.at<bool>(i, j) = i % 3 != 0 ? j >= 30 * i / 4 : j == 399;
  expect_agreement(c);
}

TEST_F(Amx, GivesLowScoresAllTheWeightIfThereAreNoOthers) {
  constexpr float kLowest = std::numeric_limits<float>::lowest();
  cases::AttentionCase c = cases::draw_case(cases::parse_problem("h=1 sq=40 sk=100 d=32 dtype=bf16 mask=f32"), 1);
  for (std::int64_t i = 0; i < 40; ++i)
    for (std::int64_t j = 0; j < 100; ++j) c.mask.at<float>(i, j) = i < 20 || j < 64 ? kLowest : 0.0F;
  expect_agreement(c);
}

TEST_F(Amx, OutputDoesNotDependOnWhatElseIsAskedFor) {
  for (const char* const shape : kShapes) {
    cases::AttentionCase c = cases::draw_case(cases::parse_problem(shape), 3);
    AttentionOptions options = c.options;
    options.lse = {};
    const Tensor plain = attention(c.q.view(), c.k.view(), c.v.view(), options);
    const MutableTensorView q = c.q.view();
    Shape rows(q.shape.begin(), q.shape.begin() + q.rank - 1);
    Tensor lse(DType::f32, rows);
    options.lse = lse.mutable_view();
    EXPECT_TRUE(same_bits(attention(c.q.view(), c.k.view(), c.v.view(), options), plain)) << shape;
  }
}

TEST_F(Amx, GivesTheSameBitsInManyThreadsAtOnce) {
  cases::AttentionCase c = cases::draw_case(cases::parse_problem("h=2 s=200 d=64 dtype=bf16"), 1);
  c.options.num_threads = 1;
  const Tensor expected = attention(c.q.view(), c.k.view(), c.v.view(), c.options);
  std::vector<Tensor> found(16);
  std::vector<std::thread> threads;
  threads.reserve(found.size());
  for (Tensor& o : found)
    threads.emplace_back([&] { o = attention(c.q.view(), c.k.view(), c.v.view(), c.options); });
  for (std::thread& thread : threads) thread.join();
  for (const Tensor& o : found) EXPECT_TRUE(same_bits(o, expected));
}

}  // namespace
}  // namespace saccade::test
