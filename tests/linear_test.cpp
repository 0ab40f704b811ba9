// linear() against the f64 matrix product, on every instruction set of the machine.
#include "saccade/linear.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "each_isa.h"
#include "expect_close.h"
#include "saccade/reference.h"
#include "tensors.h"

namespace saccade::test {
namespace {

Tensor absolute(Tensor tensor) {
  for (double& x : tensor.values<double>()) x = std::abs(x);
  return tensor;
}

/// x W + b with every operation rounded to float.
Tensor naive_product(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  Tensor y(DType::f32, {x.shape(0), weight.shape(1)});
  for (std::int64_t i = 0; i < x.shape(0); ++i) {
    for (std::int64_t c = 0; c < weight.shape(1); ++c) {
      volatile float sum = 0.0f;
      for (std::int64_t d = 0; d < x.shape(1); ++d) {
        const volatile float product = x.at<float>(i, d) * weight.at<float>(d, c);
        sum = sum + product;
      }
      y.at<float>(i, c) = bias.size() > 0 ? sum + bias.at<float>(c) : sum;
    }
  }
  return y;
}

/// Checks a product whose weight is [d_in, d_out] in both layouts.
void check_product(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  SCOPED_TRACE(to_string(x.shape()) + " times " + to_string(weight.shape()) +
               (bias.size() > 0 ? " with bias" : ""));
  Tensor reference = reference::matmul(x, weight);
  Tensor bound =
      reference::matmul(absolute(Tensor::copy_of(x, DType::f64)), absolute(Tensor::copy_of(weight, DType::f64)));
  if (bias.size() > 0) {
    for (std::int64_t i = 0; i < reference.shape(0); ++i) {
      for (std::int64_t c = 0; c < reference.shape(1); ++c) {
        reference.at<double>(i, c) += bias.at<float>(c);
        bound.at<double>(i, c) += std::abs(bias.at<float>(c));
      }
    }
  }
  const Tensor naive = naive_product(x, weight, bias);
  LinearOptions options{.weight_layout = WeightLayout::in_out};
  if (bias.size() > 0) options.bias = bias;
  const Tensor in_out = linear(x, weight, options);
  expect_close(in_out, {reference, naive, bound});
  const Tensor transposed = Tensor::copy_of(weight.view().transposed(0, 1));
  options.weight_layout = WeightLayout::out_in;
  const Tensor out_in = linear(x, transposed, options);
  EXPECT_EQ(std::memcmp(in_out.data(), out_in.data(), in_out.bytes()), 0) << "the layouts differ";
}

class LinearOnIsa : public EachIsa {};
SACCADE_FOR_EACH_ISA(LinearOnIsa);

TEST_P(LinearOnIsa, AgreesWithTheReference) {
  std::uint64_t seed = 1;
  for (std::int64_t rows : {1, 2, 6, 7, 13, 64, 65, 400}) {
    for (std::int64_t d_in : {1, 2, 3, 4, 5, 16, 17, 33, 100}) {
      for (std::int64_t d_out : {1, 2, 4, 8, 15, 16, 17, 31, 64, 65, 130}) {
        const Tensor x = random_tensor({rows, d_in}, seed++), weight = random_tensor({d_in, d_out}, seed++);
        check_product(x, weight, seed % 4 == 0 ? random_tensor({d_out}, seed++) : Tensor());
      }
    }
  }
}

TEST_P(LinearOnIsa, ARowHasTheSameBitsWhateverTheBatchAndTheThreads) {
  for (const auto& [d_in, d_out] : {std::pair<std::int64_t, std::int64_t>{3, 4}, {64, 64}, {100, 130}}) {
    const Tensor x = random_tensor({900, d_in}, 1), weight = random_tensor({d_out, d_in}, 2),
                 bias = random_tensor({d_out}, 3);
    const Tensor all = linear(x, weight, {.bias = bias, .num_threads = 1});
    for (int threads : {2, 3, 7}) {
      const Tensor same = linear(x, weight, {.bias = bias, .num_threads = threads});
      EXPECT_EQ(std::memcmp(same.data(), all.data(), all.bytes()), 0) << threads << " threads";
    }
    for (std::int64_t row : {0, 5, 383, 384, 899}) {
      const Tensor one = linear(x.view().slice(0, row, row + 1), weight, {.bias = bias});
      const Tensor same = Tensor::copy_of(all.view().slice(0, row, row + 1));
      EXPECT_EQ(std::memcmp(one.data(), same.data(), one.bytes()), 0) << "row " << row;
    }
  }
}

TEST_P(LinearOnIsa, TakesAnyOuterStrides) {
  const Tensor x = random_tensor({2, 5, 7, 9}, 1), weight = random_tensor({6, 9}, 2);
  const Tensor expected = linear(Tensor::copy_of(x.view().transposed(0, 2)), weight);
  EXPECT_EQ(expected.shape(), (Shape{7, 5, 2, 6}));
  const Tensor got = linear(x.view().transposed(0, 2), weight);
  EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.bytes()), 0);
  Tensor y(DType::f32, {2, 5, 7, 6});
  linear(x.view().transposed(0, 2), weight, y.mutable_view().transposed(0, 2));
  const Tensor back = Tensor::copy_of(y.view().transposed(0, 2));
  EXPECT_EQ(std::memcmp(back.data(), expected.data(), back.bytes()), 0);
  const Tensor vector = linear(random_tensor({9}, 3), weight);
  EXPECT_EQ(vector.shape(), (Shape{6}));
}

TEST_P(LinearOnIsa, EmptyInputsGiveEmptyOrBiasOnly) {
  EXPECT_EQ(linear(Tensor(DType::f32, {0, 4}), random_tensor({3, 4}, 1)).shape(), (Shape{0, 3}));
  const Tensor bias = random_tensor({20}, 1);
  const Tensor y = linear(Tensor(DType::f32, {2, 0}), Tensor(DType::f32, {20, 0}), {.bias = bias});
  for (std::int64_t c = 0; c < 20; ++c) EXPECT_EQ(y.at<float>(1, c), bias.at<float>(c));
}

TEST(Linear, RefusesWhatDoesNotFitAndSaysWhy) {
  const Tensor x = random_tensor({2, 3}, 1);
  const auto refusal = [](auto call) -> std::string {
    try {
      call();
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal([&] {
              linear(x, random_tensor({5, 4}, 2));
            }),
            "[linear] x has d_in 3 (shape [2, 3]) but weight takes 4 (shape [5, 4])");
  EXPECT_THAT(refusal([&] { linear(x, random_tensor({5}, 2)); }), ::testing::HasSubstr("weight two"));
  EXPECT_EQ(refusal([&] { linear(x, Tensor(DType::f64, {5, 3})); }), "[linear] weight must be f32, but it is f64");
  const Tensor bias = random_tensor({4}, 1);
  EXPECT_EQ(refusal([&] {
              linear(x, random_tensor({5, 3}, 2), {.bias = bias});
            }),
            "[linear] bias must have shape [5], but it has shape [4]");
  Tensor y(DType::f32, {2, 6});
  EXPECT_EQ(
      refusal([&] {
        linear(x, random_tensor({5, 3}, 2), y);
      }),
      "[linear] y must have the shape of x with d_out 5 last, but x has shape [2, 3] and y has shape [2, 6]");
  EXPECT_EQ(refusal([&] {
              linear(x, random_tensor({5, 3}, 2), {.num_threads = -1});
            }),
            "[linear] num_threads must be 0 or more, got -1");
}

}  // namespace
}  // namespace saccade::test
