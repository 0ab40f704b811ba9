// attention_backward() for dq alone, or for dk and dv alone: the bits of a call for all gradients.
#include <gtest/gtest.h>
#include <saccade/backward.h>

#include <array>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>

#include "cases/gradient_case.h"
#include "cases/problem.h"
#include "cases/random_case.h"
#include "support/each_isa.h"
#include "support/environment.h"
#include "support/refusal.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

enum class Wanted { all, rows, keys };

/// The results of a call; those that were not wanted are empty.
struct Found {
  Tensor dq, dk, dv;
  std::array<Tensor, std::size(kOptionGradients<Tensor>)> of_options;
};

Shape shape_of(const TensorView& view) { return {view.dims().begin(), view.dims().end()}; }

/// A problem with the results of its forward pass.
class Forward {
 public:
  Forward(cases::AttentionCase& c, std::uint64_t seed) : case_(c), options_(c.options) {
    const TensorView o = std::as_const(c.o).view();
    dout_ = random_tensor(shape_of(o), seed, o.dtype);
    precision_ = c.q.view().dtype == DType::f64 ? DType::f64 : DType::f32;
    Shape rows = shape_of(o);
    rows.pop_back();
    if ((options_.cu_seqlens_q || options_.layout == Layout::bshd) && rows.size() > 1)
      std::swap(rows[rows.size() - 1], rows[rows.size() - 2]);
    lse_ = Tensor(precision_, rows);
    if (seed % 2 == 1) dlse_ = random_tensor(rows, seed + 1, precision_);
    options_.lse = lse_;
    options_.weights = {};
    options_.scores = {};
    c.o.clear();
    attention(std::as_const(c.q).view(), std::as_const(c.k).view(), std::as_const(c.v).view(), c.o.view(),
              options_);
  }

  Found backward(Wanted wanted) {
    const TensorView q = std::as_const(case_.q).view(), k = std::as_const(case_.k).view(),
                     v = std::as_const(case_.v).view();
    Found found;
    AttentionGradients gradients;
    const auto ask = [](MutableTensorView& gradient, Tensor& result, const TensorView& like, DType dtype) {
      result = Tensor(dtype, shape_of(like));
      gradient = result;
    };
    if (wanted != Wanted::keys) ask(gradients.dq, found.dq, q, q.dtype);
    if (wanted != Wanted::rows) {
      ask(gradients.dk, found.dk, k, k.dtype == DType::f64 ? precision_ : k.dtype);
      ask(gradients.dv, found.dv, v, v.dtype == DType::f64 ? precision_ : v.dtype);
    }
    for (std::size_t i = 0; i < found.of_options.size(); ++i) {
      const TensorView& option = options_.*kOptionGradients<Tensor>[i].value;
      if (option && option.dtype != DType::boolean)
        ask(gradients.*kOptionGradients<MutableTensorView>[i].gradient, found.of_options[i], option, precision_);
    }
    attention_backward(
        q, k, v, {std::as_const(case_.o).view(), lse_, dout_, dlse_.rank() > 0 ? dlse_.view() : TensorView()},
        gradients, options_);
    return found;
  }

 private:
  cases::AttentionCase& case_;
  AttentionOptions options_;
  Tensor dout_, lse_, dlse_;
  DType precision_;
};

void expect_halves(cases::AttentionCase& c, std::uint64_t seed) {
  SCOPED_TRACE(cases::describe(c) + ", seed " + std::to_string(seed));
  Forward forward(c, seed);
  const Found all = forward.backward(Wanted::all), rows = forward.backward(Wanted::rows),
              keys = forward.backward(Wanted::keys);
  EXPECT_TRUE(same_bits(rows.dq, all.dq));
  EXPECT_TRUE(same_bits(keys.dk, all.dk));
  EXPECT_TRUE(same_bits(keys.dv, all.dv));
  for (std::size_t i = 0; i < all.of_options.size(); ++i) {
    EXPECT_TRUE(same_bits(rows.of_options[i], all.of_options[i])) << kOptionGradients<Tensor>[i].name;
    EXPECT_TRUE(same_bits(keys.of_options[i], all.of_options[i])) << kOptionGradients<Tensor>[i].name;
  }
}

class HalvesOnIsa : public EachIsa {};
SACCADE_FOR_EACH_ISA(HalvesOnIsa);

// Blocks of rows and keys with tails, heads that share keys, and every option.
constexpr const char* kShapes[] = {
    "h=4 hkv=2 s=300 d=64",
    "h=2 hkv=1 sq=70 sk=600 d=128 causal=bottom_right",
    "h=1 sq=310 sk=200 d=60 dv=72 causal=top_left",
    "h=4 hkv=2 s=290 d=32 dv=64 window=64,0 sinks",
    "b=2 h=2 s=260 d=64 causal=top_left lengths starts",
    "h=2 s=270 d=64 dropout=0.3 mask=bool",
    "h=2 hkv=1 s=200 d=64 mask=f32 softcap=3 alibi",
    "h=2 s=150 d=96 block_mask=16x48 alibi causal=top_left dropout=0.1 softcap=10",
    "h=4 hkv=2 s=500 d=40 docs=4 causal=top_left alibi sinks",
};

TEST_P(HalvesOnIsa, HaveTheBitsOfTheWhole) {
  constexpr std::array kDTypes{DType::f32, DType::bf16, DType::f64};
  std::uint64_t seed = 0;
  std::size_t turn = 0;
  for (const char* const shape : kShapes) {
    for (const DType dtype : one_if_slow(kDTypes, ++turn)) {
      cases::AttentionCase c =
          cases::draw_case(cases::parse_problem(shape + (" dtype=" + std::string(name_of(dtype)))), 1);
      c.options.num_threads = 1 + static_cast<int>(seed % 3);
      expect_halves(c, ++seed);
    }
  }
}

TEST_P(HalvesOnIsa, HaveTheBitsOfTheWholeInRandomProblems) {
  for (std::uint64_t seed = 4000; seed < 4000 + fewer_if_slow(60); ++seed) {
    cases::AttentionCase c = cases::draw_case(seed);
    if (cases::has_gradients(c)) expect_halves(c, seed);
  }
}

TEST(Halves, OfNothingAreNothing) {
  const Tensor q = random_tensor({2, 7, 8}, 1), k(DType::f32, {2, 0, 8}), lse(DType::f32, {2, 7});
  Tensor dq = random_tensor(q.shape(), 2), dk(k), dv(k);
  attention_backward(q, k, k, {q, lse, q}, {.dq = dq});
  for (const float x : dq.values<float>()) EXPECT_EQ(x, 0.0F);
  attention_backward(q, k, k, {q, lse, q}, {.dk = dk, .dv = dv});
}

TEST(Halves, RefusesLessThanOne) {
  const Tensor q = random_tensor({2, 7, 8}, 1), lse(DType::f32, {2, 7}), sinks(DType::f32, {2});
  Tensor gradient(q), dsinks(sinks);
  const auto message = [&](const AttentionGradients& wanted) {
    return refusal([&] { attention_backward(q, q, q, {q, lse, q}, wanted, {.sinks = sinks}); });
  };
  EXPECT_EQ(message({.dq = gradient, .dk = gradient}), "[attention_backward] dk was given without dv");
  EXPECT_EQ(message({.dv = gradient}), "[attention_backward] dv was given without dk");
  EXPECT_EQ(message({}), "[attention_backward] dq, or dk and dv, must be given: all are empty");
  EXPECT_EQ(message({.dsinks = dsinks}), "[attention_backward] dq, or dk and dv, must be given: all are empty");
}

}  // namespace
}  // namespace saccade::test
