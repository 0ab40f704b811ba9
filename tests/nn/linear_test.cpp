// linear() and its gradients against f64 matrix products, on every instruction set of the machine.
#include "saccade/linear.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "saccade/reference.h"
#include "support/each_isa.h"
#include "support/expect_close.h"
#include "support/refusal.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

#ifdef SACCADE_BLAS
constexpr bool kPromisesBits = false;
#else
constexpr bool kPromisesBits = true;
#endif
#define SACCADE_SKIP_WITHOUT_BITS() \
  if (!kPromisesBits) GTEST_SKIP() << "with SACCADE_BLAS the bits are those of the BLAS"

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

/// The expected result of a product of f32 matrices.
struct ExpectedProduct {
  Tensor reference, naive, bound;

  ExpectedProduct(const Tensor& a, const Tensor& b, const Tensor& bias = Tensor())
      : reference(reference::matmul(a, b)),
        naive(naive_product(a, b, bias)),
        bound(reference::matmul(absolute(Tensor::copy_of(a, DType::f64)),
                                absolute(Tensor::copy_of(b, DType::f64)))) {
    for (std::int64_t i = 0; bias.size() > 0 && i < reference.shape(0); ++i) {
      for (std::int64_t c = 0; c < reference.shape(1); ++c) {
        reference.at<double>(i, c) += bias.at<float>(c);
        bound.at<double>(i, c) += std::abs(bias.at<float>(c));
      }
    }
  }
  operator Expected() const { return {reference, naive, bound}; }
};

/// Checks a product whose weight is [d_in, d_out] in both layouts.
void check_product(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  SCOPED_TRACE(to_string(x.shape()) + " times " + to_string(weight.shape()) +
               (bias.size() > 0 ? " with bias" : ""));
  LinearOptions options{.weight_layout = WeightLayout::in_out};
  if (bias.size() > 0) options.bias = bias;
  const ExpectedProduct expected(x, weight, bias);
  const Tensor in_out = linear(x, weight, options);
  expect_close(in_out, expected);
  const Tensor transposed = Tensor::copy_of(weight.view().transposed(0, 1));
  options.weight_layout = WeightLayout::out_in;
  const Tensor out_in = linear(x, transposed, options);
  expect_close(out_in, expected);
  if (kPromisesBits) {
    EXPECT_TRUE(same_bits(in_out, out_in)) << "the layouts differ";
  }
}

constexpr float kOne = 1.0F;

Tensor transposed(const Tensor& matrix) { return Tensor::copy_of(matrix.view().transposed(0, 1)); }

/// The gradients of a projection.
struct Gradients {
  Tensor dx, dweight, dbias;

  Gradients(const TensorView& x, const TensorView& weight, const TensorView& dout, const LinearOptions& options)
      : dx(DType::f32, Shape(x.dims().begin(), x.dims().end())),
        dweight(DType::f32, Shape(weight.dims().begin(), weight.dims().end())),
        dbias(DType::f32, {dout.shape[static_cast<std::size_t>(dout.rank - 1)]}) {
    for (Tensor* tensor : {&dx, &dweight, &dbias})
      for (float& number : tensor->values<float>()) number = std::numeric_limits<float>::quiet_NaN();
    linear_backward(x, weight, dout, {.dx = dx, .dweight = dweight, .dbias = dbias}, options);
  }
};

class LinearOnIsa : public EachIsa {};
SACCADE_FOR_EACH_ISA(LinearOnIsa);

TEST_P(LinearOnIsa, AgreesWithTheReference) {
  std::uint64_t seed = 1;
  for (std::int64_t rows : {1, 2, 6, 7, 13, 64, 65, 400}) {
    for (std::int64_t d_in : {1, 2, 3, 4, 5, 16, 17, 33, 100, 257}) {
      for (std::int64_t d_out : {1, 2, 4, 8, 15, 16, 17, 31, 64, 65, 130}) {
        const Tensor x = random_tensor({rows, d_in}, seed++), weight = random_tensor({d_in, d_out}, seed++);
        check_product(x, weight, seed % 4 == 0 ? random_tensor({d_out}, seed++) : Tensor());
      }
    }
  }
}

