// inspect() against statistics of the reference's weights, on every instruction set of the machine.
#include "saccade/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "cases/inspection_case.h"
#include "cases/random_case.h"
#include "saccade/reference.h"
#include "support/each_isa.h"
#include "support/environment.h"
#include "support/expect_close.h"
#include "support/refusal.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

void check(const TensorView& q, const TensorView& k, const InspectOptions& wanted,
           const AttentionOptions& options) {
  for (const auto& [result, comparison] : cases::CheckedInspection(q, k, wanted, options).run())
    EXPECT_TRUE(comparison.holds) << result << ": " << to_string(comparison);
}

/// The random problem of a seed.
void check_problem(std::uint64_t seed) {
  cases::AttentionCase c = cases::draw_case(seed);
  SCOPED_TRACE("SACCADE_TEST_SEED=" + std::to_string(seed) + " SACCADE_TEST_CASES=1: " + cases::describe(c));
  cases::make_inspection(c);
  check(c.q.view(), c.k.view(), cases::draw_inspection(c, seed), c.options);
}

class InspectOnIsa : public EachIsa {};
SACCADE_FOR_EACH_ISA(InspectOnIsa);

TEST_P(InspectOnIsa, AgreesWithTheReferenceOnRandomProblems) {
  const ProblemRange problems = problems_of_test(20240607, fewer_if_slow(100));
  for (std::uint64_t i = problems.begin; i < problems.end; ++i) check_problem(i);
}

// Which failed in a campaign: two keys of weights 1 and 1e-25; rows whose weights all vanish in f32 beside a sink;
// transformed keys whose products cancel; scores that ALiBi cancels.
TEST_P(InspectOnIsa, AgreesWithTheReferenceOnProblemsThatFailed) {
  for (const std::uint64_t seed : {1193, 1274, 4441, 4856, 19116, 25997, 122948, 128914, 605370})
    check_problem(seed);
}

const InspectOptions kEverything{.rows = {300, 0, 17},
                                 .top_k = 5,
                                 .entropy = true,
                                 .max_weight = true,
                                 .received = true,
                                 .distance = true,
                                 .pool_rows = 37,
                                 .pool_keys = 29};

/// Every tensor of an inspection.
std::vector<const Tensor*> tensors_of(const Inspection& i) {
  return {&i.rows,     &i.top_keys, &i.top_weights,   &i.entropy, &i.max_weight,
          &i.received, &i.distance, &i.mean_distance, &i.pooled};
}

bool same_inspection(const Inspection& a, const Inspection& b) {
  const auto of_a = tensors_of(a), of_b = tensors_of(b);
  return std::ranges::equal(of_a, of_b, [](const Tensor* x, const Tensor* y) { return same_bits(*x, *y); });
}

TEST_P(InspectOnIsa, HasTheSameBitsForAnyNumberOfThreads) {
  for (const Shape& shape : {Shape{1, 1, 700, 64}, Shape{2, 3, 301, 40}}) {
    const Tensor q = random_tensor(shape, 1), k = random_tensor(shape, 2);
    const Inspection expected = inspect(q, k, kEverything, {.causal = Causal::top_left, .num_threads = 1});
    for (int threads : {2, 3, 7})
      EXPECT_TRUE(same_inspection(inspect(q, k, kEverything, {.causal = Causal::top_left, .num_threads = threads}),
                                  expected))
          << threads;
  }
}

TEST_P(InspectOnIsa, TakesTheDenominatorsOfAttention) {
  const Tensor q = random_tensor({2, 6, 310, 40}, 1), k = random_tensor({2, 3, 470, 40}, 2);
  const Tensor sinks = random_tensor({6}, 3);
  Tensor lse(DType::f32, {2, 6, 310});
  const AttentionOptions options{.causal = Causal::bottom_right, .window_left = 300, .sinks = sinks};
  AttentionOptions with_lse = options;
  with_lse.lse = lse;
  attention(q, k, k, with_lse);
  InspectOptions wanted = kEverything;
  wanted.lse = lse;
  check(q, k, wanted, options);
}

