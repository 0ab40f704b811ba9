// attention() against the f64 reference, on every instruction set of the machine.
#include "saccade/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#ifndef _WIN32
#include <sys/wait.h>
#include <unistd.h>
#endif

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <thread>

#include "cases/scattered_tensor.h"
#include "saccade/reference.h"
#include "support/each_isa.h"
#include "support/expect_close.h"
#include "support/refusal.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

class AttentionOnIsa : public EachIsa {};
SACCADE_FOR_EACH_ISA(AttentionOnIsa);

TEST_P(AttentionOnIsa, AgreesAtEveryHeadDim) {
  for (std::int64_t dim = 1; dim <= 130; ++dim) {
    const Tensor q = random_tensor({5, dim}, 1), k = random_tensor({37, dim}, 2), v = random_tensor({37, dim}, 3);
    const auto reference = reference::attention(q, k, v),
               naive = reference::naive_attention(q, k, v, {}, reference);
    EXPECT_TRUE(is_close(attention(q, k, v), {reference.o, naive.o, reference.bound})) << "head_dim " << dim;
  }
}

TEST_P(AttentionOnIsa, AgreesAtEverySeqlen) {
  for (std::int64_t seqlen = 1; seqlen <= 130; ++seqlen) {
    const Tensor q = random_tensor({seqlen, 20}, 1), k = random_tensor({seqlen, 20}, 2),
                 v = random_tensor({seqlen, 18}, 3);
    const AttentionOptions options{.causal = Causal::top_left};
    const auto reference = reference::attention(q, k, v, options);
    const auto naive = reference::naive_attention(q, k, v, options, reference);
    EXPECT_TRUE(is_close(attention(q, k, v, options), {reference.o, naive.o, reference.bound}))
        << "seqlen " << seqlen;
  }
}

TEST_P(AttentionOnIsa, HasTheSameBitsForAnyNumberOfThreads) {
  for (const Shape& shape :
       {Shape{1, 1, 700, 64}, Shape{2, 3, 200, 40}, Shape{40, 2, 30, 16}, Shape{600, 4, 6, 4}}) {
    const Tensor q = random_tensor(shape, 1), k = random_tensor(shape, 2), v = random_tensor(shape, 3);
    const Tensor expected = attention(q, k, v, {.num_threads = 1});
    for (int threads : {2, 3, 7})
      EXPECT_TRUE(same_bits(attention(q, k, v, {.num_threads = threads}), expected)) << threads;
  }
}

TEST_P(AttentionOnIsa, HasTheSameBitsForAnyBatchAroundARow) {
  const Tensor q = random_tensor({3, 4, 211, 48}, 1), k = random_tensor({3, 2, 290, 48}, 2),
               v = random_tensor({3, 2, 290, 33}, 3);
  const Tensor mask = random_tensor({211, 290}, 4);
  for (const AttentionOptions& options :
       {AttentionOptions{}, AttentionOptions{.causal = Causal::top_left, .query_offset = 79},
        AttentionOptions{.softcap = 3.0, .query_offset = 60, .window_left = 50, .window_right = 9},
        AttentionOptions{.mask = mask}}) {
    const Tensor all = attention(q, k, v, options);
    for (std::int64_t batch = 0; batch < 3; ++batch) {
      for (std::int64_t head = 0; head < 4; ++head) {
        for (std::int64_t row : {0, 1, 95, 96, 100, 210}) {
          AttentionOptions alone = options;
          alone.query_offset = row + options.query_offset.value_or(0);
          if (options.mask) alone.mask = mask.view().slice(0, row, row + 1);
          const Tensor one = attention(q.view().select(0, batch).select(0, head).slice(0, row, row + 1),
                                       k.view().select(0, batch).select(0, head / 2),
                                       v.view().select(0, batch).select(0, head / 2), alone);
          const Tensor same = Tensor::copy_of(all.view().select(0, batch).select(0, head).slice(0, row, row + 1));
          ASSERT_TRUE(same_bits(one, same)) << "batch " << batch << " head " << head << " row " << row;
        }
      }
    }
  }
}

