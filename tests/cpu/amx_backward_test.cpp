// The backward pass on AMX tiles, on the processor or in software: what is special to this level. It needs all
// tensors to have one type, which is rare in random problems.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "cases/gradient_case.h"
#include "cases/problem.h"
#include "saccade/backward.h"
#include "saccade/reference.h"
#include "saccade/runtime.h"
#include "support/each_isa.h"
#include "support/expect_close.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

class AmxBackward : public OnAmx<testing::TestWithParam<DType>> {};
INSTANTIATE_TEST_SUITE_P(Types, AmxBackward, testing::Values(DType::bf16, DType::f16, DType::f32),
                         [](const auto& type) { return std::string(name_of(type.param)); });

cases::AttentionCase problem(const std::string& text, DType type) {
  return cases::draw_case(cases::parse_problem(text + " dtype=" + std::string(name_of(type))), 1);
}

/// A seed with which CheckedGradients draws a dout of a type.
std::uint64_t seed_of(DType type) {
  cases::AttentionCase small = problem("s=1 d=1", type);
  for (std::uint64_t seed = 1;; ++seed)
    if (cases::CheckedGradients(small, seed).dout.memory().dtype() == type) return seed;
}

void expect_agreement(cases::CheckedGradients& checked, const cases::AttentionCase& c) {
  for (const auto& [result, comparison] : checked.run())
    EXPECT_TRUE(comparison.holds) << cases::describe(c) << ": " << result << ": " << to_string(comparison);
}

// Several blocks of keys and of rows, tails of both, and every option.
constexpr const char* kShapes[] = {
    "h=2 s=300 d=64",
    "h=2 hkv=1 sq=70 sk=600 d=128",
    "h=1 sq=310 sk=200 d=160 dv=72 causal=bottom_right",
    "h=4 hkv=2 s=290 d=32 dv=64 window=64,0 sinks",
    "b=2 h=2 s=260 d=64 causal=top_left lengths",
    "h=2 s=270 d=64 dropout=0.3",
    "h=2 s=200 d=64 mask=bool dropout=0.2",
    "h=2 s=200 d=64 mask=f32 softcap=3 alibi",
    "h=2 s=150 d=96 block_mask=16x48 alibi causal=top_left dropout=0.1 softcap=10",
    "h=2 s=200 d=64 scale=-0.2 window=100,20",
    "h=2 s=500 d=64 docs=4 causal=top_left",
};

TEST_P(AmxBackward, AgreesWithTheReference) {
  for (const char* const shape : kShapes) {
    cases::AttentionCase c = problem(shape, GetParam());
    cases::CheckedGradients checked(c, seed_of(GetParam()));
    expect_agreement(checked, c);
  }
}

TEST_P(AmxBackward, HasTheSameBitsForAnyNumberOfThreads) {
  for (const char* const shape : {"h=1 s=600 d=64 causal=top_left", "h=4 hkv=1 s=300 d=64 mask=f32 alibi"}) {
    cases::AttentionCase c = problem(shape, GetParam());
    c.options.num_threads = 1;
    cases::CheckedGradients alone(c, seed_of(GetParam()));
    alone.run();
    c.options.num_threads = 3;
    cases::CheckedGradients together(c, seed_of(GetParam()));
    together.run();
    for (std::size_t i = 0; i < alone.results().size(); ++i)
      EXPECT_TRUE(same_bits(alone.results()[i], together.results()[i])) << shape << ", gradient " << i;
  }
}

// ---- Numbers that tiles cannot hold --------------------------------------------------------------------------

constexpr std::int64_t kSeqlen = 300, kDim = 64, kWindow = 20;

/// Row i sees keys [i - kWindow, i].
struct Window {
  Tensor q, k, v, dout, o, lse, dq, dk, dv;
  AttentionOptions options{.causal = Causal::top_left, .window_left = kWindow};

  explicit Window(DType type, double dropout_p = 0)
      : q(random_tensor({kSeqlen, kDim}, 1, type)),
        k(random_tensor({kSeqlen, kDim}, 2, type)),
        v(random_tensor({kSeqlen, kDim}, 3, type)),
        dout(random_tensor({kSeqlen, kDim}, 4, type)),
        o(type, {kSeqlen, kDim}),
        lse(DType::f32, {kSeqlen}),
        dq(type, {kSeqlen, kDim}),
        dk(dq),
        dv(dq) {
    options.dropout_p = dropout_p;
  }
  void run() {
    options.lse = lse;
    attention(q, k, v, o, options);
    attention_backward(q, k, v, {.o = o, .lse = lse, .dout = dout}, {.dq = dq, .dk = dk, .dv = dv}, options);
  }
};

void put(Tensor& x, std::int64_t row, double number) {
  Tensor one(DType::f64, {1, 1});
  one.at<double>(0, 0) = number;
  copy(one, MutableTensorView(x).slice(0, row, row + 1).slice(1, 7, 8));
}

