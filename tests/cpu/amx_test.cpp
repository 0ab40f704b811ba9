// Attention on AMX tiles, on the processor or in software: what is special to this level. Everything else is
// tested on every instruction set.
#include <gtest/gtest.h>

#ifdef __x86_64__
#include <cpuid.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "cases/attention_case.h"
#include "cases/problem.h"
#include "cases/random_case.h"
#include "saccade/attention.h"
#include "saccade/inspect.h"
#include "saccade/linear.h"
#include "saccade/runtime.h"
#include "support/each_isa.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

class Amx : public OnAmx<testing::Test> {};

/// Multiplies key j of every head by factor(j).
template <class Factor>
void scale_keys(cases::AttentionCase& c, const Factor& factor) {
  Tensor k = Tensor::copy_of(c.k.view(), DType::f32);
  for (std::int64_t b = 0; b < k.shape(0); ++b)
    for (std::int64_t h = 0; h < k.shape(1); ++h)
      for (std::int64_t j = 0; j < k.shape(2); ++j)
        for (std::int64_t d = 0; d < k.shape(3); ++d) k.at<float>(b, h, j, d) *= static_cast<float>(factor(j));
  copy(k, c.k.view());
}

void expect_agreement(cases::AttentionCase& c) {
  cases::CheckedCase checked(c);
  for (const auto& [result, comparison] : checked.run())
    EXPECT_TRUE(comparison.holds) << cases::describe(c) << ": " << result << ": " << to_string(comparison);
}

constexpr DType kTypes[] = {DType::bf16, DType::f16, DType::f32};

/// Problems of every type, all of which are computed on tiles.
std::vector<std::string> problems() {
  std::vector<std::string> all = {"h=2 s=33 d=16 dtype=bf16"};
  for (const DType dtype : kTypes)
    for (const std::string_view shape :
         {"h=2 s=600 d=64 lse", "h=2 s=600 d=64 dropout=0.3", "h=1 sq=70 sk=900 d=128 dv=40 lse",
          "h=2 s=600 d=40 causal=top_left", "h=2 s=300 d=160 dv=72 window=64,0 lse"})
      all.push_back(std::string(shape) + " dtype=" + std::string(name_of(dtype)));
  return all;
}

TEST_F(Amx, MakesRoomForScoresThatGrow) {
  // In every few tiles, within the first tiles of a step, and only in the last tile.
  constexpr std::array kFactors{+[](std::int64_t j) { return 1.0 + static_cast<double>(j) / 4; },
                                +[](std::int64_t j) { return j < 70 ? 0.01 : 100.0; },
                                +[](std::int64_t j) { return j < 32 ? -50.0 : 50.0; }};
  // All for the first problem, which has two tiles; after it five shapes have three types, so each meets each
  // factor.
  for (std::size_t turn = 0; const std::string& shape : problems()) {
    const std::size_t count = turn == 0 ? kFactors.size() : 1;
    for (std::size_t i = 0; i < count; ++i) {
      cases::AttentionCase c = cases::draw_case(cases::parse_problem(shape), 1);
      scale_keys(c, kFactors[(turn + i) % kFactors.size()]);
      expect_agreement(c);
    }
    ++turn;
  }
}

TEST_F(Amx, MakesRoomForVisibleScoresOnly) {
  for (const DType dtype : kTypes) {
    cases::AttentionCase c =
        cases::draw_case(cases::parse_problem("h=2 s=320 d=64 mask=bool dtype=" + std::string(name_of(dtype))), 1);
    for (std::int64_t i = 0; i < 320; ++i)
      for (std::int64_t j = 0; j < 320; ++j) c.mask.at<bool>(i, j) = j < 64 || j % 2 == 0;
    // Hidden scores beside the visible ones that need room, and far above them.
    scale_keys(c, [](std::int64_t j) { return j < 64 ? 0.01 : j % 2 == 0 ? 60.0 : 1000.0; });
    expect_agreement(c);
  }
}