TEST_P(InspectOnIsa, ComputesEachStatisticByItself) {
  const Tensor q = random_tensor({2, 310, 20}, 1), k = random_tensor({2, 290, 20}, 2);
  const AttentionOptions options{.causal = Causal::top_left};
  const Inspection all = inspect(q, k, kEverything, options);
  EXPECT_TRUE(same_bits(inspect(q, k, {.rows = {300, 0, 17}}, options).rows, all.rows));
  EXPECT_TRUE(same_bits(inspect(q, k, {.top_k = 5}, options).top_keys, all.top_keys));
  EXPECT_TRUE(same_bits(inspect(q, k, {.entropy = true}, options).entropy, all.entropy));
  EXPECT_TRUE(same_bits(inspect(q, k, {.max_weight = true}, options).max_weight, all.max_weight));
  EXPECT_TRUE(same_bits(inspect(q, k, {.distance = true}, options).mean_distance, all.mean_distance));
  EXPECT_TRUE(same_bits(inspect(q, k, {.pool_rows = 37, .pool_keys = 29}, options).pooled, all.pooled));
  const Inspection nothing = inspect(q, k, {}, options);
  for (const Tensor* tensor : tensors_of(nothing)) EXPECT_EQ(tensor->rank(), 0);
}

TEST_P(InspectOnIsa, KnowsTheAnswersForEqualScores) {
  const std::int64_t n = 600;
  const Tensor q(DType::f32, {n, 8}), k = random_tensor({n, 8}, 2);
  const InspectOptions wanted{.top_k = 3, .entropy = true, .max_weight = true, .distance = true};
  const AttentionOptions options{.causal = Causal::top_left};
  const Inspection found = inspect(q, k, wanted, options);
  const reference::AttentionResult exact = reference::attention(q, k, k, options),
                                   rounded = reference::naive_attention(q, k, k, options, exact);
  const cases::Sequences sequences(q, k, exact.weights, options);
  const cases::Statistics<float> naive(rounded.weights, sequences, wanted, found);
  Tensor entropy(DType::f64, {n}), largest(DType::f64, {n}), distance(DType::f64, {n});
  for (std::int64_t i = 0; i < n; ++i) {
    const double keys = static_cast<double>(i + 1);
    entropy.at<double>(i) = std::log(keys);
    largest.at<double>(i) = 1.0 / keys;
    distance.at<double>(i) = static_cast<double>(i) / 2.0;
    for (std::int64_t n_th = 0; n_th < 3; ++n_th)
      EXPECT_EQ(found.top_keys.at<std::int64_t>(i, n_th), n_th <= i ? n_th : -1) << i;
  }
  expect_close(found.entropy, {entropy, naive.entropy});
  expect_close(found.max_weight, {largest, naive.max_weight});
  expect_close(found.distance, {distance, naive.distance});
}

TEST_P(InspectOnIsa, OrdersManyTopKeysWhateverTheirOrder) {
  const std::int64_t n = 3000;
  for (const float slope : {1.0f, -1.0f, 0.0f}) {
    Tensor q = random_tensor({1, 1}, 1), k = random_tensor({n, 1}, 2);
    q.at<float>(0, 0) = 1.0f;
    for (std::int64_t j = 0; j < n && slope != 0.0f; ++j)
      k.at<float>(j, 0) = slope * 0.002f * static_cast<float>(j);
    const InspectOptions wanted{.rows = {0}, .top_k = 700};
    const Inspection found = inspect(q, k, wanted);
    std::vector<std::int64_t> order(static_cast<std::size_t>(n));
    for (std::size_t j = 0; j < order.size(); ++j) order[j] = static_cast<std::int64_t>(j);
    std::ranges::stable_sort(order, std::greater<>(), [&](std::int64_t j) { return found.rows.at<float>(0, j); });
    for (std::int64_t i = 0; i < wanted.top_k; ++i) {
      ASSERT_EQ(found.top_keys.at<std::int64_t>(0, i), order[static_cast<std::size_t>(i)]) << i;
      ASSERT_EQ(found.top_weights.at<float>(0, i), found.rows.at<float>(0, order[static_cast<std::size_t>(i)]))
          << i;
    }
  }
}

