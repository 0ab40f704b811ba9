// decode() of bf16 on AMX tiles, on the processor or in software: what is special to this level. Everything else
// is tested on every instruction set.
#include "saccade/decode.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "cases/attention_case.h"
#include "cases/problem.h"
#include "support/each_isa.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

class AmxDecode : public OnAmx<testing::Test> {};

cases::AttentionCase problem(const std::string& text) {
  return cases::draw_case(cases::parse_problem(text + " dtype=bf16 decode"), 1);
}

void expect_agreement(cases::AttentionCase& c) {
  cases::CheckedCase checked(c);
  for (const auto& [result, comparison] : checked.run())
    EXPECT_TRUE(comparison.holds) << cases::describe(c) << ": " << result << ": " << to_string(comparison);
}

Tensor decode_of(const cases::AttentionCase& c) { return decode(c.q.view(), c.k.view(), c.v.view(), c.options); }

TEST_F(AmxDecode, AgreesWithTheReference) {
  for (const char* const shape :
       {"sq=1 sk=1 d=1 lse", "sq=1 sk=33 d=31 dv=33", "h=3 sq=1 sk=15 d=64", "h=13 hkv=1 sq=5 sk=700 d=64 lse",
        "h=16 hkv=1 sq=1 sk=4096 d=128", "h=17 hkv=1 sq=1 sk=4097 d=128 dv=160",
        "b=2 h=8 hkv=2 sq=10 sk=4500 d=64 causal=bottom_right page=16",
        "h=4 hkv=4 sq=3 sk=300 d=96 page=7 lengths", "h=4 hkv=2 sq=4 sk=500 d=64 page=48 causal=bottom_right",
        "h=4 hkv=2 sq=2 sk=800 d=64 layout=bshd sinks",
        "b=2 h=4 hkv=2 sq=3 sk=9000 d=64 starts causal=bottom_right",
        "h=6 hkv=2 sq=11 sk=5000 d=72 dv=40 window=300,0 causal=bottom_right lse",
        "h=5 hkv=1 sq=8 sk=4300 d=64 dropout=0.3 window=40,0 causal=bottom_right",
        "h=8 hkv=2 sq=9 sk=500 d=64 mask=bool dropout=0.2", "h=4 hkv=2 sq=20 sk=400 d=64 mask=f32 softcap=3 alibi",
        "h=4 hkv=2 sq=33 sk=600 d=96 block_mask=16x48 causal=bottom_right", "h=2 sq=3 sk=400 d=64 scale=-0.2",
        "h=4 hkv=2 sq=40 sk=900 d=64 docs=3 causal=bottom_right"}) {
    cases::AttentionCase c = problem(shape);
    expect_agreement(c);
  }
}

TEST_F(AmxDecode, ReportsScoresOfHiddenKeys) {
  for (const ScoreStage stage : {ScoreStage::raw, ScoreStage::biased, ScoreStage::probabilities}) {
    cases::AttentionCase c = problem("h=3 hkv=1 sq=7 sk=4200 d=40 causal=bottom_right window=50,0 softcap=2");
    const TensorView q = c.q.view();
    Shape shape(q.shape.begin(), q.shape.begin() + q.rank);
    shape.back() = 4200;
    c.options.weights = c.weights = Tensor(DType::f32, shape);
    c.options.scores = c.scores = Tensor(DType::f32, shape);
    c.options.score_stage = stage;
    expect_agreement(c);
  }
}

TEST_F(AmxDecode, HasBitsOfItsOwn) {
  const Tensor q = random_tensor({1, 16, 1, 64}, 1, DType::bf16),
               k = random_tensor({1, 1, 300, 64}, 2, DType::bf16),
               v = random_tensor({1, 1, 300, 64}, 3, DType::bf16);
  const auto on = [&](Isa isa) {
    set_active_isa(isa);
    Tensor o(DType::f32, {1, 16, 1, 64});
    decode(q, k, v, o);
    return o;
  };
  for (const Isa isa : isas_of_tests()) EXPECT_EQ(same_bits(on(isa), on(Isa::avx512amx)), isa == Isa::avx512amx);
}

// ---- A row alone ---------------------------------------------------------------------------------------------

Tensor heads_of(const Tensor& x, std::int64_t first, std::int64_t end) {
  return Tensor::copy_of(x.view().slice(1, first, end));
}

