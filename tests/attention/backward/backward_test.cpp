// attention_backward(), in addition to the random problems of backward_sweep_test.cpp: threads, modifiers, hidden
// keys, and rejected arguments.
#include "saccade/backward.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "cases/gradient_case.h"
#include "cases/random_case.h"
#include "saccade/reference.h"
#include "support/each_isa.h"
#include "support/environment.h"
#include "support/expect_close.h"
#include "support/refusal.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

/// A problem with the results of the forward pass and space for the gradients.
struct Problem {
  Tensor q, k, v, dout;
  AttentionOptions options{};
  Tensor o{}, lse{}, dq{}, dk{}, dv{};

  void run() {
    o = Tensor(DType::f32, dout.shape());
    lse = Tensor(DType::f32, Shape(q.shape().begin(), q.shape().end() - 1));
    options.lse = lse;
    attention(q, k, v, o, options);
    dq = Tensor(DType::f32, q.shape());
    dk = Tensor(DType::f32, k.shape());
    dv = Tensor(DType::f32, v.shape());
    backward();
  }
  void backward() {
    attention_backward(q, k, v, {.o = o, .lse = lse, .dout = dout}, {.dq = dq, .dk = dk, .dv = dv}, options);
  }
  void expect_reference() const {
    const auto exact = reference::attention_backward(q, k, v, dout, options);
    const auto naive = reference::naive_attention_backward(q, k, v, dout, options, exact.gradients);
    expect_close(dq, {exact.gradients.dq, naive.dq, exact.bound.dq}, kGradient);
    expect_close(dk, {exact.gradients.dk, naive.dk, exact.bound.dk}, kGradient);
    expect_close(dv, {exact.gradients.dv, naive.dv, exact.bound.dv}, kGradient);
  }
};

Problem plain(std::int64_t seqlen_q = 300, std::int64_t seqlen_k = 520) {
  return {.q = random_tensor({1, 4, seqlen_q, 24}, 1),
          .k = random_tensor({1, 2, seqlen_k, 24}, 2),
          .v = random_tensor({1, 2, seqlen_k, 40}, 3),
          .dout = random_tensor({1, 4, seqlen_q, 40}, 4)};
}

TEST(Backward, HasTheSameBitsForAnyNumberOfThreads) {
  std::uint64_t seen = 0;
  for (std::uint64_t seed = 500; seen < fewer_if_slow(40); ++seed) {
    cases::AttentionCase problem = cases::draw_case(seed);
    if (!cases::has_gradients(problem)) continue;
    ++seen;
    problem.options.num_threads = 1;
    cases::CheckedGradients alone(problem, seed);
    alone.run();
    for (const int threads : {2, 3, 7}) {
      problem.options.num_threads = threads;
      cases::CheckedGradients together(problem, seed);
      together.run();
      const std::vector<Tensor> expected = alone.results(), found = together.results();
      for (std::size_t i = 0; i < found.size(); ++i)
        EXPECT_TRUE(same_bits(found[i], expected[i])) << "gradient " << i << ", " << cases::describe(problem);
    }
  }
}

TEST(Backward, SpreadsOneHeadOverThreadsWithTheSameBits) {
  Problem p{.q = random_tensor({1200, 64}, 1),
            .k = random_tensor({1500, 64}, 2),
            .v = random_tensor({1500, 64}, 3),
            .dout = random_tensor({1200, 64}, 4)};
  p.options.causal = Causal::bottom_right;
  p.options.num_threads = 1;
  p.run();
  const Tensor dq = p.dq, dk = p.dk, dv = p.dv;
  for (int repetition = 0; repetition < 5; ++repetition) {
    p.options.num_threads = 2 + repetition;
    p.backward();
    EXPECT_TRUE(same_bits(p.dq, dq) && same_bits(p.dk, dk) && same_bits(p.dv, dv)) << p.options.num_threads;
  }
}

