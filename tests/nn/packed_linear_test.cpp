// PackedLinear against linear(), whose bits it promises, on every instruction set of the machine.
#include "saccade/packed_linear.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "saccade/runtime.h"
#include "support/each_isa.h"
#include "support/refusal.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

using ::testing::HasSubstr;

class PackedLinearOnIsa : public EachIsa {
 protected:
  void TearDown() override {
    set_num_threads(0);
    EachIsa::TearDown();
  }
};
SACCADE_FOR_EACH_ISA(PackedLinearOnIsa);

struct Case {
  std::int64_t rows, d_in, d_out;
};
constexpr Case kCases[] = {{0, 5, 3},   {1, 1, 1},     {1, 37, 5},    {1, 300, 130},   {1, 576, 1000}, {2, 17, 33},
                           {7, 64, 64}, {13, 257, 31}, {30, 513, 97}, {60, 100, 2000}, {131, 33, 70}};

/// What linear() gives with the same weights in f32.
Tensor expected(const Tensor& x, const Tensor& weight, WeightLayout layout, const TensorView& bias) {
  return linear(x, Tensor::copy_of(weight, DType::f32), {.weight_layout = layout, .bias = bias});
}

TEST_P(PackedLinearOnIsa, HasTheBitsOfLinear) {
  std::uint64_t seed = 0;
#ifdef SACCADE_BLAS
  GTEST_SKIP() << "with SACCADE_BLAS the bits of linear() are those of the BLAS";
#endif
  for (const Case& c : kCases) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      for (const WeightLayout layout : {WeightLayout::out_in, WeightLayout::in_out}) {
        SCOPED_TRACE(std::to_string(c.rows) + " x " + std::to_string(c.d_in) + " x " + std::to_string(c.d_out) +
                     " " + std::string(name_of(dtype)));
        const bool in_out = layout == WeightLayout::in_out;
        const Tensor x = random_tensor({c.rows, c.d_in}, ++seed);
        const Tensor weight = Tensor::copy_of(
            random_tensor(in_out ? Shape{c.d_in, c.d_out} : Shape{c.d_out, c.d_in}, ++seed), dtype);
        const Tensor bias = random_tensor({c.d_out}, ++seed);
        for (const int threads : {1, 3}) {
          EXPECT_TRUE(same_bits(PackedLinear(weight, {.weight_layout = layout}).forward(x, threads),
                                expected(x, weight, layout, {})));
          EXPECT_TRUE(same_bits(PackedLinear(weight, {.weight_layout = layout, .bias = bias}).forward(x, threads),
                                expected(x, weight, layout, bias)));
        }
      }
    }
  }
}

TEST_P(PackedLinearOnIsa, AppliesItsActivationLast) {
  std::uint64_t seed = 0;
  for (const Case& c : kCases) {
    const Tensor x = random_tensor({c.rows, c.d_in}, ++seed), weight = random_tensor({c.d_out, c.d_in}, ++seed),
                 bias = random_tensor({c.d_out}, ++seed);
    Tensor wanted = PackedLinear(weight, {.bias = bias}).forward(x);
    activate(Activation::gelu, wanted, wanted);
    EXPECT_TRUE(
        same_bits(PackedLinear(weight, {.bias = bias, .activation = Activation::gelu}).forward(x), wanted));
  }
}

TEST_P(PackedLinearOnIsa, AddsToWhatIsThere) {
  std::uint64_t seed = 0;
  for (const Case& c : kCases) {
    const Tensor x = random_tensor({c.rows, c.d_in}, ++seed), weight = random_tensor({c.d_out, c.d_in}, ++seed),
                 bias = random_tensor({c.d_out}, ++seed);
    Tensor sum = random_tensor({c.rows, c.d_out}, ++seed);
    const PackedLinear projection(weight, {.bias = bias});
    const Tensor before = sum, product = projection.forward(x);
    projection.add_to(x, sum);
    for (std::int64_t i = 0; i < sum.size(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      const float wanted = before.values<float>()[at] + product.values<float>()[at];
      // Both are sums of d_in + 2 terms in different orders.
      EXPECT_NEAR(sum.values<float>()[at], wanted, 1e-6 * static_cast<double>(c.d_in + 16));
    }
  }
}

TEST_P(PackedLinearOnIsa, GoesBackAsLinearDoes) {
  std::uint64_t seed = 0;
  for (const Case& c : kCases) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      if (c.rows == 0) continue;
      const Tensor x = random_tensor({c.rows, c.d_in}, ++seed), bias = random_tensor({c.d_out}, ++seed),
                   weight = Tensor::copy_of(random_tensor({c.d_out, c.d_in}, ++seed), dtype),
                   dout = random_tensor({c.rows, c.d_out}, ++seed);
      const auto expected = [&](const TensorView& gradient) {
        Tensor dx(DType::f32, {c.rows, c.d_in});
        linear_backward(x, Tensor::copy_of(weight, DType::f32), gradient, {.dx = dx});
        return dx;
      };
      EXPECT_TRUE(same_bits(PackedLinear(weight, {.bias = bias}).backward(x, dout), expected(dout)));
      Tensor before = linear(x, Tensor::copy_of(weight, DType::f32), {.bias = bias});
      activate_backward(Activation::silu, before, dout, before);
      EXPECT_TRUE(same_bits(PackedLinear(weight, {.bias = bias, .activation = Activation::silu}).backward(x, dout),
                            expected(before)));
    }
  }
}