/// Larger than the blocks of every instruction set in each dimension.
TEST_P(LinearOnIsa, LargeProductsAgreeWithTheReference) {
  const Tensor x = random_tensor({55, 530}, 1), weight = random_tensor({530, 801}, 2),
               bias = random_tensor({801}, 3);
  check_product(x, weight, bias);
}

TEST_P(LinearOnIsa, ARowHasTheSameBitsWhateverTheBatchAndTheThreads) {
  SACCADE_SKIP_WITHOUT_BITS();
  for (const auto& [d_in, d_out] : {std::pair<std::int64_t, std::int64_t>{3, 4}, {64, 64}, {300, 130}}) {
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

/// Kernels for few rows, which do not pack contiguous columns of weights, have the bits of those that do.
TEST_P(LinearOnIsa, NarrowRowsHaveTheSameBitsWhateverTheBatchAndTheLayout) {
  SACCADE_SKIP_WITHOUT_BITS();
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const auto& [d_in, d_out] :
         {std::pair<std::int64_t, std::int64_t>{32, 32}, {100, 70}, {1100, 65}, {2048, 33}}) {
      const Tensor x = random_tensor({300, d_in}, 1, dtype), bias = random_tensor({d_out}, 3);
      Tensor weight = random_tensor({d_out, d_in}, 2, dtype);
      for (const bool has_bad : {false, true}) {
        if (has_bad)
          copy(Tensor::of<float>({HUGE_VALF}).view(), MutableTensorView(weight).select(0, 7).slice(0, 3, 4));
        const Tensor in_out = Tensor::copy_of(weight.view().transposed(0, 1));
        const Tensor all = linear(x, in_out, {.weight_layout = WeightLayout::in_out, .bias = bias});
        for (const std::int64_t rows : {1, 16, 17, 32, 40, 127, 128, 129, 300}) {
          const Tensor some = linear(x.view().slice(0, 0, rows), weight, {.bias = bias});
          EXPECT_TRUE(same_bits(some, Tensor::copy_of(all.view().slice(0, 0, rows))))
              << name_of(dtype) << ' ' << d_in << " to " << d_out << ", " << rows << " rows";
        }
      }
    }
  }
}

/// A random matrix in `dtype`, and the same numbers in f32.
struct Narrow {
  Tensor narrow, wide;

  Narrow(const Shape& shape, std::uint64_t seed, DType dtype)
      : narrow(Tensor::copy_of(random_tensor(shape, seed), dtype)), wide(Tensor::copy_of(narrow, DType::f32)) {}
};

constexpr std::int64_t kSidesOfNarrow[][3] = {{1, 5, 3},     {1, 70, 65},   {7, 33, 40},    {33, 64, 32},
                                              {70, 130, 97}, {64, 32, 530}, {34, 1100, 48}, {300, 40, 33}};