TEST_F(AmxDecode, ARowHasTheSameBitsWithAnyNumberOfOthers) {
  constexpr std::int64_t kRows = 130, kKeys = 4200;
  for (const std::int64_t head_dim : {40, 64}) {
    const Tensor q = random_tensor({1, kRows, 1, head_dim}, 1, DType::bf16),
                 k = random_tensor({1, 1, kKeys, head_dim}, 2, DType::bf16),
                 v = random_tensor({1, 1, kKeys, 72}, 3, DType::bf16);
    const Tensor all = decode(q, k, v, {.num_threads = 1});
    for (const std::int64_t n : {1, 2, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 80, 129})
      for (const std::int64_t first : {std::int64_t{0}, kRows - n})
        EXPECT_TRUE(same_bits(decode(heads_of(q, first, first + n), k, v, {.num_threads = 1}),
                              heads_of(all, first, first + n)))
            << n << " rows from " << first;
    for (const int threads : {2, 4, 9})
      EXPECT_TRUE(same_bits(decode(q, k, v, {.num_threads = threads}), all)) << threads << " threads";
  }
}

TEST_F(AmxDecode, ARowHasTheSameBitsHowManyKeysOthersSee) {
  constexpr std::int64_t kTokens = 33, kKeys = 4150;
  const Tensor q = random_tensor({1, 2, kTokens, 64}, 1, DType::bf16),
               k = random_tensor({1, 1, kKeys, 64}, 2, DType::bf16),
               v = random_tensor({1, 1, kKeys, 64}, 3, DType::bf16);
  const Tensor all = decode(q, k, v, {.causal = Causal::bottom_right});
  for (std::int64_t i = 0; i < kTokens; ++i) {
    const std::int64_t seen = kKeys - kTokens + 1 + i;
    const Tensor alone =
        decode(q.view().slice(2, i, i + 1), k.view().slice(2, 0, seen), v.view().slice(2, 0, seen));
    EXPECT_TRUE(same_bits(alone, Tensor::copy_of(all.view().slice(2, i, i + 1)))) << i;
  }
}

TEST_F(AmxDecode, HeadsByTurnsHaveTheirOwnBits) {
  for (const char* const shape : {"h=6 hkv=3 sq=2 sk=4500 d=64 layout=bshd causal=bottom_right window=700,0",
                                  "h=40 hkv=2 sq=1 sk=500 d=40 dv=64 layout=bshd"}) {
    cases::AttentionCase c = problem(shape);
    const Tensor together = decode_of(c);  // the keys of all heads lie side by side
    c.options.layout = Layout::bhsd;
    const auto by_heads = [](const TensorView& x) { return Tensor::copy_of(x.transposed(1, 2)); };
    const Tensor apart = decode(by_heads(c.q.view()), by_heads(c.k.view()), by_heads(c.v.view()), c.options);
    EXPECT_TRUE(same_bits(by_heads(together), apart)) << shape;
  }
}

// ---- Numbers that are not finite -----------------------------------------------------------------------------

constexpr std::int64_t kTokens = 20, kKeys = 4130, kBad = 4120;

struct Window {
  Tensor q = random_tensor({1, 2, kTokens, 64}, 1, DType::bf16),
         k = random_tensor({1, 1, kKeys, 64}, 2, DType::bf16),
         v = random_tensor({1, 1, kKeys, 64}, 3, DType::bf16);

  /// Token i sees keys up to kKeys - kTokens + i.
  Tensor run() const { return decode(q, k, v, {.causal = Causal::bottom_right}); }
};

void put(Tensor& x, std::int64_t key, float number) {
  Tensor one(DType::f32, {1, 1, 1, 1});
  one.at<float>(0, 0, 0, 0) = number;
  copy(one, x.mutable_view().slice(2, key, key + 1).slice(3, 9, 10));
}

bool has_nan(const Tensor& x) {
  const Tensor numbers = Tensor::copy_of(x, DType::f32);
  for (const float number : numbers.values<float>())
    if (std::isnan(number)) return true;
  return false;
}