/// Its derivative depends on the score.
void bend(void*, const ScoreTile& tile) {
  const auto bend_rows = [&](auto number) {
    using T = decltype(number);
    for (std::int64_t i = 0; i < tile.rows; ++i)
      for (std::int64_t j = 0; j < tile.keys; ++j) tile.row<T>(i)[j] += std::sin(tile.row<T>(i)[j]) / 2;
  };
  tile.dtype == DType::f64 ? bend_rows(double{}) : bend_rows(float{});
}
void bend_backward(void*, const ScoreTile& scores, const ScoreTile& gradients) {
  const auto bend_rows = [&](auto number) {
    using T = decltype(number);
    for (std::int64_t i = 0; i < scores.rows; ++i)
      for (std::int64_t j = 0; j < scores.keys; ++j)
        gradients.row<T>(i)[j] *= 1 + std::cos(scores.row<T>(i)[j]) / 2;
  };
  scores.dtype == DType::f64 ? bend_rows(double{}) : bend_rows(float{});
}

class BackwardOnIsa : public EachIsa {};
SACCADE_FOR_EACH_ISA(BackwardOnIsa);

TEST_P(BackwardOnIsa, AsksTheModifiersOwnDerivative) {
  for (const double softcap : {0.0, 3.0}) {
    Problem p = plain(70, 300);
    p.options.score_modifier = bend;
    p.options.score_modifier_backward = bend_backward;
    p.options.softcap = softcap;
    p.options.causal = Causal::bottom_right;
    p.run();
    p.expect_reference();
  }
}

/// Most blocks of keys run ahead of the first, whose sums come first.
TEST_P(BackwardOnIsa, SharesHeadsAmongManyThreadsWithTheSameBits) {
  for (const DType type : {DType::f32, DType::bf16}) {  // of k, which is converted or not
    Problem p{.q = random_tensor({2, 1100, 32}, 1),
              .k = random_tensor({2, 1100, 32}, 2, type),
              .v = random_tensor({2, 1100, 32}, 3, type),
              .dout = random_tensor({2, 1100, 32}, 4)};
    p.options.causal = Causal::top_left;
    p.options.num_threads = 1;
    p.run();
    const Tensor dq = p.dq, dk = p.dk, dv = p.dv;
    for (const int threads : {3, 8, 24}) {
      p.options.num_threads = threads;
      p.backward();
      EXPECT_TRUE(same_bits(p.dq, dq) && same_bits(p.dk, dk) && same_bits(p.dv, dv)) << threads << name_of(type);
    }
  }
}

TEST(Backward, PassesOnWhatAModifierThrows) {
  Problem p = plain();
  p.run();
  p.options.num_threads = 2;
  p.options.score_modifier = [](void*, const ScoreTile& tile) {
    if (tile.first_row > 100) throw std::runtime_error("no");
  };
  EXPECT_THROW(p.backward(), std::runtime_error);
}

TEST_P(BackwardOnIsa, HiddenNumbersGoNowhere) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Problem p = plain(300, 300);
  p.options.causal = Causal::top_left;
  p.run();
  const Tensor dq = p.dq, dk = p.dk, dv = p.dv;
  // Row 200 is NaN, which may affect keys up to 200 only. Key 250 is NaN: rows from 250 on see it.
  for (std::int64_t d = 0; d < 24; ++d) p.q.at<float>(0, 0, 200, d) = nan;
  for (std::int64_t d = 0; d < 24; ++d) p.k.at<float>(0, 0, 250, d) = nan;
  p.run();
  for (std::int64_t i = 0; i < 300; ++i) {
    for (std::int64_t d = 0; d < 24; ++d) {
      const bool row_is_nan = i == 200 || i >= 250;
      EXPECT_EQ(std::isnan(p.dq.at<float>(0, 0, i, d)), row_is_nan) << i;
      // All heads of the group share the key; rows from 250 on are NaN in both, and see every key before them.
      EXPECT_TRUE(std::isnan(p.dk.at<float>(0, 0, i, d))) << i;
      EXPECT_EQ(p.dk.at<float>(0, 1, i, d), dk.at<float>(0, 1, i, d));
      EXPECT_EQ(p.dq.at<float>(0, 3, i, d), dq.at<float>(0, 3, i, d));
    }
  }
  p.expect_reference();
}

