// The gradients of the reference against finite differences of its forward pass, with every option.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <string>

#include "saccade/random.h"
#include "saccade/reference.h"
#include "support/expect_close.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

/// Multiples of the step below, so that adding a step is exact, even in f32.
Tensor draw(const Shape& shape, std::uint64_t seed, DType dtype = DType::f64) {
  Tensor result = random_tensor(shape, seed);
  for (float& x : result.values<float>()) x = std::round(x * 256) / 256;
  return Tensor::copy_of(result, dtype);
}
constexpr double kStep = 1.0 / 256;

/// A problem whose options point to the tensors beside them.
struct Problem {
  Tensor q, k, v, dout;
  Tensor mask{}, block_mask{}, kv_lengths{}, query_offsets{}, cu_seqlens_q{}, cu_seqlens_k{}, alibi_slopes{},
      sinks{};
  AttentionOptions options{};
  Tensor dlse{};

  double loss() const {
    const reference::AttentionResult result = reference::attention(q, k, v, options);
    double sum = 0.0;
    for (std::size_t i = 0; i < dout.values<double>().size(); ++i)
      sum += result.o.values<double>()[i] * dout.values<double>()[i];
    for (std::size_t i = 0; dlse.rank() > 0 && i < dlse.values<double>().size(); ++i) {
      const double lse = result.lse.values<double>()[i];
      if (std::isfinite(lse)) sum += lse * dlse.values<double>()[i];
    }
    return sum;
  }

  /// The derivative of the loss with respect to each number of `x`: finite differences of fourth order, with an
  /// error of about kStep^4.
  Tensor differences(Tensor& x) {
    Tensor result(DType::f64, x.shape());
    for (std::size_t i = 0; i < result.values<double>().size(); ++i) {
      const auto loss_at = [&](double change) {
        const auto with = [&](auto numbers) {
          const auto before = numbers[i];
          numbers[i] = static_cast<std::remove_reference_t<decltype(numbers[i])>>(before + change);
          const double moved = loss();
          numbers[i] = before;
          return moved;
        };
        return x.dtype() == DType::f64 ? with(x.values<double>()) : with(x.values<float>());
      };
      const double near = loss_at(kStep) - loss_at(-kStep), far = loss_at(2 * kStep) - loss_at(-2 * kStep);
      result.values<double>()[i] = (8 * near - far) / (12 * kStep);
    }
    return result;
  }
};

/// A modifier that is not just an addition: its derivative depends on the score.
void bend(void*, const ScoreTile& tile) {
  for (std::int64_t i = 0; i < tile.rows; ++i)
    for (std::int64_t j = 0; j < tile.keys; ++j) tile.row<double>(i)[j] += 0.5 * std::sin(tile.row<double>(i)[j]);
}
void bend_backward(void*, const ScoreTile& scores, const ScoreTile& gradients) {
  for (std::int64_t i = 0; i < scores.rows; ++i)
    for (std::int64_t j = 0; j < scores.keys; ++j)
      gradients.row<double>(i)[j] *= 1 + 0.5 * std::cos(scores.row<double>(i)[j]);
}
void add_distance(void*, const ScoreTile& tile) {
  for (std::int64_t i = 0; i < tile.rows; ++i)
    for (std::int64_t j = 0; j < tile.keys; ++j)
      tile.row<double>(i)[j] += 0.125 * static_cast<double>(tile.first_key + j - tile.first_row - i);
}

Problem plain() {
  return {.q = draw({2, 4, 3, 4}, 1),
          .k = draw({2, 2, 5, 4}, 2),
          .v = draw({2, 2, 5, 3}, 3),
          .dout = draw({2, 4, 3, 3}, 4)};
}