TEST_F(Amx, KeepsRowsWithoutAKeyInTheirFirstTiles) {
  for (const std::string dtype : {"bf16", "f16", "f32"}) {
    cases::AttentionCase c =
        cases::draw_case(cases::parse_problem("h=2 sq=64 sk=400 d=64 mask=bool lse dtype=" + dtype), 1);
    for (std::int64_t i = 0; i < 64; ++i)
      for (std::int64_t j = 0; j < 400; ++j) c.mask.at<bool>(i, j) = i % 3 != 0 ? j >= 30 * i / 4 : j == 399;
    expect_agreement(c);
  }
}

TEST_F(Amx, GivesLowScoresAllTheWeightIfThereAreNoOthers) {
  constexpr float kLowest = std::numeric_limits<float>::lowest();
  for (const std::string dtype : {"bf16", "f16", "f32"}) {
    cases::AttentionCase c =
        cases::draw_case(cases::parse_problem("h=1 sq=40 sk=150 d=32 mask=f32 dtype=" + dtype), 1);
    for (std::int64_t i = 0; i < 40; ++i)
      for (std::int64_t j = 0; j < 150; ++j) c.mask.at<float>(i, j) = i < 20 || j < 64 ? kLowest : 0.0F;
    expect_agreement(c);
  }
}

TEST_F(Amx, OutputDoesNotDependOnWhatElseIsAskedFor) {
  for (const std::string& shape : problems()) {
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
    const InspectOptions wanted{.rows = {0, 299}, .entropy = true};
    const Inspection found = inspect(c.q.view(), c.k.view(), wanted, c.options);
    AttentionOptions alone = c.options;
    alone.score_modifier = [](void*, const ScoreTile&) {};
    alone.score_block_effect = nullptr;
    const Inspection expected = inspect(c.q.view(), c.k.view(), wanted, alone);
    EXPECT_TRUE(same_bits(found.rows, expected.rows) && same_bits(found.entropy, expected.entropy));
  }
}

/// Row 0's result if the scores of rows 0 and 1 are these functions of the key, and v is 1, or v40 for key 40.
float first_row(const std::function<float(std::int64_t)>& scores0,
                const std::function<float(std::int64_t)>& scores1, float v40, DType dtype = DType::bf16) {
  constexpr std::int64_t kKeys = 400;
  Tensor q(dtype, {2, 32}), k(dtype, {kKeys, 32}), v(DType::f32, {kKeys, 32}), mask(DType::f32, {2, kKeys});
  for (std::int64_t j = 0; j < kKeys; ++j) {
    mask.at<float>(0, j) = scores0(j);
    mask.at<float>(1, j) = scores1(j);
    for (std::int64_t d = 0; d < 32; ++d) v.at<float>(j, d) = j == 40 ? v40 : j < 320 ? 1.0F : 2.0F;
  }
  const Tensor o = attention(q, k, Tensor::copy_of(v, dtype), {.mask = mask});
  return Tensor::copy_of(o, DType::f32).at<float>(0, 0);
}

TEST_F(Amx, RowsThatNeedRoomLeaveTheOthersAlone) {
  constexpr float kLn2 = 0.693147181F;
  const auto scores = [](std::int64_t j) { return j == 40 ? -90 * kLn2 : j >= 64 ? 20 * kLn2 : 0.0F; };
  const auto flat = [](std::int64_t) { return 0.0F; };
  const auto steep = [](std::int64_t j) { return j >= 64 ? 100.0F : 0.0F; };
  for (const DType dtype : kTypes) {
    const float large = dtype == DType::f16 ? 0x1p15F : 0x1p127F;
    EXPECT_EQ(first_row(scores, steep, large, dtype), first_row(scores, flat, large, dtype)) << name_of(dtype);
  }
}