/// Puts a number into row 150 of a tensor. Only what sees it may change.
void expect_few_changes(const Window& clean, Tensor Window::*where, double number) {
  constexpr std::int64_t kPlace = 150;
  Window bad(clean.q.dtype(), clean.options.dropout_p);
  put(bad.*where, kPlace, number);
  bad.run();
  const bool is_row = where == &Window::q || where == &Window::dout;
  const std::int64_t last = is_row ? kPlace : kPlace + kWindow;
  const auto expect_same = [&](const Tensor& found, const Tensor& expected, std::int64_t first) {
    for (std::int64_t i = 0; i < kSeqlen; ++i) {
      if (i >= first && i <= last) continue;
      EXPECT_TRUE(
          same_bits(Tensor::copy_of(found.view().select(0, i)), Tensor::copy_of(expected.view().select(0, i))))
          << number << ", row " << i;
    }
  };
  expect_same(bad.dq, clean.dq, kPlace);
  expect_same(bad.dk, clean.dk, kPlace - kWindow);
  expect_same(bad.dv, clean.dv, kPlace - kWindow);
}

TEST_P(AmxBackward, ABadNumberChangesOnlyWhatItMeets) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  for (const double dropout_p : {0.0, 0.2}) {
    Window clean(GetParam(), dropout_p);
    clean.run();
    for (Tensor Window::*const where : {&Window::q, &Window::dout, &Window::k, &Window::v}) {
      for (const double number : {nan, infinity, 1e-35, 1e30}) {
        if (GetParam() == DType::f16 && std::isfinite(number)) continue;  // f16 has neither
        expect_few_changes(clean, where, number);
      }
    }
  }
}

TEST_P(AmxBackward, HasTheSameBitsForAnyNumberOfThreadsWithBadNumbers) {
  for (const double number : {std::numeric_limits<double>::infinity(), 1e30}) {  // tiles hold neither
    for (Tensor Window::*const where : {&Window::q, &Window::k}) {
      Window alone(GetParam()), together(GetParam());
      alone.options.window_left = together.options.window_left = -1;
      alone.options.num_threads = 1, together.options.num_threads = 4;
      for (Window* const window : {&alone, &together}) {
        put(window->*where, 290, number);
        window->run();
      }
      EXPECT_TRUE(same_bits(alone.dq, together.dq) && same_bits(alone.dk, together.dk) &&
                  same_bits(alone.dv, together.dv));
    }
  }
}

void scale(Tensor& x, double factor) {
  Tensor scaled = Tensor::copy_of(x, DType::f64);
  for (double& number : scaled.values<double>()) number *= factor;
  copy(scaled, x);
}

TEST_P(AmxBackward, TakesNumbersOfAnySize) {
  if (GetParam() == DType::f16) GTEST_SKIP() << "f16 has none of these";
  struct Scales {
    double q = 1, k = 1, v = 1, dout = 1, scale = 0.125;
  };
  for (const Scales& s : {Scales{.dout = 1e-25},
                          {.v = 1e-25},
                          {.dout = 1e25},
                          {.q = 1e25, .scale = 1e-26},
                          {.k = 1e-33, .scale = 1e32},
                          {.v = 1e20, .dout = 1e-20}}) {
    Window p(GetParam());
    scale(p.q, s.q), scale(p.k, s.k), scale(p.v, s.v), scale(p.dout, s.dout);
    p.options.scale = s.scale;
    p.run();
    const auto exact = reference::attention_backward(p.q, p.k, p.v, p.dout, p.options);
    const auto naive = reference::naive_attention_backward(p.q, p.k, p.v, p.dout, p.options, exact.gradients,
                                                           {.dq = GetParam(),
                                                            .dk = GetParam(),
                                                            .dv = GetParam(),
                                                            .forward = cases::naive_rounding(p.q, p.k, p.v, p.o)});
    expect_close(p.dq, {exact.gradients.dq, naive.dq, exact.bound.dq, GetParam()}, kGradient);
    expect_close(p.dk, {exact.gradients.dk, naive.dk, exact.bound.dk, GetParam()}, kGradient);
    expect_close(p.dv, {exact.gradients.dv, naive.dv, exact.bound.dv, GetParam()}, kGradient);
  }
}

// ---- Callers' functions --------------------------------------------------------------------------------------

struct Nested {
  const cases::AttentionCase* inner;
  static void call(void* context) {
    const cases::AttentionCase& c = *static_cast<Nested*>(context)->inner;
    attention(c.q.view(), c.k.view(), c.v.view(), {.num_threads = 1});
  }
  static void modifier(void* context, const ScoreTile&) { call(context); }
  static void modifier_backward(void* context, const ScoreTile&, const ScoreTile&) { call(context); }
  static BlockEffect effect(void* context, const ScoreBlock&) {
    call(context);
    return BlockEffect::partial;
  }
};

TEST_P(AmxBackward, AScoreModifierMayCallAttention) {
  const cases::AttentionCase inner = cases::draw_case(cases::parse_problem("s=40 d=32 dtype=bf16"), 1);
  Nested nested{&inner};
  cases::AttentionCase c = problem("h=1 sq=70 sk=300 d=64 causal=bottom_right", GetParam());
  c.options.score_context = &nested;
  c.options.score_modifier = Nested::modifier;
  c.options.score_modifier_backward = Nested::modifier_backward;
  c.options.score_block_effect = Nested::effect;
  cases::CheckedGradients checked(c, seed_of(GetParam()));
  expect_agreement(checked, c);
}

}  // namespace
}  // namespace saccade::test