TEST_P(AttentionOnIsa, ARowThatSeesNothingIsZero) {
  const Tensor q = random_tensor({5, 16}, 1), k = random_tensor({40, 16}, 2), v = random_tensor({40, 16}, 3);
  Tensor lse(DType::f32, {5}), weights(DType::f32, {5, 40});
  const Tensor out =
      attention(q, k, v, {.causal = Causal::top_left, .query_offset = -3, .lse = lse, .weights = weights});
  for (std::int64_t row = 0; row < 5; ++row) {
    EXPECT_EQ(lse.at<float>(row) == -kInf, row < 3) << row;
    for (std::int64_t d = 0; d < 16; ++d) EXPECT_EQ(out.at<float>(row, d) == 0.0f, row < 3) << row;
    for (std::int64_t j = 0; j < 40; ++j) EXPECT_EQ(weights.at<float>(row, j) != 0.0f, row >= 3 && j <= row - 3);
  }
}

TEST_P(AttentionOnIsa, ASinkAloneIsTheWholeDenominator) {
  const Tensor q = random_tensor({1, 2, 16}, 1), k = random_tensor({1, 40, 16}, 2),
               v = random_tensor({1, 40, 16}, 3);
  const Tensor sinks = Tensor::of<float>({0.75f});
  Tensor lse(DType::f32, {1, 2});
  const Tensor out =
      attention(q, k, v, {.causal = Causal::top_left, .query_offset = -5, .sinks = sinks, .lse = lse});
  for (float x : out.values<float>()) EXPECT_EQ(x, 0.0f);
  for (float x : lse.values<float>()) EXPECT_EQ(x, 0.75f);
}

TEST_P(AttentionOnIsa, EmptyInputsAreNoErrors) {
  EXPECT_EQ(attention(Tensor(DType::f32, {0, 4}), Tensor(DType::f32, {3, 4}), Tensor(DType::f32, {3, 5})).shape(),
            (Shape{0, 5}));
  EXPECT_EQ(attention(Tensor(DType::f32, {0, 2, 3, 4}), Tensor(DType::f32, {0, 2, 3, 4}),
                      Tensor(DType::f32, {0, 2, 3, 4}))
                .size(),
            0);
  EXPECT_EQ(attention(Tensor(DType::f32, {2, 0, 3, 4}), Tensor(DType::f32, {2, 0, 3, 4}),
                      Tensor(DType::f32, {2, 0, 3, 4}))
                .size(),
            0);
  Tensor lse(DType::f32, {3});
  const Tensor no_keys =
      attention(random_tensor({3, 40}, 1), Tensor(DType::f32, {0, 40}), Tensor(DType::f32, {0, 7}), {.lse = lse});
  for (float x : no_keys.values<float>()) EXPECT_EQ(x, 0.0f);
  for (float x : lse.values<float>()) EXPECT_EQ(x, -kInf);
  const Tensor small = attention(random_tensor({3, 4}, 1), Tensor(DType::f32, {0, 4}), Tensor(DType::f32, {0, 4}));
  for (float x : small.values<float>()) EXPECT_EQ(x, 0.0f);
}

TEST_P(AttentionOnIsa, WritesNothingBetweenTheRowsOfItsOutput) {
  for (std::int64_t keys : {6, 20}) {
    cases::ScatteredTensor o(DType::f32, {2, 9, 5}, {0, 1}, 3);
    const Tensor q = random_tensor({2, 9, 5}, 1), k = random_tensor({2, keys, 5}, 2),
                 v = random_tensor({2, keys, 5}, 3);
    attention(q, k, v, o.view());
    EXPECT_EQ(o.written(), 2 * 9 * 5) << keys;
  }
}