TEST_P(PackedLinearOnIsa, TakesAnyOuterStrides) {
  std::uint64_t seed = 0;
  const Tensor x = random_tensor({3, 5, 40}, ++seed), weight = random_tensor({24, 40}, ++seed);
  const PackedLinear projection(weight);
  Tensor y(DType::f32, {5, 3, 24});
  projection.forward(x, y.mutable_view().transposed(0, 1));
  const Tensor whole = projection.forward(x);
  EXPECT_TRUE(same_bits(Tensor::copy_of(y.view().transposed(0, 1)), whole));
}

TEST(PackedLinear, KeepsTheTypeOfItsWeights) {
  const Tensor weight(DType::f32, {64, 64});
  EXPECT_EQ(PackedLinear(weight).bytes(), 64u * 64 * 4);
  EXPECT_EQ(PackedLinear(Tensor::copy_of(weight, DType::bf16)).bytes(), 64u * 64 * 2);
}

TEST(PackedLinear, RefusesWhatItCannotTake) {
  const Tensor weight(DType::f32, {6, 4}), x(DType::f32, {2, 4}), bias(DType::f32, {4});
  EXPECT_THAT(refusal([&] { PackedLinear{Tensor(DType::f32, {4})}; }),
              HasSubstr("[PackedLinear] weight must have rank 2"));
  EXPECT_THAT(refusal([&] {
                PackedLinear{Tensor(DType::f64, {4, 4})};
              }),
              HasSubstr("weight must be f32, bf16 or f16, but it is f64"));
  EXPECT_THAT(refusal([&] {
                PackedLinear{Tensor(DType::f32, {0, 4})};
              }),
              HasSubstr("no empty dimension, but it has shape [0, 4]"));
  EXPECT_THAT(refusal([&] {
                PackedLinear{weight, {.bias = bias}};
              }),
              HasSubstr("bias must have shape [6], but it has shape [4]"));
  EXPECT_THAT(refusal([&] {
                PackedLinear(weight).forward(Tensor(DType::f32, {2, 5}));
              }),
              HasSubstr("x must be [..., 4]"));
  EXPECT_THAT(refusal([&] {
                PackedLinear(weight).forward(Tensor(DType::bf16, {2, 4}));
              }),
              HasSubstr("x must be f32, but it is bf16"));
  Tensor y(DType::f32, {3, 6});
  EXPECT_THAT(refusal([&] { PackedLinear(weight).forward(x, y); }),
              HasSubstr("y must have the shape of x with d_out 6 last"));
  EXPECT_THAT(refusal([&] { PackedLinear(weight).backward(x, y); }),
              HasSubstr("dout must have the shape of x with d_out 6 last"));
  EXPECT_THAT(refusal([&] { PackedLinear().backward(x, y); }), HasSubstr("this projection has no weight"));
  EXPECT_THAT(refusal([&] { PackedLinear(weight).forward(x, -1); }),
              HasSubstr("num_threads must be 0 or more, got -1"));
  Tensor sum(DType::f32, {2, 6});
  EXPECT_THAT(refusal([&] {
                PackedLinear{weight, {.activation = Activation::relu}}.add_to(x, sum);
              }),
              HasSubstr("add_to has no activation"));
  EXPECT_THAT(refusal([&] { PackedLinear().forward(x); }), HasSubstr("this projection has no weight"));
}

}  // namespace
}  // namespace saccade::test