TEST_F(AmxDecode, ABadKeyReachesOnlyTheRowsThatSeeIt) {
  const Window clean;
  const Tensor expected = clean.run();
  for (const float number : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (Tensor Window::*const where : {&Window::k, &Window::v}) {
      Window bad = clean;
      put(bad.*where, kBad, number);
      const Tensor found = bad.run();
      for (std::int64_t i = 0; i < kTokens; ++i) {
        const Tensor row = Tensor::copy_of(found.view().slice(2, i, i + 1));
        if (kKeys - kTokens + i < kBad)
          EXPECT_TRUE(same_bits(row, Tensor::copy_of(expected.view().slice(2, i, i + 1)))) << number << ' ' << i;
        else if (std::isnan(number))
          EXPECT_TRUE(has_nan(row)) << i;
        else
          EXPECT_FALSE(same_bits(row, Tensor::copy_of(expected.view().slice(2, i, i + 1)))) << i;
      }
    }
  }
}

TEST_F(AmxDecode, AnInfiniteValueReachesOnlyItsColumn) {
  const Tensor q = random_tensor({1, 3, 2, 64}, 1, DType::bf16), k = random_tensor({1, 1, 70, 64}, 2, DType::bf16);
  Tensor v = random_tensor({1, 1, 70, 64}, 3, DType::bf16);
  const Tensor finite = decode(q, k, v);
  for (const std::int64_t column : {0, 7, 34, 63}) {
    Tensor bad = v;
    bad.at<bfloat16>(0, 0, 40, column) = bfloat16(-std::numeric_limits<float>::infinity());
    const Tensor o = decode(q, k, bad);
    for (std::int64_t head = 0; head < 3; ++head)
      for (std::int64_t row = 0; row < 2; ++row)
        for (std::int64_t d = 0; d < 64; ++d) {
          const auto found = static_cast<float>(o.at<bfloat16>(0, head, row, d));
          if (d == column)
            EXPECT_EQ(found, -std::numeric_limits<float>::infinity());
          else
            EXPECT_EQ(found, static_cast<float>(finite.at<bfloat16>(0, head, row, d))) << "column " << d;
        }
  }
}

/// Every second row of the mask hides every bad key, in both splits.
TEST_F(AmxDecode, MasksHideBadKeys) {
  for (const char* const text :
       {"h=3 hkv=1 sq=12 sk=4300 d=64 mask=bool lse", "h=4 hkv=2 sq=1 sk=4300 d=80 mask=bool layout=bshd"}) {
    cases::AttentionCase c = problem(text);
    const std::int64_t rows = c.mask.shape(0);
    for (std::int64_t i = 0; i < rows; ++i)
      for (const std::int64_t j : {0, 5, 40, 4100, 4299}) c.mask.at<bool>(i, j) = i % 2 == 1 && j != 40;
    for (const bool is_value : {false, true}) {
      Tensor bad = Tensor::copy_of((is_value ? c.v : c.k).view());
      const bool keys_go_first = c.options.layout == Layout::bshd;
      for (const std::int64_t j : {0, 5, 40, 4100, 4299}) {
        const MutableTensorView key = bad.mutable_view().slice(keys_go_first ? 1 : 2, j, j + 1).slice(3, 3, 4);
        cases::fill(
            key, j % 2 == 0 ? std::numeric_limits<double>::quiet_NaN() : -std::numeric_limits<double>::infinity());
      }
      copy(bad, (is_value ? c.v : c.k).view());
      expect_agreement(c);
    }
  }
}

// ---- Callers' functions --------------------------------------------------------------------------------------

struct Nested {
  const cases::AttentionCase* inner;
  static void call(void* context) { decode_of(*static_cast<Nested*>(context)->inner); }
  static void modifier(void* context, const ScoreTile&) { call(context); }
  static BlockEffect effect(void* context, const ScoreBlock&) {
    call(context);
    return BlockEffect::partial;
  }
};

TEST_F(AmxDecode, AScoreModifierMayCallDecode) {
  cases::AttentionCase inner = problem("sq=1 sk=40 d=32");
  inner.options.num_threads = 1;
  Nested nested{&inner};
  for (const char* const shape :
       {"h=2 sq=17 sk=300 d=64 causal=bottom_right", "h=4 hkv=2 sq=1 sk=300 d=64 page=16"}) {
    cases::AttentionCase c = problem(shape);
    c.options.score_context = &nested;
    c.options.score_modifier = Nested::modifier;
    expect_agreement(c);
    c.options.score_block_effect = Nested::effect;
    expect_agreement(c);
  }
}

}  // namespace
}  // namespace saccade::test