const std::map<std::string, std::function<void(Problem&)>>& problems() {
  static const std::map<std::string, std::function<void(Problem&)>> all = {
      {"plain", [](Problem&) {}},
      {"scale", [](Problem& p) { p.options.scale = -0.75; }},
      {"softcap", [](Problem& p) { p.options.softcap = 1.5; }},
      {"causal", [](Problem& p) { p.options.causal = Causal::bottom_right; }},
      {"rows_without_keys",
       [](Problem& p) {
         p.options.causal = Causal::top_left;
         p.query_offsets = Tensor::of<std::int64_t>({-1, 1});
         p.options.query_offsets = p.query_offsets;
       }},
      {"window",
       [](Problem& p) {
         p.options.window_left = 1;
         p.options.window_right = 1;
       }},
      {"lengths",
       [](Problem& p) {
         p.kv_lengths = Tensor::of<std::int64_t>({3, 0});
         p.options.kv_lengths = p.kv_lengths;
       }},
      {"mask",
       [](Problem& p) {
         p.mask = draw({2, 4, 3, 5}, 5);
         p.mask.values<double>()[7] = -std::numeric_limits<double>::infinity();
         p.options.mask = p.mask;
       }},
      {"mask_of_all_heads",
       [](Problem& p) {
         p.mask = draw({2, 1, 3, 5}, 5, DType::f32);
         p.options.mask = p.mask;
       }},
      {"mask_of_keys",
       [](Problem& p) {
         p.mask = draw({5}, 5);
         p.options.mask = p.mask;
       }},
      {"alibi",
       [](Problem& p) {
         p.alibi_slopes = draw({2, 4}, 6, DType::f32);
         p.options.alibi_slopes = p.alibi_slopes;
       }},
      {"alibi_of_all_entries",
       [](Problem& p) {
         p.alibi_slopes = draw({4}, 6, DType::f32);
         p.options.alibi_slopes = p.alibi_slopes;
       }},
      {"sinks",
       [](Problem& p) {
         p.sinks = draw({4}, 7, DType::f32);
         p.options.sinks = p.sinks;
       }},
      {"dropout",
       [](Problem& p) {
         p.options.dropout_p = 0.4;
         p.options.dropout_seed = 3;
       }},
      {"modifier",
       [](Problem& p) {
         p.options.score_modifier = bend;
         p.options.score_modifier_backward = bend_backward;
       }},
      {"adding_modifier", [](Problem& p) { p.options.score_modifier = add_distance; }},
      {"bshd",
       [](Problem& p) {
         p.q = draw({2, 3, 4, 4}, 1);
         p.k = draw({2, 5, 2, 4}, 2);
         p.v = draw({2, 5, 2, 3}, 3);
         p.dout = draw({2, 3, 4, 3}, 4);
         p.options.layout = Layout::bshd;
       }},
      {"rank_2",
       [](Problem& p) {
         p.q = draw({3, 4}, 1);
         p.k = draw({5, 4}, 2);
         p.v = draw({5, 3}, 3);
         p.dout = draw({3, 3}, 4);
       }},
      {"documents",
       [](Problem& p) {
         p.q = draw({6, 4, 4}, 1);
         p.k = draw({7, 2, 4}, 2);
         p.v = draw({7, 2, 3}, 3);
         p.dout = draw({6, 4, 3}, 4);
         p.cu_seqlens_q = Tensor::of<std::int64_t>({0, 2, 2, 6});
         p.cu_seqlens_k = Tensor::of<std::int64_t>({0, 3, 4, 7});
         p.options.cu_seqlens_q = p.cu_seqlens_q;
         p.options.cu_seqlens_k = p.cu_seqlens_k;
         p.options.causal = Causal::bottom_right;
       }},
      {"everything",
       [](Problem& p) {
         p.options.scale = 0.8;
         p.options.softcap = 2.0;
         p.options.causal = Causal::bottom_right;
         p.options.window_left = 3;
         p.mask = draw({4, 3, 5}, 5);
         p.options.mask = p.mask;
         p.block_mask = Tensor(DType::boolean, {2, 3});
         for (bool& open : p.block_mask.values<bool>()) open = true;
         p.block_mask.values<bool>()[1] = false;
         p.options.block_mask = p.block_mask;
         p.options.block_mask_q = p.options.block_mask_k = 2;
         p.alibi_slopes = draw({4}, 6, DType::f32);
         p.options.alibi_slopes = p.alibi_slopes;
         p.sinks = draw({4}, 7, DType::f32);
         p.options.sinks = p.sinks;
         p.options.dropout_p = 0.25;
         p.options.dropout_seed = 5;
         p.options.score_modifier = bend;
         p.options.score_modifier_backward = bend_backward;
       }},
  };
  return all;
}