TEST_P(InspectOnIsa, ANanReachesTheRowsAndSumsThatSeeIt) {
  Tensor q = random_tensor({200, 48}, 1), k = random_tensor({300, 48}, 2);
  const InspectOptions wanted{.rows = {20, 30},
                              .top_k = 2,
                              .entropy = true,
                              .max_weight = true,
                              .received = true,
                              .distance = true,
                              .pool_rows = 20,
                              .pool_keys = 30};
  const AttentionOptions options{.causal = Causal::top_left};
  for (const Pooling pooling : {Pooling::mean, Pooling::max}) {
    InspectOptions pooled = wanted;
    pooled.pooling = pooling;
    const Inspection clean = inspect(q, k, pooled, options);
    Tensor poisoned = q;
    poisoned.at<float>(30, 5) = kNan;  // sees keys 0 to 30
    const Inspection found = inspect(poisoned, k, pooled, options);
    for (std::int64_t i = 0; i < 200; ++i) {
      for (const auto& [got, wanted_of_row] : {std::pair{&found.entropy, &clean.entropy},
                                               {&found.max_weight, &clean.max_weight},
                                               {&found.distance, &clean.distance}})
        ASSERT_TRUE(i == 30 ? std::isnan(got->at<float>(i)) : got->at<float>(i) == wanted_of_row->at<float>(i))
            << i;
      ASSERT_EQ(found.top_keys.at<std::int64_t>(i, 0), i == 30 ? -1 : clean.top_keys.at<std::int64_t>(i, 0)) << i;
      ASSERT_EQ(std::isnan(found.top_weights.at<float>(i, 0)), i == 30) << i;
    }
    for (std::int64_t j = 0; j < 300; ++j) {
      ASSERT_TRUE(j <= 30 ? std::isnan(found.received.at<float>(j))
                          : found.received.at<float>(j) == clean.received.at<float>(j))
          << j;
      ASSERT_EQ(found.rows.at<float>(0, j), clean.rows.at<float>(0, j)) << j;
      ASSERT_EQ(std::isnan(found.rows.at<float>(1, j)), j <= 30) << j;
    }
    for (std::int64_t row = 0; row < 20; ++row)
      for (std::int64_t cell = 0; cell < 30; ++cell)
        ASSERT_TRUE(row == 3 && cell <= 3 ? std::isnan(found.pooled.at<float>(row, cell))
                                          : found.pooled.at<float>(row, cell) == clean.pooled.at<float>(row, cell))
            << row << ' ' << cell;
  }
}

TEST_P(InspectOnIsa, HiddenNanAndInfGoNowhere) {
  const Tensor q = random_tensor({60, 64}, 1);
  Tensor k = random_tensor({300, 64}, 2), mask(DType::boolean, {300});
  for (std::int64_t j = 0; j < 300; ++j) mask.at<bool>(j) = j % 7 != 3;
  InspectOptions wanted = kEverything;
  wanted.rows = {59, 4};
  const Inspection clean = inspect(q, k, wanted, {.mask = mask});
  for (const float poison : {kNan, kInf, -kInf}) {
    for (std::int64_t j = 3; j < 300; j += 7) k.at<float>(j, 5) = poison;
    EXPECT_TRUE(same_inspection(inspect(q, k, wanted, {.mask = mask}), clean)) << poison;
  }
}

/// Multiplies every `step`-th row of a matrix, from row 1 on, by `factor`.
void scale_rows(Tensor& matrix, std::int64_t step, double factor) {
  for (std::int64_t i = 1; i < matrix.shape(0); i += step)
    for (std::int64_t d = 0; d < matrix.shape(1); ++d) matrix.at<float>(i, d) *= static_cast<float>(factor);
}