TEST_P(LinearOnIsa, NarrowTypesAgreeWithTheReferenceAndAreRoundedOnce) {
  SACCADE_SKIP_WITHOUT_BITS();
  std::uint64_t seed = 1;
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const auto& [rows, d_in, d_out] : kSidesOfNarrow) {
      SCOPED_TRACE(std::string(name_of(dtype)) + " " + to_string(Shape{rows, d_in, d_out}));
      const Narrow x({rows, d_in}, seed++, dtype), weight({d_in, d_out}, seed++, dtype),
          bias({d_out}, seed++, dtype);
      const Tensor turned = transposed(weight.narrow);
      const ExpectedProduct expected(x.wide, weight.wide, bias.wide);
      Tensor in_out(DType::f32, {rows, d_out}), out_in(DType::f32, {rows, d_out});
      linear(x.narrow, weight.narrow, in_out, {.weight_layout = WeightLayout::in_out, .bias = bias.narrow});
      linear(x.narrow, turned, out_in, {.bias = bias.wide});
      expect_close(in_out, expected);
      EXPECT_TRUE(same_bits(in_out, out_in)) << "the layouts differ";
      for (const int threads : {1, 3}) {
        const Tensor y = linear(x.narrow, turned, {.bias = bias.wide, .num_threads = threads});
        EXPECT_TRUE(same_bits(y, Tensor::copy_of(in_out, dtype))) << threads << " threads";
      }
      const Tensor last = linear(x.narrow.view().slice(0, rows - 1, rows), turned, {.bias = bias.wide});
      EXPECT_TRUE(same_bits(last, Tensor::copy_of(in_out.view().slice(0, rows - 1, rows), dtype)))
          << "a row alone";
    }
  }
}

TEST_P(LinearOnIsa, GradientsOfNarrowTypesAgreeWithTheReference) {
  std::uint64_t seed = 1;
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const auto& [rows, d_in, d_out] : kSidesOfNarrow) {
      SCOPED_TRACE(std::string(name_of(dtype)) + " " + to_string(Shape{rows, d_in, d_out}));
      const Narrow x({rows, d_in}, seed++, dtype), weight({d_out, d_in}, seed++, dtype),
          dout({rows, d_out}, seed++, dtype);
      const Tensor ones = Tensor::copy_of(TensorView(&kOne, DType::f32, Shape{1, rows}, Shape{0, 0}));
      const ExpectedProduct dx(dout.wide, weight.wide), dweight(transposed(dout.wide), x.wide),
          dbias(ones, dout.wide);
      const Gradients exact(x.narrow, weight.narrow, dout.narrow, {});
      expect_close(exact.dx, dx);
      expect_close(exact.dweight, dweight);
      expect_close(exact.dbias.view().reshaped({1, d_out}), dbias);
      Tensor narrow_dx(dtype, {rows, d_in}), narrow_dweight(dtype, {d_out, d_in}), narrow_dbias(dtype, {d_out});
      linear_backward(x.narrow, weight.narrow, dout.narrow,
                      {.dx = narrow_dx, .dweight = narrow_dweight, .dbias = narrow_dbias});
      if (!kPromisesBits) continue;
      EXPECT_TRUE(same_bits(narrow_dx, Tensor::copy_of(exact.dx, dtype)));
      EXPECT_TRUE(same_bits(narrow_dweight, Tensor::copy_of(exact.dweight, dtype)));
      EXPECT_TRUE(same_bits(narrow_dbias, Tensor::copy_of(exact.dbias, dtype)));
      linear_backward(x.narrow, weight.narrow, dout.narrow, {.dweight = narrow_dweight, .accumulate = true});
      for (std::int64_t i = 0; i < d_out; ++i) {
        const double sum = 2 * static_cast<double>(exact.dweight.at<float>(i, 0));
        const double got = Tensor::copy_of(narrow_dweight, DType::f64).at<double>(i, 0);
        EXPECT_NEAR(got, sum, (dtype == DType::bf16 ? 0x1p-7 : 0x1p-10) * std::abs(sum) + 1e-5);
      }
    }
  }
}