class ReferenceBackward : public ::testing::TestWithParam<std::string> {};

void check_gradients(Problem& p) {
  const reference::AttentionBackwardResult result = reference::attention_backward(
      p.q, p.k, p.v, p.dout, p.options, {}, p.dlse.rank() > 0 ? p.dlse.view() : TensorView());
  const auto check = [&](const char* name, Tensor& x, Tensor reference::AttentionGradients::*gradient) {
    SCOPED_TRACE(name);
    const Tensor differences = p.differences(x);
    // Both are far more precise than f32, whose eps is the limit here; the bound covers terms that cancel to 0.
    expect_close(
        result.gradients.*gradient,
        {.reference = differences, .naive = differences, .bound = result.bound.*gradient, .coarsest = DType::f32});
    double largest = 0.0;
    for (const double difference : differences.values<double>()) largest = std::max(largest, std::abs(difference));
    EXPECT_GT(largest, 0.01);
  };
  check("dq", p.q, &reference::AttentionGradients::dq);
  check("dk", p.k, &reference::AttentionGradients::dk);
  check("dv", p.v, &reference::AttentionGradients::dv);
  if (p.options.mask) check("dmask", p.mask, &reference::AttentionGradients::dmask);
  if (p.options.sinks) check("dsinks", p.sinks, &reference::AttentionGradients::dsinks);
  if (p.options.alibi_slopes)
    check("dalibi_slopes", p.alibi_slopes, &reference::AttentionGradients::dalibi_slopes);
}

TEST_P(ReferenceBackward, IsWhatTheForwardPassDoesWhenItsInputsMove) {
  Problem p = plain();
  problems().at(GetParam())(p);
  check_gradients(p);
}

TEST_P(ReferenceBackward, OfALossThatReadsLseToo) {
  Problem p = plain();
  problems().at(GetParam())(p);
  p.dlse = draw(reference::attention(p.q, p.k, p.v, p.options).lse.shape(), 8);
  check_gradients(p);
}

INSTANTIATE_TEST_SUITE_P(Options, ReferenceBackward, ::testing::ValuesIn([] {
                           std::vector<std::string> names;
                           for (const auto& [name, problem] : problems()) names.push_back(name);
                           return names;
                         }()),
                         [](const auto& named) { return named.param; });

TEST(ReferenceBackwardArguments, AreRefused) {
  const Problem p = plain();
  EXPECT_THROW(reference::attention_backward(p.q, p.k, p.v, p.q, p.options), std::invalid_argument);
}

TEST(ReferenceBackwardBounds, GrowWithLse) {
  const Tensor q = Tensor::of<double>({{1}}), k = Tensor::of<double>({{320}}), dout = Tensor::of<double>({{-3}});
  const auto bound_of_dv = [&](double scale) {
    return reference::attention_backward(q, k, k, dout, {.scale = scale}).bound.dv.at<double>(0, 0);
  };
  EXPECT_DOUBLE_EQ(bound_of_dv(1), 3 * (1 + 320 / 32.0));
  EXPECT_DOUBLE_EQ(bound_of_dv(-1), 3 * (1 + 320 / 32.0));
  EXPECT_DOUBLE_EQ(bound_of_dv(0.1), 3 * (1 + 32 / 32.0));
}

TEST(ReferenceBackwardBounds, HoldTheSmallestNormalNumber) {
  const Tensor q = Tensor::of<float>({{1}}), k = Tensor::of<float>({{0}, {-90}}), dout = Tensor::of<float>({{2}});
  const reference::AttentionBackwardResult result = reference::attention_backward(q, k, k, dout, {.scale = 1});
  const double dv = result.gradients.dv.at<double>(1, 0), least = std::numeric_limits<float>::min();
  EXPECT_LT(dv, least);
  EXPECT_GE(kGradient.eps_factor * std::numeric_limits<float>::epsilon() * result.bound.dv.at<double>(1, 0),
            2 * least);
}

}  // namespace
}  // namespace saccade::test