TEST_P(InspectOnIsa, AgreesForTinyAndHugeNumbersOfEveryType) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const bool is_f16 = dtype == DType::f16;
    for (const double factor : {is_f16 ? 1e-6 : 1e-36, is_f16 ? 300.0 : 1e12, 1.0}) {
      Tensor q = random_tensor({150, 70}, 1), k = random_tensor({290, 70}, 2);
      scale_rows(q, 31, factor);
      scale_rows(k, 37, factor);
      const Tensor rows = Tensor::copy_of(q, dtype), keys = Tensor::copy_of(k, dtype);
      InspectOptions wanted = kEverything;
      wanted.rows = {1, 149, 33};
      SCOPED_TRACE(std::string(name_of(dtype)) + " times " + std::to_string(factor));
      check(rows, keys, wanted, {.causal = Causal::bottom_right, .window_left = 250});
      check(rows, keys, wanted, {.softcap = 20.0});
    }
  }
}

TEST_P(InspectOnIsa, OtherRowsKeepTheirBitsBesideNumbersThatAreNotFinite) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    Tensor q = random_tensor({150, 70}, 1), k = random_tensor({290, 70}, 2);
    InspectOptions wanted{.entropy = true, .max_weight = true, .distance = true};
    const AttentionOptions options{.causal = Causal::top_left};
    const Inspection clean = inspect(Tensor::copy_of(q, dtype), Tensor::copy_of(k, dtype), wanted, options);
    q.at<float>(40, 69) = kInf;
    k.at<float>(100, 3) = kNan;
    const Inspection found = inspect(Tensor::copy_of(q, dtype), Tensor::copy_of(k, dtype), wanted, options);
    for (std::int64_t i = 0; i < 150; ++i) {
      const bool is_nan = i == 40 || i >= 100;
      ASSERT_EQ(std::isnan(found.entropy.at<float>(i)), is_nan) << name_of(dtype) << ' ' << i;
      ASSERT_EQ(std::isnan(found.distance.at<float>(i)), is_nan) << name_of(dtype) << ' ' << i;
      if (is_nan) continue;
      ASSERT_EQ(found.entropy.at<float>(i), clean.entropy.at<float>(i)) << name_of(dtype) << ' ' << i;
      ASSERT_EQ(found.max_weight.at<float>(i), clean.max_weight.at<float>(i)) << name_of(dtype) << ' ' << i;
      ASSERT_EQ(found.distance.at<float>(i), clean.distance.at<float>(i)) << name_of(dtype) << ' ' << i;
    }
  }
}

TEST_P(InspectOnIsa, ARowThatSeesNothingIsZero) {
  const Tensor q = random_tensor({5, 16}, 1), k = random_tensor({40, 16}, 2), sinks = Tensor::of<float>({0.5f});
  for (const bool with_sink : {false, true}) {
    AttentionOptions options{.causal = Causal::top_left, .query_offset = -3};
    if (with_sink) options.sinks = sinks;
    const Inspection found = inspect(
        q, k, {.rows = {0}, .top_k = 1, .entropy = true, .max_weight = true, .received = true, .distance = true},
        options);
    for (std::int64_t row = 0; row < 3; ++row) {
      EXPECT_EQ(found.entropy.at<float>(row), 0.0f);
      EXPECT_EQ(found.max_weight.at<float>(row), 0.0f);
      EXPECT_EQ(found.distance.at<float>(row), 0.0f);
      EXPECT_EQ(found.top_keys.at<std::int64_t>(row, 0), -1);
    }
    for (const float w : found.rows.values<float>()) EXPECT_EQ(w, 0.0f);
    for (std::int64_t j = 0; j < 40; ++j) EXPECT_EQ(found.received.at<float>(j) != 0.0f, j < 2);
  }
}

