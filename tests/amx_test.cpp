// Forward attention of bf16 on AMX tiles, by the processor or in software: what only this level does. Everything
// else is tested on every instruction set.
#include <gtest/gtest.h>

#if defined(__x86_64__) && defined(__linux__)
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
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

struct Nested {
  const cases::AttentionCase* inner;
  static void call(void* context) {
    const cases::AttentionCase& c = *static_cast<Nested*>(context)->inner;
    attention(c.q.view(), c.k.view(), c.v.view(), {.num_threads = 1});
  }
  static void modifier(void* context, const ScoreTile&) { call(context); }
  static BlockEffect effect(void* context, const ScoreBlock&) {
    call(context);
    return BlockEffect::partial;
  }
};

TEST_F(Amx, AScoreModifierMayCallAttention) {
  const cases::AttentionCase inner = cases::draw_case(cases::parse_problem("s=40 d=32 dtype=bf16"), 1);
  Nested nested{&inner};
  for (const char* const shape : {"h=2 s=300 d=64 dtype=bf16", "h=1 s=300 d=128 dtype=bf16 causal=top_left"}) {
    cases::AttentionCase c = cases::draw_case(cases::parse_problem(shape), 1);
    c.options.score_context = &nested;
    c.options.score_modifier = Nested::modifier;
    expect_agreement(c);
    c.options.score_block_effect = Nested::effect;
    expect_agreement(c);
  }
}

/// Row 0's result where the scores of rows 0 and 1 are these functions of the key, and v is 1, or v40 for key 40.
float first_row(const std::function<float(std::int64_t)>& scores0,
                const std::function<float(std::int64_t)>& scores1, float v40) {
  constexpr std::int64_t kKeys = 400;
  Tensor q(DType::bf16, {2, 32}), k(DType::bf16, {kKeys, 32}), v(DType::bf16, {kKeys, 1}),
      mask(DType::f32, {2, kKeys});
  for (std::int64_t j = 0; j < kKeys; ++j) {
    mask.at<float>(0, j) = scores0(j);
    mask.at<float>(1, j) = scores1(j);
    v.at<bfloat16>(j, 0) = bfloat16(j == 40 ? v40 : j < 320 ? 1.0F : 2.0F);
  }
  return static_cast<float>(attention(q, k, v, {.mask = mask}).at<bfloat16>(0, 0));
}

TEST_F(Amx, RowsThatNeedRoomLeaveTheOthersAlone) {
  constexpr float kLn2 = 0.693147181F;
  const auto scores = [](std::int64_t j) { return j == 40 ? -90 * kLn2 : j >= 64 ? 20 * kLn2 : 0.0F; };
  const auto flat = [](std::int64_t) { return 0.0F; };
  const auto steep = [](std::int64_t j) { return j >= 64 ? 100.0F : 0.0F; };
  EXPECT_EQ(first_row(scores, steep, 0x1p127F), first_row(scores, flat, 0x1p127F));
}

TEST_F(Amx, TakesScoresNearTheLimitsOfFixedPoint) {
  const auto flat = [](std::int64_t) { return 0.0F; };
  const auto step = [](float low, float high) {
    return [low, high](std::int64_t j) { return j < 320 ? low : high; };
  };
  EXPECT_EQ(first_row(step(-2907240.0F, 2907240.0F), flat, 1), 2.0F);
  EXPECT_EQ(first_row(step(-1453620.0F, 1453620.0F), flat, 1), 2.0F);
  for (const float middle : {-2907270.0F, -1453635.0F, -726817.0F}) {
    const float found = first_row(step(middle - 0.25F, middle), flat, 1);
    set_active_isa(Isa::avx2);
    EXPECT_NEAR(found, first_row(step(middle - 0.25F, middle), flat, 1), 0.02) << middle;
    set_active_isa(Isa::avx512amx);
  }
}

TEST_F(Amx, TakesTinyValuesAndHugeScales) {
  Tensor q(DType::bf16, {4, 32}), k(DType::bf16, {70, 32}), v(DType::bf16, {70, 3});
  for (std::int64_t j = 0; j < 70; ++j)
    for (std::int64_t d = 0; d < 3; ++d) v.at<bfloat16>(j, d) = bfloat16(1.5e-30F);
  EXPECT_NEAR(static_cast<float>(attention(q, k, v).at<bfloat16>(3, 2)) * 1e30F, 1.5F, 0.02F);
  for (const double scale : {1e36, 1e37, 2e38})
    EXPECT_NEAR(static_cast<float>(attention(q, k, v, {.scale = scale}).at<bfloat16>(3, 2)) * 1e30F, 1.5F, 0.02F);
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

// ---- The processor's own tiles -------------------------------------------------------------------------------

#if defined(__x86_64__) && defined(__linux__)

/// The processor's extended state that is not in its initial state: bits 17 and 18 are AMX's.
std::uint64_t state_in_use() {
  std::uint32_t low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
  return low | std::uint64_t{high} << 32;
}

class AmxHardware : public Amx {
 protected:
  void SetUp() override {
    Amx::SetUp();
    if (is_emulated(Isa::avx512amx)) GTEST_SKIP() << "this processor has no AMX";
  }
  cases::AttentionCase problem_ = cases::draw_case(cases::parse_problem("h=4 s=300 d=64 dtype=bf16 lse"), 1);
  Tensor compute() { return attention(problem_.q.view(), problem_.k.view(), problem_.v.view(), problem_.options); }
};

TEST_F(AmxHardware, ReleasesTheTilesAfterEveryCall) {
  for (const int threads : {1, 4}) {
    problem_.options.num_threads = threads;
    compute();
    EXPECT_EQ(state_in_use() >> 17 & 3, 0U);
  }
}

TEST_F(AmxHardware, WorksInTheChildOfAFork) {
  const Tensor expected = compute();
  const pid_t child = fork();
  if (child == 0) _exit(same_bits(compute(), expected) ? 0 : 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

/// Makes the system refuse AMX to this process.
void refuse_amx() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_arch_prctl, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[0])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x1023, 0, 1),  // ARCH_REQ_XCOMP_PERM
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{.len = std::size(filter), .filter = filter};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) _exit(3);
}

// Runs everywhere: without AMX nothing changes. The child is a new program, because this one may have permission.
TEST(AmxPermission, IsNotNeeded) {
  const pid_t child = fork();
  if (child == 0) {
    refuse_amx();
    unsetenv("SACCADE_ISA");
    execl(SACCADE_COMMAND, SACCADE_COMMAND, "check", "--cases", "20", static_cast<char*>(nullptr));
    _exit(2);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

#endif

}  // namespace
}  // namespace saccade::test
