// Activations and norms as functions against the same in double precision, on every instruction set of the
// machine.
#include "saccade/functional.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "support/each_isa.h"
#include "support/refusal.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

using ::testing::HasSubstr;

class FunctionalOnIsa : public EachIsa {};
SACCADE_FOR_EACH_ISA(FunctionalOnIsa);

constexpr Activation kActivations[] = {Activation::none,      Activation::relu,       Activation::gelu,
                                       Activation::gelu_tanh, Activation::quick_gelu, Activation::silu,
                                       Activation::tanh};

double exact(Activation activation, double x) {
  switch (activation) {
    case Activation::none:
      return x;
    case Activation::relu:
      return x > 0 ? x : 0;
    case Activation::gelu:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Activation::gelu_tanh:
      return x / (1 + std::exp(-2 * std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case Activation::quick_gelu:
      return x / (1 + std::exp(-1.702 * x));
    case Activation::silu:
      return x / (1 + std::exp(-x));
    case Activation::tanh:
      return std::tanh(x);
  }
  return 0;
}

/// Numbers of every size up to 40, and both zeros.
Tensor arguments() {
  Tensor x(DType::f32, {4, 1001});
  for (std::int64_t i = 0; i < x.size(); ++i)
    x.values<float>()[static_cast<std::size_t>(i)] = static_cast<float>(
        (i % 2 ? 1 : -1) * 40.0 * std::pow(static_cast<double>(i) / static_cast<double>(x.size()), 3));
  return x;
}

TEST_P(FunctionalOnIsa, ActivationsAreExactToSomeUnits) {
  const Tensor x = arguments();
  for (const Activation activation : kActivations) {
    Tensor y(DType::f32, x.shape());
    activate(activation, x, y);
    for (std::size_t i = 0; i < x.values<float>().size(); ++i) {
      const double wanted = exact(activation, x.values<float>()[i]);
      // e^v is exact to some 2 |v| units, and |v| is at most 100 where the result is a normal number.
      EXPECT_NEAR(y.values<float>()[i], wanted, 200 * 6e-8 * std::abs(wanted) + 1e-37)
          << static_cast<int>(activation) << " of " << x.values<float>()[i];
      if (std::abs(x.values<float>()[i]) < 3) {
        EXPECT_NEAR(y.values<float>()[i], wanted, 16 * 6e-8 * std::abs(wanted))
            << static_cast<int>(activation) << " of " << x.values<float>()[i];
      }
    }
  }
}

TEST_P(FunctionalOnIsa, ActivationsKeepNaN) {
  Tensor x = Tensor::of<float>({1.0f, std::numeric_limits<float>::quiet_NaN(), -1.0f});
  for (const Activation activation : kActivations) {
    Tensor y(DType::f32, {3});
    activate(activation, x, y);
    EXPECT_TRUE(std::isnan(y.at<float>(1)) && std::isfinite(y.at<float>(0)) && std::isfinite(y.at<float>(2)));
  }
}

TEST(Functional, ActivationsHaveTheirSlopes) {
  // Against central differences, whose error is some h^2 and e / h. Not at 0, where relu has a corner.
  const double h = 1e-5;
  Tensor x(DType::f32, {3, 41}), dout(DType::f32, {3, 41}), dx(DType::f32, {3, 41});
  for (std::size_t i = 0; i < x.values<float>().size(); ++i) {
    x.values<float>()[i] = 0.15f * static_cast<float>(i) - 9.05f;
    dout.values<float>()[i] = i % 2 ? 2.0f : -0.5f;
  }
  for (const Activation activation : kActivations) {
    activate_backward(activation, x, dout, dx);
    for (std::size_t i = 0; i < x.values<float>().size(); ++i) {
      const double at = x.values<float>()[i];
      EXPECT_NEAR(dx.values<float>()[i],
                  dout.values<float>()[i] * (exact(activation, at + h) - exact(activation, at - h)) / (2 * h),
                  1e-6)
          << static_cast<int>(activation) << " at " << at;
    }
  }
}

TEST_P(FunctionalOnIsa, GatesMultiply) {
  std::uint64_t seed = 0;
  // Two halves of the rows of one product, as models store them.
  Tensor both = random_tensor({5, 74}, ++seed);
  const TensorView gate = both.view().slice(1, 0, 37), x = both.view().slice(1, 37, 74);
  Tensor y(DType::f32, {5, 37}), wanted(DType::f32, {5, 37});
  activate(Activation::silu, gate, wanted);
  activate_gated(Activation::silu, gate, x, y);
  for (std::int64_t row = 0; row < 5; ++row)
    for (std::int64_t i = 0; i < 37; ++i)
      EXPECT_EQ(y.at<float>(row, i), wanted.at<float>(row, i) * both.at<float>(row, i + 37));
  activate_gated(Activation::silu, gate, x, both.mutable_view().slice(1, 0, 37));
  for (std::int64_t row = 0; row < 5; ++row)
    for (std::int64_t i = 0; i < 37; ++i) EXPECT_EQ(both.at<float>(row, i), y.at<float>(row, i));
}

TEST_P(FunctionalOnIsa, NormsAreExact) {
  std::uint64_t seed = 0;
  for (const std::int64_t dim : {1, 3, 17, 64, 100, 257}) {
    // Heads of tokens, of which each row is twice as long as what is read.
    Tensor all = random_tensor({4, 3, 2 * dim}, ++seed);
    for (float& number : all.values<float>()) number = 2 * number + 3;
    const TensorView x = all.view().slice(2, 0, dim);
    const Tensor scale = random_tensor({dim}, ++seed), shift = random_tensor({dim}, ++seed);
    Tensor layer(DType::f32, {4, 3, dim}), rms(DType::f32, {4, 3, dim});
    layer_norm(x, scale, shift, layer, 1e-5);
    rms_norm(x, scale, rms, 1e-6);
    for (std::int64_t i = 0; i < 4; ++i) {
      for (std::int64_t h = 0; h < 3; ++h) {
        double mean = 0, squares = 0, variance = 0;
        for (std::int64_t d = 0; d < dim; ++d) {
          const double number = all.at<float>(i, h, d);
          mean += number / static_cast<double>(dim), squares += number * number / static_cast<double>(dim);
        }
        for (std::int64_t d = 0; d < dim; ++d)
          variance += std::pow(all.at<float>(i, h, d) - mean, 2) / static_cast<double>(dim);
        for (std::int64_t d = 0; d < dim; ++d) {
          const double number = all.at<float>(i, h, d), s = scale.at<float>(d), b = shift.at<float>(d);
          const double normalised = (number - mean) / std::sqrt(variance + 1e-5);
          EXPECT_NEAR(layer.at<float>(i, h, d), s * normalised + b,
                      1e-6 * (std::abs(s * normalised) + std::abs(b)) + 1e-6);
          const double root_mean_square = s * number / std::sqrt(squares + 1e-6);
          EXPECT_NEAR(rms.at<float>(i, h, d), root_mean_square, 5e-7 * std::abs(root_mean_square));
        }
      }
    }
    // In place.
    rms_norm(x, scale, all.mutable_view().slice(2, 0, dim), 1e-6);
    for (std::int64_t i = 0; i < 4; ++i)
      for (std::int64_t d = 0; d < dim; ++d) EXPECT_EQ(all.at<float>(i, 1, d), rms.at<float>(i, 1, d));
  }
}

TEST(Functional, RefusesWhatItCannotTake) {
  Tensor x(DType::f32, {2, 4}), y(DType::f32, {2, 4}), other(DType::f32, {2, 3}), scale(DType::f32, {4});
  EXPECT_THAT(refusal([&] { activate(Activation::relu, x, other); }),
              HasSubstr("[activate] y must have the shape of x, [2, 4]"));
  EXPECT_THAT(refusal([&] { activate(Activation::relu, Tensor(DType::f64, {2}), y); }),
              HasSubstr("x must be f32, but it is f64"));
  EXPECT_THAT(refusal([&] { activate_backward(Activation::relu, x, other, y); }),
              HasSubstr("[activate_backward] dout must have the shape of x, [2, 4]"));
  EXPECT_THAT(refusal([&] { activate_gated(Activation::relu, other, x, y); }),
              HasSubstr("[activate_gated] gate must have the shape of x"));
  EXPECT_THAT(refusal([&] { rms_norm(x, Tensor(DType::f32, {3}), y); }),
              HasSubstr("[rms_norm] scale must have shape [4]"));
  EXPECT_THAT(refusal([&] { rms_norm(x, scale, y, -1); }), HasSubstr("eps must be 0 or more, got -1"));
  EXPECT_THAT(refusal([&] { layer_norm(x, scale, Tensor(DType::f32, {2}), y); }),
              HasSubstr("[layer_norm] shift must have shape [4]"));
  Tensor empty(DType::f32, {0, 4});
  rms_norm(empty, scale, empty);
}

}  // namespace
}  // namespace saccade::test