TEST_P(AttentionOnIsa, SmallProblemsHaveTheBitsOfTheTiledPath) {
  for (std::int64_t keys = 1; keys <= 16; ++keys) {
    for (std::int64_t dim : {1, 2, 3, 4, 7, 16, 33, 64}) {
      const Tensor q = random_tensor({2, 9, dim}, 1), k = random_tensor({2, keys, dim}, 2),
                   v = random_tensor({2, keys, dim}, 3);
      const Tensor small = attention(q, k, v);
      // The small path accepts no options; these two end the rows of the tiled path in different ways.
      const Tensor lengths = Tensor::of<std::int64_t>({keys});
      Tensor lse(DType::f32, {2, 9});
      EXPECT_TRUE(same_bits(attention(q, k, v, {.kv_lengths = lengths}), small)) << keys << " keys of " << dim;
      EXPECT_TRUE(same_bits(attention(q, k, v, {.lse = lse}), small)) << keys << " keys of " << dim;
    }
  }
}

TEST_P(AttentionOnIsa, SmallProblemsOfManyRowsAndHeadsHaveThemToo) {
  const Tensor k = random_tensor({2, 3, 9, 40}, 2), v = random_tensor({2, 3, 9, 35}, 3);
  for (std::int64_t rows : {7, 1003}) {
    const Tensor q = random_tensor({2, 6, rows, 40}, 1);
    Tensor lse(DType::f32, {2, 6, rows});
    const Tensor tiled = attention(q, k, v, {.lse = lse});
    for (int threads : {1, 3})
      EXPECT_TRUE(same_bits(attention(q, k, v, {.num_threads = threads}), tiled)) << rows << " rows, " << threads;
  }
}

TEST_P(AttentionOnIsa, SixteenThreadsMayCallAtOnce) {
  const Tensor q = random_tensor({2, 3, 150, 32}, 1), k = random_tensor({2, 3, 150, 32}, 2),
               v = random_tensor({2, 3, 150, 32}, 3);
  const AttentionOptions options{.causal = Causal::top_left, .num_threads = 2};
  const Tensor expected = attention(q, k, v, options);
  std::vector<int> wrong(16, 0);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < wrong.size(); ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) wrong[t] += !same_bits(attention(q, k, v, options), expected);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(16, 0));
}