TEST(Backward, RowsAndKeysWithoutEachOtherHaveNone) {
  Problem p = plain(20, 30);
  const Tensor lengths = Tensor::of<std::int64_t>({10});
  p.options.kv_lengths = lengths;
  p.options.query_offset = -5;
  p.options.causal = Causal::top_left;
  p.run();
  for (std::int64_t d = 0; d < 24; ++d) {
    EXPECT_EQ(p.dq.at<float>(0, 0, 4, d), 0.0F);
    EXPECT_NE(p.dq.at<float>(0, 0, 6, d), 0.0F);
    EXPECT_EQ(p.dk.at<float>(0, 0, 10, d), 0.0F);
    EXPECT_NE(p.dk.at<float>(0, 0, 9, d), 0.0F);
  }
  p.expect_reference();
}

TEST(Backward, OfNothingIsNothing) {
  for (const auto& [rows, keys] : {std::pair{0, 7}, {7, 0}, {0, 0}}) {
    Problem p = plain(rows, keys);
    p.run();
    for (const Tensor* gradient : {&p.dq, &p.dk, &p.dv})
      for (const float x : gradient->values<float>()) EXPECT_EQ(x, 0.0F);
  }
}

TEST(Backward, WithoutKeysTheGradientOfLseIsThatOfTheSinks) {
  Problem p = plain(7, 0);
  const Tensor sinks = random_tensor({4}, 5), dlse = random_tensor({1, 4, 7}, 6);
  p.options.sinks = sinks;
  p.run();
  Tensor dsinks(DType::f32, {4});
  attention_backward(p.q, p.k, p.v, {.o = p.o, .lse = p.lse, .dout = p.dout, .dlse = dlse},
                     {.dq = p.dq, .dk = p.dk, .dv = p.dv, .dsinks = dsinks}, p.options);
  for (std::int64_t head = 0; head < 4; ++head) {
    double sum = 0.0;
    for (std::int64_t i = 0; i < 7; ++i) sum += static_cast<double>(dlse.at<float>(0, head, i));
    EXPECT_EQ(dsinks.at<float>(head), static_cast<float>(sum));
  }
}

TEST(Backward, RefusesWhatDoesNotFitAndSaysWhy) {
  Problem p = plain(20, 30);
  p.run();
  const AttentionOutcome outcome{.o = p.o, .lse = p.lse, .dout = p.dout};
  const AttentionGradients gradients{.dq = p.dq, .dk = p.dk, .dv = p.dv};
  const auto refusal = [&](const AttentionOutcome& given, const AttentionGradients& wanted,
                           const AttentionOptions& options = {}) -> std::string {
    return test::refusal([&] { attention_backward(p.q, p.k, p.v, given, wanted, options); });
  };
  const auto with = [](auto base, const auto& change) {
    change(base);
    return base;
  };
  EXPECT_EQ(refusal(outcome, gradients), "");
  EXPECT_EQ(refusal(with(outcome, [](auto& x) { x.lse = {}; }), gradients),
            "[attention_backward] lse must be given: attention() writes it");
  EXPECT_EQ(refusal(with(outcome, [&](auto& x) { x.dout = p.q; }), gradients),
            "[attention_backward] dout must have the shape of o, [1, 4, 20, 40], but it has shape [1, 4, 20, 24]");
  EXPECT_EQ(refusal(with(outcome, [&](auto& x) { x.dlse = p.dout; }), gradients),
            "[attention_backward] dlse must have shape [1, 4, 20], but it has shape [1, 4, 20, 40]");
  EXPECT_EQ(refusal(outcome, with(gradients, [&](auto& x) { x.dk = p.dv; })),
            "[attention_backward] dk must have the shape of k, [1, 2, 30, 24], but it has shape [1, 2, 30, 40]");
  Tensor doubles(DType::f64, p.q.shape()), sinks(DType::f32, {4});
  EXPECT_EQ(refusal(outcome, with(gradients, [&](auto& x) { x.dq = doubles; })),
            "[attention_backward] dq must be f32, bf16 or f16, but it is f64");
  EXPECT_EQ(refusal(outcome, with(gradients, [&](auto& x) { x.dsinks = sinks; })),
            "[attention_backward] dsinks was given without sinks");
  const Tensor mask(DType::boolean, {20, 30});
  Tensor dmask(DType::f32, {20, 30});
  EXPECT_EQ(refusal(outcome, with(gradients, [&](auto& x) { x.dmask = dmask; }), {.mask = mask}),
            "[attention_backward] dmask was given but mask is bool");
}

}  // namespace
}  // namespace saccade::test
