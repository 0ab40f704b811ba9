// The reference's own test: cases that can be checked by hand. For the keys that a query sees:
// reference_visible_test.
#include "saccade/reference.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "saccade/random.h"
#include "support/expect_close.h"
#include "support/numbers.h"

namespace saccade::test {
namespace {

using reference::AttentionResult;
using ::testing::DoubleEq;
using ::testing::Each;
using ::testing::ElementsAre;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Tensor zeros(Shape shape) { return Tensor(DType::f32, std::move(shape)); }

Tensor random(Shape shape, std::uint64_t seed) { return TorchGenerator(seed).randn(shape); }

// ---- Logits --------------------------------------------------------------------------------------------------

TEST(Logits, ScaleIsOneOverTheRootOfHeadDimUnlessGiven) {
  const Tensor q = Tensor::of<float>({{1, 2, 3, 4}});
  const Tensor k = Tensor::of<float>({{1, 1, 1, 1}, {2, 0, 0, -1}});
  EXPECT_THAT(numbers_of(reference::attention(q, k, k).scores), ElementsAre(5, -1));
  EXPECT_THAT(numbers_of(reference::attention(q, k, k).logits), ElementsAre(5, -1));
  EXPECT_THAT(numbers_of(reference::attention(q, k, k, {.scale = -2.0}).logits), ElementsAre(-20, 4));
  EXPECT_THAT(numbers_of(reference::attention(q, k, k, {.scale = 0.0}).weights), ElementsAre(0.5, 0.5));
}

TEST(Logits, SoftmaxTurnsThemIntoWeightsAndLse) {
  const Tensor q = Tensor::of<double>({{1.0}});
  const Tensor k = Tensor::of<double>({{0.0}, {std::log(3.0)}});
  const AttentionResult result = reference::attention(q, k, Tensor::of<double>({{10.0}, {20.0}}));
  EXPECT_DOUBLE_EQ(result.weights.at<double>(0, 0), 0.25);
  EXPECT_DOUBLE_EQ(result.weights.at<double>(0, 1), 0.75);
  EXPECT_DOUBLE_EQ(result.o.at<double>(0, 0), 17.5);
  EXPECT_DOUBLE_EQ(result.lse.at<double>(0), std::log(4.0));
}

TEST(Logits, AreComputedInTheirOrder) {
  // One query at position 3 and one key, number 1: everything except the softmax can be written down.
  const Tensor q = Tensor::of<double>({{2.0, 0.5}});
  const Tensor k = Tensor::of<double>({{9.0, 9.0}, {3.0, 1.0}});
  const Tensor slopes = Tensor::of<float>({0.25F});
  const Tensor mask = Tensor::of<double>({0.0, 0.125});
  AttentionOptions options{.scale = 0.5, .softcap = 2.0, .query_offset = 3, .mask = mask, .alibi_slopes = slopes};
  const double softcapped = 2 * std::tanh(0.5 * 6.5 / 2);
  EXPECT_DOUBLE_EQ(reference::attention(q, k, k, options).logits.at<double>(0, 1), softcapped - 0.25 * 2 + 0.125);

  const auto modifier = [](void* context, const ScoreTile& tile) {
    double& score = tile.row<double>(0)[1];
    score = score == *static_cast<double*>(context) ? 100.0 : 0.0;
  };
  double wanted = softcapped;
  options.score_modifier = modifier;
  options.score_context = &wanted;
  EXPECT_DOUBLE_EQ(reference::attention(q, k, k, options, DType::f64).logits.at<double>(0, 1),
                   100 - 0.25 * 2 + 0.125);
}

TEST(Logits, ScoreModifierKnowsWhereItIs) {
  const auto modifier = [](void*, const ScoreTile& tile) {
    ASSERT_EQ(tile.dtype, DType::f64);
    ASSERT_EQ(tile.offset, 7);
    for (std::int64_t i = 0; i < tile.rows; ++i) {
      for (std::int64_t j = 0; j < tile.keys; ++j) {
        const std::int64_t row = tile.first_row + i, key = tile.first_key + j;
        const auto place = static_cast<double>(1000 * tile.batch + 100 * tile.head + 10 * row + key);
        tile.row<double>(i)[j] = key == 1 ? -kInf : place;
      }
    }
  };
  const Tensor q = zeros({2, 2, 2, 1});
  const Tensor k = zeros({2, 2, 3, 1});
  Tensor v = zeros({2, 2, 3, 1});
  for (std::int64_t b = 0; b < 2; ++b) v.at<float>(b, 1, 1, 0) = static_cast<float>(kNan);
  const AttentionResult result = reference::attention(q, k, v, {.query_offset = 7, .score_modifier = modifier});
  EXPECT_EQ(result.logits.at<double>(1, 0, 1, 2), 1012);
  EXPECT_EQ(result.logits.at<double>(0, 1, 0, 0), 100);
  EXPECT_EQ(result.logits.at<double>(1, 1, 1, 1), -kInf);
  EXPECT_THAT(numbers_of(result.o), Each(0.0));
}

TEST(Logits, AlibiFallsWithTheDistance) {
  const Tensor of_heads = Tensor::of<float>({0.5F, 2.0F});
  const Tensor q = zeros({2, 2, 2, 1});
  const Tensor k = zeros({2, 2, 3, 1});
  AttentionResult result = reference::attention(q, k, k, {.query_offset = 1, .alibi_slopes = of_heads});
  EXPECT_THAT(numbers_of(result.logits.view().select(0, 1).select(0, 0)), ElementsAre(-0.5, 0, -0.5, -1, -0.5, 0));
  EXPECT_THAT(numbers_of(result.logits.view().select(0, 0).select(0, 1)), ElementsAre(-2, 0, -2, -4, -2, 0));

  const Tensor of_batch = Tensor::of<float>({{0.5F, 2.0F}, {1.0F, 4.0F}});
  result = reference::attention(q, k, k, {.alibi_slopes = of_batch});
  EXPECT_THAT(numbers_of(result.logits.view().select(0, 1).select(0, 1).select(0, 0)), ElementsAre(0, -4, -8));
}

TEST(Logits, SinksTakePartInTheDenominatorOnly) {
  const Tensor sinks = Tensor::of<float>({0.0F, std::log(2.0F)});
  const Tensor q = zeros({2, 2, 1});
  Tensor v = zeros({2, 2, 1});
  std::ranges::fill(v.values<float>(), 1.0F);
  AttentionResult result = reference::attention(q, q, v, {.causal = Causal::top_left, .sinks = sinks});
  EXPECT_THAT(numbers_of(result.weights.view().select(0, 0)),
              ::testing::Pointwise(::testing::DoubleEq(), std::vector{0.5, 0.0, 1 / 3.0, 1 / 3.0}));
  EXPECT_DOUBLE_EQ(result.o.at<double>(0, 1, 0), 2 / 3.0);
  EXPECT_DOUBLE_EQ(result.lse.at<double>(0, 1), std::log(3.0));
  EXPECT_FLOAT_EQ(static_cast<float>(result.o.at<double>(1, 1, 0)), 0.5F);

  const Tensor nothing = Tensor::of<bool>({false, false});
  result = reference::attention(q, q, v, {.mask = nothing, .sinks = sinks});
  EXPECT_THAT(numbers_of(result.o), Each(0.0));
  EXPECT_EQ(result.lse.at<double>(0, 0), 0.0);
  EXPECT_EQ(result.lse.at<double>(1, 1), static_cast<double>(std::log(2.0F)));
}

TEST(Logits, HaveTheMagnitudeOfTheirTerms) {
  const Tensor q = Tensor::of<float>({{2}, {2}}), k = Tensor::of<float>({{5}, {-5}, {1}});
  const Tensor slope = Tensor::of<float>({3}),
               mask = Tensor::of<float>({{-4, 0, static_cast<float>(-kInf)}, {0, 1, 0}});
  const AttentionResult result =
      reference::attention(q, k, k, {.scale = 1.0, .mask = mask, .alibi_slopes = slope});
  EXPECT_THAT(result.logits.values<double>(), ElementsAre(6, -13, -kInf, 7, -9, -1));
  EXPECT_THAT(result.score_bound.values<double>(), ElementsAre(10, 10, 2, 10, 10, 2));
  EXPECT_THAT(result.magnitudes.values<double>(), ElementsAre(10 + 4, 13 + 3, 0, 10 + 3, 10 + 1, 2 + 3));
  for (std::int64_t i = 0; i < 2; ++i) {
    double expected = std::abs(result.lse.at<double>(i));
    for (std::int64_t j = 0; j < 3; ++j)
      expected += result.weights.at<double>(i, j) * result.magnitudes.at<double>(i, j);
    EXPECT_DOUBLE_EQ(result.lse_bound.at<double>(i), expected);
  }
}

TEST(Logits, HaveTheMagnitudeOfProductsThatTheSoftcapLetsPass) {
  const Tensor q = Tensor::of<float>({{2, 2}}), k = Tensor::of<float>({{5, -5}, {50, 50}, {1, -0.5}});
  const AttentionResult result = reference::attention(q, k, k, {.scale = 1.0, .softcap = 4.0});
  const double score = 4 * std::tanh(0.25), slope = 1 - std::pow(std::tanh(0.25), 2);
  EXPECT_THAT(result.logits.values<double>(), ElementsAre(0, 4, DoubleEq(score)));
  EXPECT_THAT(result.magnitudes.values<double>(), ElementsAre(20, 4, DoubleEq(3 * slope)));
}

TEST(Logits, LargeOnesDoNotOverflow) {
  const Tensor q = Tensor::of<double>({{1.0}});
  const Tensor k = Tensor::of<double>({{1e6}, {1e6 - 1000}});
  const AttentionResult result = reference::attention(q, k, Tensor::of<double>({{3.0}, {5.0}}));
  EXPECT_EQ(result.o.at<double>(0, 0), 3);
  EXPECT_EQ(result.lse.at<double>(0), 1e6);
}

// ---- Rows that see nothing, and numbers that must not spread --------------------------------------------------

TEST(HiddenKeys, ARowThatSeesNothingGivesZeros) {
  const Tensor q = random({3, 4}, 1);
  const Tensor mask = Tensor::of<bool>({{true, true}, {false, false}, {true, false}});
  const AttentionResult result =
      reference::attention(q, q.view().slice(0, 0, 2), q.view().slice(0, 1, 3), {.mask = mask});
  EXPECT_THAT(numbers_of(result.o.view().select(0, 1)), Each(0.0));
  EXPECT_THAT(numbers_of(result.weights.view().select(0, 1)), Each(0.0));
  EXPECT_EQ(result.lse.at<double>(1), -kInf);
  expect_same(result.o.view().select(0, 2), q.view().select(0, 1));
}

TEST(HiddenKeys, NothingInThemSpreads) {
  const Tensor q = random({1, 2, 4, 3}, 1);
  const Tensor k = random({1, 2, 4, 3}, 2);
  const Tensor v = random({1, 2, 4, 3}, 3);
  const Tensor lengths = Tensor::of<std::int32_t>({2});
  const Tensor bool_mask = Tensor::of<bool>({true, true, false, false});
  const Tensor float_mask = Tensor::of<float>({0.5F, 0, -HUGE_VALF, -HUGE_VALF});
  const std::vector<AttentionOptions> all_hide_2_and_3 = {
      {.kv_lengths = lengths},
      {.mask = bool_mask},
      {.mask = float_mask},
      {.causal = Causal::top_left, .query_offset = -2},
      {.query_offset = -3, .window_right = 1},
  };
  for (const double poison : {kNan, kInf, -kInf}) {
    Tensor bad_k = k;
    Tensor bad_v = v;
    for (const std::int64_t head : {0, 1}) {
      for (const std::int64_t d : {0, 2}) {
        bad_k.at<float>(0, head, 2, d) = bad_v.at<float>(0, head, 3, d) = static_cast<float>(poison);
        bad_k.at<float>(0, head, 3, d) = bad_v.at<float>(0, head, 2, d) = static_cast<float>(poison);
      }
    }
    for (const AttentionOptions& options : all_hide_2_and_3) {
      for (const DType precision : {DType::f64, DType::f32}) {
        const AttentionResult good = reference::attention(q.view().slice(2, 0, 1), k, v, options, precision);
        const AttentionResult bad =
            reference::attention(q.view().slice(2, 0, 1), bad_k, bad_v, options, precision);
        expect_same(bad.o, good.o);
        expect_same(bad.lse, good.lse);
        expect_same(bad.weights, good.weights);
        expect_same(bad.bound, good.bound);
      }
    }
  }
}

TEST(VisibleKeys, NanReachesExactlyTheRowsThatSeeIt) {
  const Tensor q = random({4, 3}, 1);
  Tensor k = random({4, 3}, 2);
  Tensor v = random({4, 3}, 3);
  k.at<float>(2, 1) = static_cast<float>(kNan);
  const AttentionResult with_bad_key = reference::attention(q, k, v, {.causal = Causal::top_left});
  for (std::int64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(std::isnan(with_bad_key.lse.at<double>(i)), i >= 2) << i;
    for (std::int64_t d = 0; d < 3; ++d) EXPECT_EQ(std::isnan(with_bad_key.o.at<double>(i, d)), i >= 2) << i;
  }

  k = random({4, 3}, 2);
  v.at<float>(2, 1) = static_cast<float>(kNan);
  const AttentionResult with_bad_value = reference::attention(q, k, v, {.causal = Causal::top_left});
  for (std::int64_t i = 0; i < 4; ++i) {
    EXPECT_FALSE(std::isnan(with_bad_value.lse.at<double>(i)));
    for (std::int64_t d = 0; d < 3; ++d) {
      EXPECT_EQ(std::isnan(with_bad_value.o.at<double>(i, d)), i >= 2 && d == 1) << i << " " << d;
    }
  }
}

TEST(VisibleKeys, ALogitOfMinusInfinityHidesHoweverItCameAbout) {
  const Tensor q = Tensor::of<float>({{1}});
  const Tensor k = Tensor::of<float>({{-HUGE_VALF}, {2}});
  const Tensor v = Tensor::of<float>({{static_cast<float>(kNan)}, {5}});
  EXPECT_THAT(numbers_of(reference::attention(q, k, v).o), ElementsAre(5));
  const AttentionResult nothing = reference::attention(q, k.view().slice(0, 0, 1), v.view().slice(0, 0, 1));
  EXPECT_THAT(numbers_of(nothing.o), ElementsAre(0));
  EXPECT_EQ(nothing.lse.at<double>(0), -kInf);
}

TEST(EmptyInputs, GiveEmptyOrZeroOutputs) {
  EXPECT_THAT(reference::attention(zeros({0, 2, 3, 4}), zeros({0, 2, 5, 4}), zeros({0, 2, 5, 6})).o.shape(),
              ElementsAre(0, 2, 3, 6));
  EXPECT_THAT(reference::attention(zeros({2, 0, 3, 4}), zeros({2, 0, 5, 4}), zeros({2, 0, 5, 6})).o.shape(),
              ElementsAre(2, 0, 3, 6));
  EXPECT_THAT(reference::attention(zeros({0, 4}), zeros({5, 4}), zeros({5, 6})).weights.shape(),
              ElementsAre(0, 5));
  EXPECT_THAT(reference::attention(zeros({3, 4}), zeros({5, 4}), zeros({5, 0})).o.shape(), ElementsAre(3, 0));
  const AttentionResult no_keys = reference::attention(random({3, 4}, 1), zeros({0, 4}), zeros({0, 6}));
  EXPECT_THAT(no_keys.o.shape(), ElementsAre(3, 6));
  EXPECT_THAT(numbers_of(no_keys.o), Each(0.0));
  EXPECT_THAT(numbers_of(no_keys.lse), Each(-kInf));
}

// ---- Shapes, layouts, types ----------------------------------------------------------------------------------

TEST(Shapes, QueryHeadsShareKeyHeadsInOrder) {
  const Tensor q = zeros({1, 6, 2, 1});
  const Tensor k = zeros({1, 3, 2, 1});
  Tensor v = zeros({1, 3, 2, 1});
  for (std::int64_t head = 0; head < 3; ++head) {
    for (std::int64_t j = 0; j < 2; ++j) v.at<float>(0, head, j, 0) = static_cast<float>(head);
  }
  const AttentionResult result = reference::attention(q, k, v);
  EXPECT_THAT(numbers_of(result.o), ElementsAre(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2));
  EXPECT_THAT(result.weights.shape(), ElementsAre(1, 6, 2, 2));
}

TEST(Shapes, AllResultsHaveQsRank) {
  const Tensor q = random({2, 3, 4, 5}, 1);
  const Tensor k = random({2, 3, 6, 5}, 2);
  const Tensor v = random({2, 3, 6, 7}, 3);
  const AttentionResult all = reference::attention(q, k, v);
  EXPECT_THAT(all.o.shape(), ElementsAre(2, 3, 4, 7));
  EXPECT_THAT(all.bound.shape(), ElementsAre(2, 3, 4, 7));
  EXPECT_THAT(all.lse.shape(), ElementsAre(2, 3, 4));
  EXPECT_THAT(all.scores.shape(), ElementsAre(2, 3, 4, 6));

  const auto entry = [](const Tensor& tensor) { return tensor.view().select(0, 1); };
  const AttentionResult heads = reference::attention(entry(q), entry(k), entry(v));
  expect_same(heads.o, entry(all.o));
  expect_same(heads.lse, entry(all.lse));
  expect_same(heads.weights, entry(all.weights));

  const auto head = [&](const Tensor& tensor) { return entry(tensor).select(0, 2); };
  const AttentionResult one = reference::attention(head(q), head(k), head(v));
  expect_same(one.o, head(all.o));
  expect_same(one.lse, head(all.lse));
  expect_same(one.logits, head(all.logits));
}

TEST(Shapes, LayoutsDifferInTheOrderOfAxesOnly) {
  const Tensor q = random({2, 3, 4, 5}, 1);
  const Tensor k = random({2, 3, 6, 5}, 2);
  const Tensor v = random({2, 3, 6, 7}, 3);
  const AttentionResult bhsd = reference::attention(q, k, v, {.causal = Causal::bottom_right});
  const auto swapped = [](const Tensor& tensor) { return Tensor::copy_of(tensor.view().transposed(1, 2)); };
  const AttentionOptions options{.causal = Causal::bottom_right, .layout = Layout::bshd};
  const AttentionResult bshd = reference::attention(swapped(q), swapped(k), swapped(v), options);
  expect_same(bshd.o, swapped(bhsd.o));
  expect_same(bshd.bound, swapped(bhsd.bound));
  expect_same(bshd.lse, bhsd.lse);
  expect_same(bshd.weights, bhsd.weights);

  const Tensor q3 = swapped(q);
  const AttentionResult rank3 = reference::attention(q3.view().select(0, 1), swapped(k).view().select(0, 1),
                                                     swapped(v).view().select(0, 1), options);
  expect_same(rank3.o, swapped(bhsd.o).view().select(0, 1));
  const auto head = [](const Tensor& tensor) { return tensor.view().select(0, 1).select(0, 2); };
  expect_same(reference::attention(head(q), head(k), head(v), options).o, head(bhsd.o));
}

TEST(Shapes, StridesDoNotMatter) {
  const Tensor q = random({8, 10}, 1);
  const TensorView every_other(q.values<float>().data(), {4, 5}, {20, 2});
  const TensorView backwards(q.values<float>().data() + 79, {4, 5}, {-10, -1});
  const TensorView repeated(q.values<float>().data(), {4, 3}, {0, 1});
  const AttentionResult result = reference::attention(every_other, backwards, repeated);
  expect_same(
      result.o,
      reference::attention(Tensor::copy_of(every_other), Tensor::copy_of(backwards), Tensor::copy_of(repeated)).o);
}

TEST(Shapes, ElementTypesDoNotMatterWhereTheyHoldTheNumbers) {
  const Tensor q = Tensor::of<double>({{1, -2}, {0.5, 3}});
  const Tensor k = Tensor::of<double>({{2, 1}, {-1, 0.25}, {4, -3}});
  const Tensor wanted = reference::attention(q, k, k, {}, DType::f64).o;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    const Tensor cast_k = Tensor::copy_of(k, dtype);
    expect_same(reference::attention(Tensor::copy_of(q, dtype), cast_k, cast_k).o, wanted);
    expect_same(reference::attention(q, cast_k, k, {}, DType::f64).o, wanted);
  }
}

// ---- Dropout -------------------------------------------------------------------------------------------------

TEST(Dropout, KeepsWhatTheGeneratorKeepsAtThatPosition) {
  const Tensor q = random({2, 2, 5, 4}, 1);
  const Tensor k = random({2, 2, 70, 4}, 2);
  const Tensor v = random({2, 2, 70, 3}, 3);
  AttentionOptions options{.dropout_p = 0.3, .dropout_seed = 0x123456789ABCDEF0, .dropout_offset = 7};
  const AttentionResult plain = reference::attention(q, k, v);
  const AttentionResult before = reference::attention(q, k, v, options);
  options.weights_after_dropout = true;
  const AttentionResult after = reference::attention(q, k, v, options);
  expect_same(before.weights, plain.weights);
  expect_same(before.lse, plain.lse);
  expect_same(after.lse, plain.lse);
  expect_same(after.o, before.o);

  std::int64_t kept = 0;
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t h = 0; h < 2; ++h) {
      for (std::int64_t i = 0; i < 5; ++i) {
        for (std::int64_t j = 0; j < 70; ++j) {
          const bool keep =
              dropout_keeps(options.dropout_seed, 7, static_cast<std::uint32_t>(2 * b + h),
                            static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(j), options.dropout_p);
          const double weight = plain.weights.at<double>(b, h, i, j);
          ASSERT_DOUBLE_EQ(after.weights.at<double>(b, h, i, j), keep ? weight / 0.7 : 0);
          kept += keep ? 1 : 0;
        }
      }
      const auto head = [&](const Tensor& x) { return x.view().select(0, b).select(0, h); };
      const Tensor product = reference::matmul(head(after.weights), head(v));
      const AttentionResult magnitudes = reference::attention(head(q), head(k), head(v));
      expect_close(head(after.o), {.reference = product, .naive = product, .bound = magnitudes.bound});
    }
  }
  EXPECT_NEAR(static_cast<double>(kept) / 1400, 0.7, 5 * std::sqrt(0.3 * 0.7 / 1400));
}

