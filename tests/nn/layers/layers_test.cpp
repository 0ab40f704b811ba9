// The layers without products against naive code, on every instruction set of the machine.
#include "saccade/layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "nn/layer_checks.h"
#include "support/numbers.h"

namespace saccade::test {
namespace {

class LayersOnIsa : public EachIsaAndThreads {};
SACCADE_FOR_EACH_ISA(LayersOnIsa);

// ---- Embedding -----------------------------------------------------------------------------------------------

TEST_P(LayersOnIsa, EmbeddingPicksRowsAndAddsUpTheirGradientsInOrder) {
  for (const std::int64_t dim : kDims) {
    SCOPED_TRACE(dim);
    TorchGenerator generator(7);
    Embedding layer(11, dim, generator);
    const Tensor table = layer.state_dict().at("weight");
    EXPECT_TRUE(same_bits(table, TorchGenerator(7).normal({11, dim}, 0, 1)));
    Tensor tokens(DType::i64, {3, 130});
    for (std::size_t i = 0; i < 390; ++i) tokens.values<std::int64_t>()[i] = static_cast<std::int64_t>(i * i % 11);
    const Tensor dout = random_tensor({3, 130, dim}, 1);
    const Tensor y = layer.forward(tokens);
    layer.backward(dout);
    Tensor gradient(DType::f32, {11, dim});
    for (std::int64_t i = 0; i < 390; ++i) {
      const std::int64_t token = tokens.values<std::int64_t>()[static_cast<std::size_t>(i)];
      for (std::int64_t c = 0; c < dim; ++c) {
        EXPECT_EQ(y.at<float>(i / 130, i % 130, c), table.at<float>(token, c));
        gradient.at<float>(token, c) += dout.at<float>(i / 130, i % 130, c);
      }
    }
    EXPECT_TRUE(same_bits(gradient_of(layer, "weight"), gradient));
    expect_nothing_kept(layer, dout);
    for (const int threads : {1, 3}) {
      set_num_threads(threads);
      layer.zero_grad();
      layer.forward(tokens);
      layer.backward(dout);
      EXPECT_TRUE(same_bits(gradient_of(layer, "weight"), gradient)) << threads;
    }
  }
}

TEST(Layers, EmbeddingRefusesTokensThatItDoesNotHave) {
  Embedding layer(5, 2);
  EXPECT_EQ(refusal([&] {
              layer.forward(Tensor::of<std::int64_t>({0, 5}));
            }),
            "[Embedding] tokens must be in [0, 5), but one is 5");
  EXPECT_EQ(refusal([&] { layer.forward(Tensor::of<std::int64_t>({-1})); }),
            "[Embedding] tokens must be in [0, 5), but one is -1");
  EXPECT_EQ(refusal([&] { layer.forward(Tensor(DType::f32, {2})); }),
            "[Embedding] tokens must be i64, but it is f32");
  EXPECT_EQ(layer.forward(Tensor(DType::i64, {0})).shape(), (Shape{0, 2}));
}

// ---- LayerNorm -----------------------------------------------------------------------------------------------

LayerNorm layer_norm_of(const Tensors& in, double eps) {
  LayerNorm layer(in.at("scale").size(), eps);
  layer.load_state_dict({{"scale", in.at("scale")}, {"shift", in.at("shift")}});
  return layer;
}

Tensors layer_norm_inputs(std::int64_t rows, std::int64_t dim, float offset = 0) {
  Tensor x = random_tensor({rows, dim}, 1);
  for (float& number : x.values<float>()) number += offset;
  return {{"x", x},
          {"scale", random_tensor({dim}, 2)},
          {"shift", random_tensor({dim}, 3)},
          {"dout", random_tensor({rows, dim}, 4)}};
}

void check_layer_norm(const Tensors& in, double eps) {
  LayerNorm layer = layer_norm_of(in, eps);
  Tensors got{{"y", layer.forward(in.at("x"))}, {"dx", layer.backward(in.at("dout"))}};
  if (in.at("x").size() > 0) {
    got["dscale"] = gradient_of(layer, "scale");
    got["dshift"] = gradient_of(layer, "shift");
  }
  expect_like_by_hand(got, layer_norm_by_hand<double>(in, eps), layer_norm_by_hand<float>(in, eps));
  expect_nothing_kept(layer, in.at("dout"));
  layer.eval();
  EXPECT_TRUE(same_bits(layer.forward(in.at("x")), got.at("y")));
}

TEST_P(LayersOnIsa, LayerNormAndItsGradients) {
  for (const std::int64_t dim : kDims) {
    for (const std::int64_t rows : kRows) {
      SCOPED_TRACE(to_string(Shape{rows, dim}));
      check_layer_norm(layer_norm_inputs(rows, dim), 1e-5);
    }
  }
}

TEST_P(LayersOnIsa, LayerNormOfRowsFarFromZeroAndOfEqualNumbers) {
  check_layer_norm(layer_norm_inputs(7, 100, 1000), 1e-5);
  check_layer_norm(layer_norm_inputs(7, 257, -3e6f), 1e-5);
  Tensors in = layer_norm_inputs(2, 100);
  std::ranges::fill(in.at("x").values<float>(), 0.1f);
  LayerNorm layer = layer_norm_of(in, 1e-5);
  const Tensor y = layer.forward(in.at("x"));
  for (std::int64_t c = 0; c < 100; ++c) EXPECT_EQ(y.at<float>(1, c), in.at("shift").at<float>(c));
}

TEST_P(LayersOnIsa, LayerNormIsTheSameHoweverDivided) {
  const Tensors in = layer_norm_inputs(700, 257);
  expect_same_however_divided([&] { return layer_norm_of(in, 1e-5); }, in.at("x"), in.at("dout"));
}

TEST(Layers, LayerNormGradientsByDifferences) {
  const Tensors in = layer_norm_inputs(3, 17);
  const ByHand reference = layer_norm_by_hand<double>(in, 1e-5), naive = layer_norm_by_hand<float>(in, 1e-5);
  const auto loss = [](const Tensors& at) {
    return weighted_sum(layer_norm_by_hand<double>(at, 1e-5).values.at("y"), at.at("dout"));
  };
  Tensors differences;
  for (const std::string name : {"x", "scale", "shift"})
    differences["d" + name] = by_differences(loss, in_precision<double>(in), name);
  expect_like_by_hand(differences, reference, naive);
}

// ---- Gelu ----------------------------------------------------------------------------------------------------

TEST_P(LayersOnIsa, GeluAndItsGradient) {
  for (const std::int64_t dim : kDims) {
    for (const std::int64_t rows : kRows) {
      SCOPED_TRACE(to_string(Shape{rows, dim}));
      Tensors in{{"x", random_tensor({rows, dim}, 1)}, {"dout", random_tensor({rows, dim}, 2)}};
      for (float& number : in.at("x").values<float>()) number *= 3;
      Gelu layer;
      const Tensors got{{"y", layer.forward(in.at("x"))}, {"dx", layer.backward(in.at("dout"))}};
      expect_like_by_hand(got, gelu_by_hand<double>(in), gelu_by_hand<float>(in));
      expect_nothing_kept(layer, in.at("dout"));
      layer.eval();
      EXPECT_TRUE(same_bits(layer.forward(in.at("x")), got.at("y")));
    }
  }
}

TEST_P(LayersOnIsa, GeluAtItsEnds) {
  constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::of<float>({{0.0f, 40.0f, -40.0f, 1e30f, -1e30f, kInf, kNan}});
  Gelu layer;
  expect_same(layer.forward(x), Tensor::of<float>({{0.0f, 40.0f, 0.0f, 1e30f, 0.0f, kInf, kNan}}));
  const Tensor ones = Tensor::of<float>({{1, 1, 1, 1, 1, 1, 1}});
  expect_same(layer.backward(ones), Tensor::of<float>({{0.5f, 1, 0, 1, 0, 1, kNan}}));
}

TEST_P(LayersOnIsa, GeluIsTheSameHoweverDivided) {
  expect_same_however_divided([] { return Gelu(); }, random_tensor({700, 257}, 1), random_tensor({700, 257}, 2));
}

TEST(Layers, GeluGradientByDifferences) {
  const Tensors in{{"x", random_tensor({7, 17}, 1)}, {"dout", random_tensor({7, 17}, 2)}};
  const auto loss = [](const Tensors& at) {
    return weighted_sum(gelu_by_hand<double>(at).values.at("y"), at.at("dout"));
  };
  const Tensors differences{{"dx", by_differences(loss, in_precision<double>(in), "x")}};
  expect_like_by_hand(differences, gelu_by_hand<double>(in), gelu_by_hand<float>(in));
}

// ---- Dropout -------------------------------------------------------------------------------------------------

Tensor dropped_by_hand(const Tensor& x, std::uint64_t seed, std::uint32_t call, double p) {
  Tensor y(DType::f32, x.shape());
  for (std::int64_t r = 0; r < x.shape(0); ++r)
    for (std::int64_t c = 0; c < x.shape(1); ++c)
      if (dropout_keeps(seed, call, 0, static_cast<std::uint32_t>(r), static_cast<std::uint32_t>(c), p))
        y.at<float>(r, c) = x.at<float>(r, c) * static_cast<float>(1 / (1 - p));
  return y;
}

TEST_P(LayersOnIsa, DropoutKeepsByPositionAndDrawsTheSameBackwards) {
  for (const double p : {0.1, 0.5, 0.999}) {
    Dropout layer(p);
    layer.seed_dropout(0x123456789abcdef0);
    std::uint32_t call = 0;
    for (const std::int64_t dim : kDims) {
      for (const std::int64_t rows : kRows) {
        SCOPED_TRACE(to_string(Shape{rows, dim}));
        const Tensor x = random_tensor({rows, dim}, 1), dout = random_tensor({rows, dim}, 2);
        EXPECT_TRUE(same_bits(layer.forward(x), dropped_by_hand(x, 0x123456789abcdef0, call, p)));
        EXPECT_TRUE(same_bits(layer.backward(dout), dropped_by_hand(dout, 0x123456789abcdef0, call++, p)));
        expect_nothing_kept(layer, dout);
      }
    }
  }
}

TEST_P(LayersOnIsa, DropoutIsTheSameForAnyNumberOfThreads) {
  const Tensor x = random_tensor({7, 100, 257}, 1);
  const Tensor expected = dropped_by_hand(x.reshaped({700, 257}), 5, 0, 0.2).reshaped({7, 100, 257});
  Dropout layer(0.2);
  for (const int threads : {1, 2, 5}) {
    set_num_threads(threads);
    layer.seed_dropout(5);
    EXPECT_TRUE(same_bits(layer.forward(x), expected));
    EXPECT_TRUE(same_bits(layer.backward(x), expected));
  }
}

TEST(Layers, DropoutCopiesInEvaluationAndDropsAllOrNothingAtTheEnds) {
  Tensor x = random_tensor({3, 17}, 1);
  x.at<float>(1, 2) = std::numeric_limits<float>::quiet_NaN();
  Dropout layer(0.5), all(1.0), none(0.0);
  EXPECT_TRUE(same_bits(none.forward(x), x));
  EXPECT_TRUE(same_bits(none.backward(x), x));
  EXPECT_TRUE(same_bits(all.forward(x), Tensor(DType::f32, {3, 17})));
  layer.eval();
  EXPECT_TRUE(same_bits(layer.forward(x), x));
  expect_nothing_kept(layer, x);
  Dropout unseeded(0.5), another(0.5);
  const Tensor many = random_tensor({100, 100}, 1);
  EXPECT_FALSE(same_bits(unseeded.forward(many), another.forward(many)));
}

// ---- All -----------------------------------------------------------------------------------------------------

TEST_P(LayersOnIsa, InputsMayHaveAnyStridesAndRank) {
  const Tensor x = random_tensor({5, 3, 17}, 1), dout = random_tensor({5, 3, 17}, 2);
  expect_same_for_any_strides(LayerNorm(17), x, dout);
  expect_same_for_any_strides(Gelu(), x, dout);
  Dropout dropout(0.5);
  dropout.seed_dropout(1);
  expect_same_for_any_strides(dropout, x, dout);
}

TEST(Layers, RefuseWhatDoesNotFitAndSayWhy) {
  const Tensor x = random_tensor({2, 3}, 1);
  EXPECT_EQ(refusal([] { Embedding(3, 0); }),
            "[Embedding] num_embeddings and dim must be at least 1, got 3 and 0");
  EXPECT_EQ(refusal([] { LayerNorm(0); }), "[LayerNorm] dim must be at least 1, got 0");
  EXPECT_EQ(refusal([] { LayerNorm(3, -1); }), "[LayerNorm] eps must be 0 or more, got -1");
  EXPECT_EQ(refusal([] { Dropout(1.5); }), "[Dropout] p must be in [0, 1], got 1.5");
  EXPECT_EQ(refusal([&] { LayerNorm(4).forward(x); }), "[LayerNorm] x must be [..., 4], but it has shape [2, 3]");
  EXPECT_EQ(refusal([&] { Gelu().forward(Tensor(DType::f64, {3})); }), "[Gelu] x must be f32, but it is f64");
  EXPECT_EQ(refusal([&] { Gelu().forward(TensorView()); }), "[Gelu] x must have at least one dimension");
  const std::string end = "dout must have the shape of the output, [2, 3], but it has shape [3, 3]";
  EXPECT_EQ(refusal_of_dout(LayerNorm(3), x), "[LayerNorm] " + end);
  EXPECT_EQ(refusal_of_dout(Gelu(), x), "[Gelu] " + end);
  EXPECT_EQ(refusal_of_dout(Dropout(0.5), x), "[Dropout] " + end);
}

}  // namespace
}  // namespace saccade::test