TEST_P(InspectOnIsa, RowsWhoseWeightsAllVanishCountForNoMean) {
  Tensor q(DType::f32, {4, 1}), k(DType::f32, {2, 1}), sink(DType::f32, {1});
  k.at<float>(1, 0) = 1.0F;
  sink.at<float>(0) = 150.0F;
  q.at<float>(2, 0) = q.at<float>(3, 0) = 400.0F;  // their weight of key 1 is 1, those of rows 0 and 1 are e^-150
  const Inspection found = inspect(q, k, {.max_weight = true, .distance = true}, {.scale = 1.0, .sinks = sink});
  for (std::int64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(found.max_weight.at<float>(i), i < 2 ? 0.0F : 1.0F);
    EXPECT_EQ(found.distance.at<float>(i), i < 2 ? 0.0F : static_cast<float>(i - 1));
  }
  EXPECT_EQ(found.mean_distance.at<float>(0), 1.5F);
}

TEST_P(InspectOnIsa, EmptyInputsAreNoErrors) {
  InspectOptions wanted = kEverything;
  wanted.rows = {};
  const Inspection no_rows = inspect(Tensor(DType::f32, {2, 0, 4}), Tensor(DType::f32, {2, 3, 4}), wanted);
  EXPECT_EQ(no_rows.top_keys.shape(), (Shape{2, 0, 5}));
  EXPECT_EQ(no_rows.received.shape(), (Shape{2, 3}));
  for (const float x : no_rows.received.values<float>()) EXPECT_EQ(x, 0.0f);
  const Inspection no_keys = inspect(random_tensor({3, 4}, 1), Tensor(DType::f32, {0, 4}), wanted);
  for (const float x : no_keys.entropy.values<float>()) EXPECT_EQ(x, 0.0f);
  for (const float x : no_keys.pooled.values<float>()) EXPECT_EQ(x, 0.0f);
  for (const std::int64_t key : no_keys.top_keys.values<std::int64_t>()) EXPECT_EQ(key, -1);
  EXPECT_EQ(inspect(Tensor(DType::f32, {0, 2, 3, 4}), Tensor(DType::f32, {0, 2, 3, 4}), wanted).pooled.size(), 0);
}

TEST_P(InspectOnIsa, KeepsSmallSumsOverManyRowsExact) {
  // Every one of many rows gives each of two keys half its weight: the sum is exact only in more than single
  // precision.
  const std::int64_t rows = 200'000;
  const Tensor q(DType::f32, {rows, 1}), k(DType::f32, {3, 1});
  const Inspection found = inspect(q, k, {.received = true, .pool_rows = 1, .pool_keys = 3});
  Tensor received(DType::f64, {3}), pooled(DType::f64, {1, 3});
  for (double& x : received.values<double>()) x = static_cast<double>(rows) / 3.0;
  for (double& x : pooled.values<double>()) x = 1.0 / 3.0;
  expect_close(found.received, {received, received});
  expect_close(found.pooled, {pooled, pooled});
}

TEST_P(InspectOnIsa, FindsInAPackedBatchWhatItFindsInItsDocuments) {
  const Tensor q = random_tensor({150, 2, 16}, 1), k = random_tensor({300, 2, 16}, 2);
  const Tensor begins_q = Tensor::of<std::int64_t>({0, 110, 110, 150});
  const Tensor begins_k = Tensor::of<std::int64_t>({0, 270, 280, 300});
  const InspectOptions wanted{
      .top_k = 2, .entropy = true, .received = true, .distance = true, .pool_rows = 7, .pool_keys = 9};
  const Inspection all = inspect(q, k, wanted, {.cu_seqlens_q = begins_q, .cu_seqlens_k = begins_k});
  EXPECT_EQ(all.top_keys.shape(), (Shape{2, 150, 2}));
  EXPECT_EQ(all.entropy.shape(), (Shape{2, 150}));
  EXPECT_EQ(all.received.shape(), (Shape{2, 300}));
  EXPECT_EQ(all.mean_distance.shape(), (Shape{3, 2}));
  EXPECT_EQ(all.pooled.shape(), (Shape{3, 2, 7, 9}));
  for (const std::int64_t document : {0, 2}) {
    const std::int64_t row = begins_q.at<std::int64_t>(document), end = begins_q.at<std::int64_t>(document + 1);
    const std::int64_t key = begins_k.at<std::int64_t>(document),
                       keys_end = begins_k.at<std::int64_t>(document + 1);
    const Inspection one =
        inspect(q.view().slice(0, row, end), k.view().slice(0, key, keys_end), wanted, {.layout = Layout::bshd});
    EXPECT_TRUE(same_bits(Tensor::copy_of(all.top_keys.view().slice(1, row, end)), one.top_keys));
    EXPECT_TRUE(same_bits(Tensor::copy_of(all.entropy.view().slice(1, row, end)), one.entropy));
    EXPECT_TRUE(same_bits(Tensor::copy_of(all.received.view().slice(1, key, keys_end)), one.received));
    EXPECT_TRUE(same_bits(Tensor::copy_of(all.mean_distance.view().select(0, document)), one.mean_distance));
    EXPECT_TRUE(same_bits(Tensor::copy_of(all.pooled.view().select(0, document)), one.pooled));
  }
}