TEST(Dropout, DependsOnSeedAndOffset) {
  const Tensor q = zeros({4, 1});
  const Tensor k = zeros({64, 1});
  const auto dropped = [&](std::uint64_t seed, std::uint32_t offset) {
    return numbers_of(
        reference::attention(
            q, k, k,
            {.dropout_p = 0.5, .dropout_seed = seed, .dropout_offset = offset, .weights_after_dropout = true})
            .weights);
  };
  EXPECT_EQ(dropped(1, 2), dropped(1, 2));
  EXPECT_NE(dropped(1, 2), dropped(2, 2));
  EXPECT_NE(dropped(1, 2), dropped(1, 3));
  EXPECT_NE(dropped(1, 2), dropped(1 + (std::uint64_t{1} << 32), 2));
}

// ---- Precision -----------------------------------------------------------------------------------------------

TEST(Precision, BoundIsTheOutputOfTheValuesMagnitudes) {
  const Tensor q = random({3, 4}, 1);
  const Tensor k = random({5, 4}, 2);
  const Tensor v = random({5, 6}, 3);
  Tensor magnitudes = v;
  for (float& number : magnitudes.values<float>()) number = std::abs(number);
  const AttentionOptions options{.causal = Causal::bottom_right, .dropout_p = 0.25};
  expect_same(reference::attention(q, k, v, options).bound, reference::attention(q, k, magnitudes, options).o);
}