TEST_F(Amx, TakesScoresNearTheLimitsOfItsArithmetic) {
  const auto flat = [](std::int64_t) { return 0.0F; };
  const auto step = [](float low, float high) {
    return [low, high](std::int64_t j) { return j < 320 ? low : high; };
  };
  for (const DType dtype : kTypes) {
    EXPECT_EQ(first_row(step(-2907240.0F, 2907240.0F), flat, 1, dtype), 2.0F) << name_of(dtype);
    EXPECT_EQ(first_row(step(-1453620.0F, 1453620.0F), flat, 1, dtype), 2.0F) << name_of(dtype);
    for (const float middle : {-2907270.0F, -1453635.0F, -726817.0F}) {
      const float found = first_row(step(middle - 0.25F, middle), flat, 1, dtype);
      set_active_isa(Isa::avx2);
      EXPECT_NEAR(found, first_row(step(middle - 0.25F, middle), flat, 1, dtype), 0.02) << middle;
      set_active_isa(Isa::avx512amx);
    }
  }
}

TEST_F(Amx, TakesTinyValuesAndHugeScales) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    Tensor q(dtype, {4, 32}), k(dtype, {150, 32}), v(DType::f32, {150, 32});
    for (float& x : v.values<float>()) x = 1.5e-30F;
    const Tensor values = Tensor::copy_of(v, dtype);
    for (const double scale : {0.25, 1e36, 1e37, 2e38}) {
      const Tensor o = Tensor::copy_of(attention(q, k, values, {.scale = scale}), DType::f32);
      EXPECT_NEAR(o.at<float>(3, 2) * 1e30F, 1.5F, dtype == DType::f32 ? 1e-5 : 0.02)
          << name_of(dtype) << " " << scale;
    }
  }
}

/// f32 numbers whose last bf16 parts would be denormal, in one key, one value or one query row: only the rows that
/// see them may change, and these must be right.
TEST_F(Amx, TakesNumbersWithoutThreeTerms) {
  cases::AttentionCase c = cases::draw_case(cases::parse_problem("h=1 s=300 d=64 causal=top_left lse"), 1);
  const Tensor before = attention(c.q.view(), c.k.view(), c.v.view(), c.options);
  const auto set = [](cases::ScatteredTensor& tensor, std::int64_t row, float number) {
    Tensor all = Tensor::copy_of(tensor.view());
    all.at<float>(0, 0, row, 5) = number;
    copy(all, tensor.view());
  };
  set(c.k, 200, 1e-38F);
  set(c.v, 240, 1e-25F);
  set(c.q, 100, -1e-33F);
  expect_agreement(c);
  const Tensor after = attention(c.q.view(), c.k.view(), c.v.view(), c.options);
  for (const auto& [begin, end] : {std::pair<std::int64_t, std::int64_t>{0, 100}, {101, 200}})
    EXPECT_TRUE(same_bits(Tensor::copy_of(after.view().slice(2, begin, end)),
                          Tensor::copy_of(before.view().slice(2, begin, end))));
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

// ---- Products of f16 -------------------------------------------------------------------------------------------

/// Whether CPUID reports AMX-FP16: leaf 7, subleaf 1, EAX bit 21.
bool has_amx_fp16() {
#ifdef __x86_64__
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax >> 21 & 1) != 0;
#else
  return false;
#endif
}

/// The products of the rows of a and b, as TDPFP16PS adds up 32 numbers at a time: a chain of multiply-adds over
/// the even ones and one over the odd ones.
Tensor products_of_f16(const Tensor& narrow_a, const Tensor& narrow_b) {
  const Tensor a = Tensor::copy_of(narrow_a, DType::f32), b = Tensor::copy_of(narrow_b, DType::f32);
  Tensor products(DType::f32, {a.shape(0), b.shape(0)});
  for (std::int64_t i = 0; i < a.shape(0); ++i) {
    for (std::int64_t j = 0; j < b.shape(0); ++j) {
      for (std::int64_t d = 0; d < a.shape(1); d += 32) {
        float chains[2] = {};
        for (std::int64_t n = d; n < d + 32; ++n)
          chains[n % 2] = std::fmaf(a.at<float>(i, n), b.at<float>(j, n), chains[n % 2]);
        products.at<float>(i, j) += chains[0] + chains[1];
      }
    }
  }
  return products;
}