/// Numbers that tiles cannot hold concern only their own row or column, and tiny ones are not lost.
TEST_P(LinearOnIsa, BadNumbersStayInTheirRowsAndColumns) {
  SACCADE_SKIP_WITHOUT_BITS();
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    SCOPED_TRACE(name_of(dtype));
    Tensor x = random_tensor({70, 96}, 1), weight = random_tensor({66, 96}, 2);
    const Tensor good = linear(Tensor::copy_of(x, dtype), Tensor::copy_of(weight, dtype));
    x.at<float>(3, 95) = std::numeric_limits<float>::quiet_NaN();
    x.at<float>(40, 0) = kInfinite;
    weight.at<float>(65, 50) = -kInfinite;
    const Tensor y =
        Tensor::copy_of(linear(Tensor::copy_of(x, dtype), Tensor::copy_of(weight, dtype)), DType::f32);
    for (std::int64_t i = 0; i < 70; ++i) {
      for (std::int64_t j = 0; j < 66; ++j) {
        const float was =
            Tensor::copy_of(good.view().slice(0, i, i + 1).slice(1, j, j + 1), DType::f32).at<float>(0, 0);
        if (i == 3)
          EXPECT_TRUE(std::isnan(y.at<float>(i, j)));
        else if (i == 40 || j == 65)
          EXPECT_FALSE(std::isfinite(y.at<float>(i, j))) << i << ", " << j;
        else
          EXPECT_EQ(y.at<float>(i, j), was) << i << ", " << j;
      }
    }
  }
}

TEST_P(LinearOnIsa, TinyNumbersAreNotLost) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    SCOPED_TRACE(name_of(dtype));
    const Narrow x({128, 64}, 1, dtype);
    Narrow dout({128, 48}, 2, dtype);
    for (std::int64_t i = 0; i < 128; ++i) dout.wide.at<float>(i, 7) *= 1e-36F;
    dout.narrow = Tensor::copy_of(dout.wide, dtype);
    dout.wide = Tensor::copy_of(dout.narrow, DType::f32);
    const Narrow weight({48, 64}, 3, dtype);
    const Gradients gradients(x.narrow, weight.narrow, dout.narrow, {});
    expect_close(gradients.dweight, ExpectedProduct(transposed(dout.wide), x.wide));
    float largest = 0;
    for (std::int64_t c = 0; c < 64; ++c) largest = std::max(largest, std::abs(gradients.dweight.at<float>(7, c)));
    EXPECT_GT(largest, 1e-36F);
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

void expect_same(const Gradients& a, const Gradients& b) {
  EXPECT_TRUE(same_bits(a.dx, b.dx)) << "dx";
  EXPECT_TRUE(same_bits(a.dweight, b.dweight)) << "dweight";
  EXPECT_TRUE(same_bits(a.dbias, b.dbias)) << "dbias";
}

TEST_P(LinearOnIsa, GradientsAgreeWithTheReference) {
  std::uint64_t seed = 1;
  for (std::int64_t rows : {1, 2, 6, 13, 65, 300}) {
    for (std::int64_t d_in : {1, 3, 4, 16, 33, 100}) {
      for (std::int64_t d_out : {1, 2, 4, 12, 17, 65, 130}) {
        SCOPED_TRACE(to_string(Shape{rows, d_in, d_out}));
        const Tensor x = random_tensor({rows, d_in}, seed++), weight = random_tensor({d_out, d_in}, seed++);
        const Tensor dout = random_tensor({rows, d_out}, seed++);
        Tensor ones(DType::f32, {1, rows});
        for (float& one : ones.values<float>()) one = 1.0f;
        const ExpectedProduct dx(dout, weight), dweight(transposed(dout), x), dbias(ones, dout);
        const Gradients out_in(x, weight, dout, {});
        Gradients in_out(x, transposed(weight), dout, {.weight_layout = WeightLayout::in_out});
        in_out.dweight = transposed(in_out.dweight);
        for (const Gradients* gradients : {&out_in, static_cast<const Gradients*>(&in_out)}) {
          expect_close(gradients->dx, dx);
          expect_close(gradients->dweight, dweight);
          expect_close(gradients->dbias.view().reshaped({1, d_out}), dbias);
        }
        // Tiles multiply the terms of f32 in an order in which the two sides are not alike.
        if (kPromisesBits && GetParam() != Isa::avx512amx) expect_same(in_out, out_in);
      }
    }
  }
}