TEST(Reference, BoundOfARotatedOIsThatOfItsBlock) {
  const Tensor q = zeros({1, 2}), k = zeros({2, 2});
  // Transforms of {2, 0, 0, 0, 1, -1, ...} and of {0, 0, 0, 0, 0, 6, ...}: blocks of four numbers.
  const Tensor v =
      Tensor::of<float>({{1, 1, 1, 1, 0, 1, 0, 1, 0, 0, 0, 0}, {0, 0, 0, 0, 3, -3, 3, -3, 0, 0, 0, 0}});
  const AttentionResult result = reference::attention(q, k, v, {.v_rotated = true});
  EXPECT_THAT(result.o.values<double>(), ElementsAre(1, 0, 0, 0, 0.5, 2.5, 0, 0, 0, 0, 0, 0));
  const double second = (std::sqrt(2.0) + 6) / 2;
  EXPECT_THAT(result.bound.values<double>(), ElementsAre(1, 1, 1, 1, DoubleEq(second), DoubleEq(second),
                                                         DoubleEq(second), DoubleEq(second), 0, 0, 0, 0));
}

TEST(Precision, FloatDiffersFromDoubleByRoundingOnly) {
  constexpr std::int64_t kHeadDim = 64;
  constexpr std::int64_t kSeqlen = 129;
  const Tensor q = random({2, kSeqlen, kHeadDim}, 1);
  const Tensor k = random({2, kSeqlen, kHeadDim}, 2);
  const Tensor v = random({2, kSeqlen, kHeadDim}, 3);
  const Tensor slopes = Tensor::of<float>({0.015625F, 0.0078125F});
  const AttentionOptions options{.softcap = 30.0, .causal = Causal::top_left, .alibi_slopes = slopes};
  const AttentionResult exact = reference::attention(q, k, v, options);
  const AttentionResult naive = reference::attention(q, k, v, options, DType::f32);
  EXPECT_NE(numbers_of(naive.o), numbers_of(exact.o));

  // A logit is a sum of kHeadDim products and three more steps: each rounds by at most eps / 2 of the sum of
  // magnitudes. That error appears twice in a weight, in numerator and denominator; a row adds up kSeqlen of them.
  double magnitude = 0;
  for (std::int64_t i = 0; i < 2 * kSeqlen; ++i) {
    double q_squared = 0;
    double k_squared = 0;
    for (std::int64_t d = 0; d < kHeadDim; ++d) {
      q_squared += std::pow(q.at<float>(i / kSeqlen, i % kSeqlen, d), 2);
      k_squared += std::pow(k.at<float>(i / kSeqlen, i % kSeqlen, d), 2);
    }
    magnitude = std::max({magnitude, q_squared, k_squared});
  }
  const double largest_logit = magnitude / std::sqrt(kHeadDim) + slopes.at<float>(0) * kSeqlen;
  const Tolerance derived{.naive_factor = 0, .eps_factor = (kHeadDim + 3) * largest_logit + kSeqlen};
  const Tensor ones = Tensor::copy_of(reference::causal_mask(2, kSeqlen, Causal::none), DType::f64);
  expect_close(naive.o, {.reference = exact.o, .naive = exact.o, .bound = exact.bound, .coarsest = DType::f32},
               derived);
  expect_close(naive.lse, {.reference = exact.lse, .naive = exact.lse, .bound = ones, .coarsest = DType::f32},
               derived);
}

}  // namespace
}  // namespace saccade::test