TEST_F(Amx, MultipliesF16AsItIsOnlyWhereThatIsReportedOrEmulated) {
  const char* const emulated = std::getenv("SACCADE_EMULATE");
  const bool expected = has_amx_fp16() || (emulated && std::string_view(emulated) == "amx_fp16");
  EXPECT_EQ(multiplies_f16(Isa::avx512amx), expected);
  EXPECT_FALSE(multiplies_f16(Isa::avx512bf16));

  const Tensor x = Tensor::copy_of(random_tensor({40, 96}, 1), DType::f16),
               weight = Tensor::copy_of(random_tensor({36, 96}, 2), DType::f16);
  const Tensor products = products_of_f16(x, weight);
  Tensor y(DType::f32, {40, 36}), scores(DType::f32, {40, 36});
  linear(x, weight, y);
  EXPECT_EQ(same_bits(y, products), expected);
  attention(x, weight, weight, {.scale = 1, .scores = scores});
  EXPECT_EQ(same_bits(scores, products), expected);
}

TEST_F(Amx, RandomProblemsOfF16Agree) {
  int compared = 0;
  for (std::uint64_t i = 0; compared < 60; ++i) {
    cases::AttentionCase c = cases::draw_case(i);
    if (c.q.view().dtype != DType::f16 || c.k.view().dtype != DType::f16 || c.v.view().dtype != DType::f16)
      continue;
    expect_agreement(c);
    ++compared;
  }
}

// ---- The same bits by instructions and by their twin ---------------------------------------------------------

/// The sum of w |i - j| over the keys j of row i, as inspection adds up 128 keys: 16 sums over keys j modulo 16,
/// by multiply-adds; then the upper half is added to the lower one until one sum is left.
float distance_of_16_lanes(std::span<const float> weights, std::int64_t i) {
  std::array<float, 16> sums{};
  for (std::size_t j = 0; j < weights.size(); ++j)
    sums[j % 16] = std::fmaf(weights[j], std::abs(static_cast<float>(i) - static_cast<float>(j)), sums[j % 16]);
  for (std::size_t half = 8; half > 0; half /= 2)
    for (std::size_t lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  return sums[0];
}

TEST_F(Amx, StatisticsHaveTheSumsOf16LanesWhateverTheVectorsAre) {
  for (const std::string dtype : {"bf16", "f16", "f32"}) {
    for (const std::int64_t keys : {32, 96, 128}) {
      cases::AttentionCase c = cases::draw_case(
          cases::parse_problem("h=1 sq=40 sk=" + std::to_string(keys) + " d=64 dtype=" + dtype), 1);
      std::vector<std::int64_t> rows(40);
      std::iota(rows.begin(), rows.end(), 0);
      const Inspection found = inspect(c.q.view(), c.k.view(), {.rows = rows, .distance = true}, c.options);
      for (std::int64_t i = 0; i < 40; ++i) {
        const float* const weights = &found.rows.at<float>(0, 0, i, 0);
        EXPECT_EQ(found.distance.at<float>(0, 0, i),
                  distance_of_16_lanes({weights, static_cast<std::size_t>(keys)}, i))
            << dtype << ", " << keys << " keys, row " << i;
      }
    }
  }
}

// ---- The processor's own tiles ---------------------------------------------------------------------------------

#if defined(__x86_64__) && defined(__linux__)

/// The components of the processor's extended state that are in use: bits 17 and 18 are AMX's.
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

/// Makes the operating system refuse AMX to this process.
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

// Runs everywhere: without AMX nothing changes. The child is a new program, because this one may already have the
// permission.
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