#ifndef _WIN32  // which has no fork()
TEST_P(AttentionOnIsa, WorksInTheChildOfAFork) {
#ifdef SACCADE_EMULATED
  GTEST_SKIP() << "qemu cannot start threads in the child of a fork";
#endif
  const Tensor q = random_tensor({2, 3, 200, 32}, 1), k = random_tensor({2, 3, 200, 32}, 2),
               v = random_tensor({2, 3, 200, 32}, 3);
  const Tensor expected = attention(q, k, v, {.num_threads = 2});
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(60);  // ends a child that hangs, which the parent detects
    _exit(same_bits(attention(q, k, v, {.num_threads = 2}), expected) ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
  EXPECT_TRUE(same_bits(attention(q, k, v, {.num_threads = 2}), expected));
}
#endif

TEST(Attention, RefusesWhatDoesNotFitAndSaysWhy) {
  const auto t = [](Shape shape) { return Tensor(DType::f32, std::move(shape)); };
  const Tensor q = t({2, 4, 8, 64}), k = t({2, 2, 9, 64});
  Tensor o = t({2, 4, 8, 64});
  const auto run = [&](const Tensor& qq, const Tensor& kk, const Tensor& vv, AttentionOptions options = {}) {
    return refusal([&] { attention(qq, kk, vv, o, options); });
  };
  EXPECT_EQ(run(q, t({2, 2, 9, 32}), k), "[attention] k has head_dim 32 but q has 64");
  EXPECT_EQ(run(q, k, t({2, 2, 7, 64})), "[attention] v has seqlen 7 but k has 9");
  EXPECT_EQ(run(q, k, t({2, 1, 9, 64})), "[attention] v has heads 1 but k has 2");
  EXPECT_EQ(run(q, t({1, 2, 9, 64}), k), "[attention] k has batch 1 but q has 2");
  EXPECT_EQ(run(q, t({2, 3, 9, 64}), t({2, 3, 9, 64})),
            "[attention] q has 4 heads, which is no multiple of the 3 heads of k");
  EXPECT_EQ(run(q, k, t({2, 2, 9, 63})), "[attention] o has head_dim_v 64 but v has 63");
  EXPECT_THAT(run(q, k, t({9, 64})), ::testing::HasSubstr("must have the same rank"));
  EXPECT_EQ(run(q, k, Tensor(DType::f64, {2, 2, 9, 64})),
            "[attention] q, k, v and o must all be f64 or none, but they are f32, f32, f64 and f32");
  EXPECT_EQ(run(q, k, k, {.softcap = -1.0}), "[attention] softcap must be 0 (off) or a positive number, got -1");
  EXPECT_EQ(run(q, k, k, {.scale = kNan}), "[attention] scale must be a finite number, got nan");
  EXPECT_EQ(run(q, k, k, {.window_left = -2}), "[attention] window_left must be -1 (open) or at least 0, got -2");
  EXPECT_EQ(run(q, k, k, {.dropout_p = 1.0}), "[attention] dropout_p must be at least 0 and below 1, got 1");
  EXPECT_EQ(run(q, k, k, {.num_threads = -1}), "[attention] num_threads must be 0 or more, got -1");
  const Tensor mask = t({3, 9}), lengths = Tensor::of<std::int64_t>({3, 10});
  EXPECT_EQ(run(q, k, k, {.mask = mask}),
            "[attention] mask must broadcast to [batch, heads, seqlen_q, seqlen_k] = [2, 4, 8, 9], but it has "
            "shape [3, 9]");
  EXPECT_EQ(run(q, k, k, {.kv_lengths = lengths}),
            "[attention] kv_lengths must lie between 0 and seqlen_k = 9, but one is 10");
  EXPECT_EQ(
      run(q, k, k, {.query_offset = 1, .query_offsets = lengths}),
      "[attention] query_offset and query_offsets were both given; only one may be: each says at which position "
      "row 0 is");
  const Tensor far = Tensor::of<std::int64_t>({3, std::int64_t{1} << 61});
  EXPECT_EQ(run(q, k, k, {.query_offsets = far}),
            "[attention] query_offsets must be within 2^60 of 0, got 2305843009213693952");
  EXPECT_EQ(run(q, k, k, {.sinks = mask}), "[attention] sinks must have shape [4], but it has shape [3, 9]");
  Tensor lse = t({2, 4, 9});
  EXPECT_EQ(run(q, k, k, {.lse = lse}), "[attention] lse must have shape [2, 4, 8], but it has shape [2, 4, 9]");
  EXPECT_EQ(refusal([&] { attention(q.view().transposed(2, 3), k, k, o); }),
            "[attention] q must have a contiguous innermost dimension (stride 1), but its stride is 64");
  EXPECT_THAT(run(t({2, 4, 8, 0}), t({2, 2, 9, 0}), k), ::testing::HasSubstr("head_dim of at least 1"));
  const std::int32_t page = 0;
  const std::int64_t too_many[] = {2, std::int64_t{1} << 39}, steps[] = {0, 1};
  const Tensor fitting = Tensor::of<std::int64_t>({3, 9});
  EXPECT_EQ(run(q, k, k, {.kv_lengths = fitting, .block_table = TensorView(&page, DType::i32, too_many, steps)}),
            "[attention] block_table names 549755813888 pages of 9 keys, more than 2^40 keys");
  const float* nothing = nullptr;
  EXPECT_EQ(refusal([&] {
              attention(TensorView(nothing, {3, 4}), t({3, 4}), t({3, 4}));
            }),
            "[attention] q has shape [3, 4] but no data (null pointer)");
}

TEST(Isa, RefusesALevelThatTheMachineLacks) {
  EXPECT_EQ(available_isas().front(), Isa::scalar);
  EXPECT_THAT(refusal([] { set_active_isa(static_cast<Isa>(99)); }),
              ::testing::HasSubstr("this machine cannot run"));
}

TEST(Workspaces, CanBeReleasedAndComeBack) {
  const Tensor q = random_tensor({100, 64}, 1);
  const Tensor expected = attention(q, q, q);
  release_workspaces();
  EXPECT_TRUE(same_bits(attention(q, q, q), expected));
}

}  // namespace
}  // namespace saccade::test