TEST_P(LinearOnIsa, GradientsHaveTheSameBitsWhateverTheThreads) {
  SACCADE_SKIP_WITHOUT_BITS();
  for (const auto& [d_in, d_out] : {std::pair<std::int64_t, std::int64_t>{3, 4}, {64, 64}, {300, 130}}) {
    const Tensor x = random_tensor({900, d_in}, 1), weight = random_tensor({d_out, d_in}, 2),
                 dout = random_tensor({900, d_out}, 3);
    const Gradients one(x, weight, dout, {.num_threads = 1});
    for (int threads : {2, 3, 7}) expect_same(Gradients(x, weight, dout, {.num_threads = threads}), one);
    for (std::int64_t row : {0, 5, 191, 192, 899}) {
      const Gradients alone(x.view().slice(0, row, row + 1), weight, dout.view().slice(0, row, row + 1), {});
      EXPECT_TRUE(same_bits(alone.dx, Tensor::copy_of(one.dx.view().slice(0, row, row + 1)))) << "row " << row;
    }
  }
}

TEST_P(LinearOnIsa, AccumulatedGradientsGoOnWhereTheyWereLeft) {
  SACCADE_SKIP_WITHOUT_BITS();
  for (const WeightLayout layout : {WeightLayout::out_in, WeightLayout::in_out}) {
    const LinearOptions options{.weight_layout = layout};
    const Tensor x = random_tensor({90, 9}, 1), dout = random_tensor({90, 21}, 2);
    const Tensor weight = random_tensor(layout == WeightLayout::in_out ? Shape{9, 21} : Shape{21, 9}, 3);
    const Gradients all(x, weight, dout, options);
    Tensor dweight(DType::f32, weight.shape()), dbias(DType::f32, {21});
    for (const auto& [begin, end] : {std::pair<std::int64_t, std::int64_t>{0, 1}, {1, 50}, {50, 50}, {50, 90}})
      linear_backward(x.view().slice(0, begin, end), weight, dout.view().slice(0, begin, end),
                      {.dweight = dweight, .dbias = dbias, .accumulate = true}, options);
    EXPECT_TRUE(same_bits(dweight, all.dweight));
    EXPECT_TRUE(same_bits(dbias, all.dbias));
  }
}

TEST_P(LinearOnIsa, GradientsTakeAnyOuterStrides) {
  const Tensor x = random_tensor({2, 5, 7, 9}, 1), weight = random_tensor({6, 9}, 2),
               dout = random_tensor({7, 5, 2, 6}, 3);
  const TensorView turned = x.view().transposed(0, 2);
  const Gradients expected(Tensor::copy_of(turned), weight, dout, {});
  expect_same(Gradients(turned, weight, dout, {}), expected);

  Tensor dx(DType::f32, {2, 5, 7, 9}), wide(DType::f32, {6, 12});
  for (float& number : wide.values<float>()) number = 7.0f;
  linear_backward(turned, weight, dout,
                  {.dx = dx.mutable_view().transposed(0, 2), .dweight = wide.mutable_view().slice(1, 2, 11)});
  EXPECT_TRUE(same_bits(Tensor::copy_of(dx.view().transposed(0, 2)), expected.dx));
  EXPECT_TRUE(same_bits(Tensor::copy_of(wide.view().slice(1, 2, 11)), expected.dweight));
  for (std::int64_t i = 0; i < 6; ++i)
    for (std::int64_t c : {0, 1, 11}) EXPECT_EQ(wide.at<float>(i, c), 7.0f) << "beside the slice";

  const Tensor row = random_tensor({9}, 4), dout_row = random_tensor({6}, 5);
  const Gradients of_vector(row, weight, dout_row, {});
  const Gradients of_matrix(row.view().reshaped({1, 9}), weight, dout_row.view().reshaped({1, 6}), {});
  EXPECT_TRUE(same_bits(of_vector.dweight, of_matrix.dweight));
  EXPECT_TRUE(same_bits(of_vector.dbias, dout_row));
  EXPECT_EQ(std::memcmp(of_vector.dx.data(), of_matrix.dx.data(), of_vector.dx.bytes()), 0);
}