TEST_P(InspectOnIsa, AScoreModifierMayThrow) {
  const Tensor q = random_tensor({1, 900, 16}, 1);
  const auto throws = [](void*, const ScoreTile& tile) {
    if (tile.first_row >= 192 && tile.first_row < 300) throw std::runtime_error("enough");
  };
  EXPECT_THROW(inspect(q, q, {.received = true}, {.score_modifier = throws, .num_threads = 3}),
               std::runtime_error);
}

std::string refusal(const Tensor& q, const Tensor& k, const InspectOptions& wanted,
                    const AttentionOptions& options = {}) {
  return test::refusal([&] { inspect(q, k, wanted, options); });
}

TEST(Inspect, RefusesWhatDoesNotFitAndSaysWhy) {
  const Tensor q(DType::f32, {2, 8, 16}), k(DType::f32, {2, 9, 16});
  EXPECT_EQ(refusal(q, k, {.rows = {3, 8}}), "[inspect] rows contains 8 but q has 8 rows");
  EXPECT_EQ(refusal(q, k, {.rows = {3, 1, 3}}), "[inspect] rows contains 3 twice");
  EXPECT_EQ(refusal(q, k, {.top_k = -1}), "[inspect] top_k must be 0 or more, got -1");
  const TensorView many(k.data(), DType::f32, Shape{2, (std::int64_t{1} << 32) + 1, 16}, Shape{0, 0, 1});
  EXPECT_EQ(test::refusal([&] { inspect(q, many, {.top_k = 1}); }),
            "[inspect] top_k finds the best of at most 4294967296 keys, got 4294967297");
  EXPECT_EQ(refusal(q, k, {.index_dtype = DType::u8}), "[inspect] index_dtype must be i32 or i64, but it is u8");
  EXPECT_EQ(refusal(q, k, {.pool_rows = 4}),
            "[inspect] pool_rows and pool_keys must both be 0 or both be above, got 4 and 0");
  EXPECT_EQ(refusal(q, k, {.pool_rows = 4, .pool_keys = 1 << 21}),
            "[inspect] pool_rows and pool_keys must be at most 1048576, got 4 and 2097152");
  EXPECT_EQ(refusal(q, Tensor(DType::f32, {9, 16}), {}),
            "[inspect] q and k must have the same rank, but they have shapes [2, 8, 16] and [9, 16]");
  EXPECT_EQ(refusal(q, Tensor(DType::f32, {2, 9, 15}), {}), "[inspect] k has head_dim 15 but q has 16");
  Tensor lse(DType::f32, {2, 8}), wrong(DType::f32, {2, 9}), weights(DType::f32, {2, 8, 9});
  EXPECT_EQ(refusal(q, k, {.lse = wrong}), "[inspect] lse must have shape [2, 8], but it has shape [2, 9]");
  EXPECT_EQ(refusal(q, k, {.lse = lse}, {.lse = lse}),
            "[inspect] lse was given both as an input and as an output");
  EXPECT_EQ(refusal(q, k, {}, {.weights = weights}), "[inspect] weights was given: attention() writes them");
}

}  // namespace
}  // namespace saccade::test
