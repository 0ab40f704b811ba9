// Linear and FeedForward of layers.h against naive code, on every instruction set of the machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nn/layer_checks.h"
#include "saccade/layers.h"
#include "support/numbers.h"

namespace saccade::test {
namespace {

using ::testing::ElementsAre;

class FeedForwardOnIsa : public EachIsaAndThreads {};
SACCADE_FOR_EACH_ISA(FeedForwardOnIsa);

// ---- Linear --------------------------------------------------------------------------------------------------

Linear linear_of(const Tensor& weight, const Tensor& bias) {
  Linear layer(weight.shape(1), weight.shape(0));
  layer.load_state_dict({{"weight", weight}, {"bias", bias}});
  return layer;
}

TEST_P(FeedForwardOnIsa, LinearIsTheProductAndItsGradients) {
  std::uint64_t seed = 1;
  for (const auto& [d_in, d_out] : {std::pair<std::int64_t, std::int64_t>{1, 3}, {17, 64}, {100, 1}, {64, 257}}) {
    for (const std::int64_t rows : kRows) {
      SCOPED_TRACE(to_string(Shape{rows, d_in, d_out}));
      const Tensors in{{"x", random_tensor({rows, d_in}, seed++)},
                       {"weight", random_tensor({d_out, d_in}, seed++)},
                       {"bias", random_tensor({d_out}, seed++)},
                       {"dout", random_tensor({rows, d_out}, seed++)}};
      Linear layer = linear_of(in.at("weight"), in.at("bias"));
      Tensors got{{"y", layer.forward(in.at("x"))}, {"dx", layer.backward(in.at("dout"))}};
      got["dweight"] = gradient_of(layer, "weight");
      got["dbias"] = gradient_of(layer, "bias");
      expect_like_by_hand(got, linear_by_hand<double>(in), linear_by_hand<float>(in));
    }
  }
}

/// Small integers, whose sums are exact.
Tensor integers(const Shape& shape) {
  Tensor result(DType::f32, shape);
  for (std::size_t i = 0; i < result.values<float>().size(); ++i)
    result.values<float>()[i] = static_cast<float>(i % 7) - 3.0f;
  return result;
}

TEST(FeedForward, LinearAddsToItsGradientsAndForgetsItsInput) {
  const Tensor x = integers({2, 5, 3}), dout = integers({2, 5, 4});
  TorchGenerator generator(1);
  Linear layer(3, 4, generator);
  EXPECT_EQ(layer.forward(x).shape(), (Shape{2, 5, 4}));
  EXPECT_EQ(layer.backward(dout).shape(), x.shape());
  expect_nothing_kept(layer, dout);
  const Tensor once = gradient_of(layer, "weight");
  layer.forward(Tensor::copy_of(x));
  layer.backward(dout);
  const Tensor twice = gradient_of(layer, "weight");
  for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(twice.values<float>()[i], 2 * once.values<float>()[i]);
  layer.zero_grad();
  EXPECT_THAT(numbers_of(gradient_of(layer, "bias")), ElementsAre(0, 0, 0, 0));
  layer.eval();
  layer.forward(x);
  expect_nothing_kept(layer, dout);
}

TEST(FeedForward, LinearIsDrawnAsByPyTorchAndMayHaveNoBias) {
  TorchGenerator generator(123), same(123);
  Linear layer(3, 2, generator);
  const auto drawn = same.linear(3, 2);
  const StateDict state = layer.state_dict();
  EXPECT_TRUE(same_bits(state.at("weight"), drawn.weight));
  EXPECT_TRUE(same_bits(state.at("bias"), drawn.bias));
  Linear plain(3, 2, generator, false);
  EXPECT_EQ(plain.state_dict().size(), 1u);
  plain.forward(random_tensor({4, 3}, 1));
  plain.backward(random_tensor({4, 2}, 2));
  EXPECT_EQ(gradient_of(plain, "weight").shape(), (Shape{2, 3}));
}

// ---- FeedForward ---------------------------------------------------------------------------------------------

Tensors feed_forward_inputs(std::int64_t rows, std::int64_t dim, std::int64_t hidden) {
  return {{"x", random_tensor({rows, dim}, 1)},  {"weight0", random_tensor({hidden, dim}, 2)},
          {"bias0", random_tensor({hidden}, 3)}, {"weight2", random_tensor({dim, hidden}, 4)},
          {"bias2", random_tensor({dim}, 5)},    {"dout", random_tensor({rows, dim}, 6)}};
}

FeedForward feed_forward_of(const Tensors& in) {
  FeedForward layer(in.at("weight0").shape(1), in.at("weight0").shape(0));
  layer.load_state_dict({{"layers.0.weight", in.at("weight0")},
                         {"layers.0.bias", in.at("bias0")},
                         {"layers.2.weight", in.at("weight2")},
                         {"layers.2.bias", in.at("bias2")}});
  return layer;
}

TEST_P(FeedForwardOnIsa, OutputAndGradients) {
  for (const auto& [dim, hidden] : {std::pair<std::int64_t, std::int64_t>{1, 3}, {17, 64}, {64, 100}}) {
    for (const std::int64_t rows : kRows) {
      SCOPED_TRACE(to_string(Shape{rows, dim, hidden}));
      const Tensors in = feed_forward_inputs(rows, dim, hidden);
      FeedForward layer = feed_forward_of(in);
      Tensors got{{"y", layer.forward(in.at("x"))}, {"dx", layer.backward(in.at("dout"))}};
      for (const std::string which : {"0", "2"}) {
        got["dweight" + which] = gradient_of(layer, "layers." + which + ".weight");
        got["dbias" + which] = gradient_of(layer, "layers." + which + ".bias");
      }
      expect_like_by_hand(got, feed_forward_by_hand<double>(in), feed_forward_by_hand<float>(in));
      layer.eval();
      EXPECT_TRUE(same_bits(layer.forward(in.at("x")), got.at("y")));
      EXPECT_THROW(layer.backward(in.at("dout")), std::logic_error);
    }
  }
}

TEST_P(FeedForwardOnIsa, BlockIsTheSameHoweverDivided) {
  const Tensors in = feed_forward_inputs(700, 64, 100);
  expect_same_however_divided([&] { return feed_forward_of(in); }, in.at("x"), in.at("dout"));
}

TEST(FeedForward, GradientsByDifferences) {
  const Tensors in = feed_forward_inputs(2, 3, 7);
  const auto loss = [](const Tensors& at) {
    return weighted_sum(feed_forward_by_hand<double>(at).values.at("y"), at.at("dout"));
  };
  Tensors differences;
  for (const std::string name : {"x", "weight0", "bias0", "weight2", "bias2"})
    differences["d" + name] = by_differences(loss, in_precision<double>(in), name);
  expect_like_by_hand(differences, feed_forward_by_hand<double>(in), feed_forward_by_hand<float>(in));
}

TEST(FeedForward, BlockIsDrawnLayerAfterLayerAndGoesThroughACheckpoint) {
  TorchGenerator generator(3), same(3);
  FeedForward layer(4, 8, generator), other(4, 8);
  const auto first = same.linear(4, 8), second = same.linear(8, 4);
  const StateDict state = layer.state_dict();
  EXPECT_TRUE(same_bits(state.at("layers.0.weight"), first.weight));
  EXPECT_TRUE(same_bits(state.at("layers.2.bias"), second.bias));
  EXPECT_EQ(state.size(), 4u);
  other.load_state_dict(state);
  const Tensor x = random_tensor({5, 4}, 1);
  EXPECT_TRUE(same_bits(layer.forward(x), other.forward(x)));
  EXPECT_EQ(refusal([&] { other.load_state_dict(Linear(4, 8).state_dict()); }),
            "[FeedForward] cannot load: missing layers.0.weight, layers.0.bias, layers.2.weight, layers.2.bias; "
            "unexpected bias, weight");
}

// ---- Both ----------------------------------------------------------------------------------------------------

TEST_P(FeedForwardOnIsa, InputsMayHaveAnyStridesAndRank) {
  const Tensor x = random_tensor({5, 3, 17}, 1), dout = random_tensor({5, 3, 17}, 2);
  TorchGenerator generator(1);
  expect_same_for_any_strides(Linear(17, 17, generator), x, dout);
  expect_same_for_any_strides(FeedForward(17, 20, generator), x, dout);
}

TEST(FeedForward, RefusesWhatDoesNotFitAndSaysWhy) {
  const Tensor x = random_tensor({2, 3}, 1);
  EXPECT_EQ(refusal([] { Linear(0, 3); }), "[Linear] d_in and d_out must be at least 1, got 0 and 3");
  EXPECT_EQ(refusal([&] { Linear(4, 2).forward(x); }), "[Linear] x must be [..., 4], but it has shape [2, 3]");
  EXPECT_EQ(refusal([&] { FeedForward(4, 8).forward(x); }),
            "[FeedForward] x must be [..., 4], but it has shape [2, 3]");
  EXPECT_EQ(refusal_of_dout(Linear(3, 3), x),
            "[Linear] dout must have the shape of the output, [2, 3], but it has shape [3, 3]");
  EXPECT_EQ(refusal_of_dout(FeedForward(3, 4), x),
            "[Linear] dout must have the shape of the output, [2, 3], but it has shape [3, 3]");
}

}  // namespace
}  // namespace saccade::test