TEST_P(LinearOnIsa, WithoutRowsGradientsAreZeroOrStay) {
  for (const Shape& outer : {Shape{0}, Shape{3, 0}, Shape{0, 3}}) {
    Shape x_shape = outer, dout_shape = outer;
    x_shape.push_back(4);
    dout_shape.push_back(3);
    const Tensor x(DType::f32, x_shape), dout(DType::f32, dout_shape), weight = random_tensor({3, 4}, 1);
    const Gradients cleared(x, weight, dout, {});
    EXPECT_TRUE(same_bits(cleared.dweight, Tensor(DType::f32, {3, 4})));
    EXPECT_TRUE(same_bits(cleared.dbias, Tensor(DType::f32, {3})));
    Tensor dweight = weight;
    linear_backward(x, weight, dout, {.dweight = dweight, .accumulate = true});
    EXPECT_TRUE(same_bits(dweight, weight));
  }
}

TEST(Linear, GradientsRefuseWhatDoesNotFitAndSayWhy) {
  const Tensor x = random_tensor({2, 3}, 1), weight = random_tensor({5, 3}, 2), dout = random_tensor({2, 5}, 3);
  const auto refusal = [&](const TensorView& of_dout, const LinearGradients& gradients,
                           const LinearOptions& options = {}) -> std::string {
    return test::refusal([&] { linear_backward(x, weight, of_dout, gradients, options); });
  };
  EXPECT_EQ(
      refusal(random_tensor({2, 4}, 1), {}),
      "[linear_backward] dout must have the shape of x with d_out 5 last, but x has shape [2, 3] and dout has "
      "shape [2, 4]");
  EXPECT_EQ(refusal(Tensor(DType::f64, {2, 5}), {}),
            "[linear_backward] dout must be f32, bf16 or f16, but it is f64");
  EXPECT_EQ(refusal(dout, {}, {.weight_layout = WeightLayout::in_out}),
            "[linear_backward] x has d_in 3 (shape [2, 3]) but weight takes 5 (shape [5, 3])");
  Tensor wrong(DType::f32, {3, 2}), other_type(DType::f64, {5});
  EXPECT_EQ(refusal(dout, {.dx = wrong}),
            "[linear_backward] dx must have the shape of x, [2, 3], but it has shape [3, 2]");
  EXPECT_EQ(refusal(dout, {.dweight = wrong}),
            "[linear_backward] dweight must have the shape of weight, [5, 3], but it has shape [3, 2]");
  EXPECT_EQ(refusal(dout, {.dbias = wrong}),
            "[linear_backward] dbias must have shape [5], but it has shape [3, 2]");
  EXPECT_EQ(refusal(dout, {.dbias = other_type}),
            "[linear_backward] dbias must be f32, bf16 or f16, but it is f64");
  EXPECT_EQ(refusal(dout, {.dx = wrong.mutable_view().transposed(0, 1)}),
            "[linear_backward] dx must have a contiguous innermost dimension (stride 1), but its stride is 2");
  EXPECT_EQ(refusal(dout, {}, {.num_threads = -1}), "[linear_backward] num_threads must be 0 or more, got -1");
}

TEST(Linear, RefusesWhatDoesNotFitAndSaysWhy) {
  const Tensor x = random_tensor({2, 3}, 1);
  EXPECT_EQ(refusal([&] {
              linear(x, random_tensor({5, 4}, 2));
            }),
            "[linear] x has d_in 3 (shape [2, 3]) but weight takes 4 (shape [5, 4])");
  EXPECT_THAT(refusal([&] { linear(x, random_tensor({5}, 2)); }), ::testing::HasSubstr("weight two"));
  EXPECT_EQ(refusal([&] {
              linear(x, Tensor(DType::f64, {5, 3}));
            }),
            "[linear] weight must be f32, bf16 or f16, but it is f64");
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
