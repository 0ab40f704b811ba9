// Quantized rows: how far numbers are from the stored ones, rows that are not ordinary, and Hadamard transforms.
#include "saccade/quantize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "support/each_isa.h"
#include "support/refusal.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

using ::testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kMax = std::numeric_limits<float>::max();
constexpr float kDenormal = std::numeric_limits<float>::denorm_min();
constexpr DType kTypes[] = {DType::i8, DType::i4, DType::f8e4m3};
constexpr std::int64_t kDims[] = {1, 3, 15, 16, 17, 31, 32, 33, 64, 80, 128, 300};

class Quantize : public EachIsa {};
SACCADE_FOR_EACH_ISA(Quantize);

/// Rows of numbers of many sizes; every third has an outlier.
Tensor rows_of(std::int64_t dim, float factor) {
  Tensor x = random_tensor({40, dim}, 7 + static_cast<std::uint64_t>(dim));
  for (std::int64_t row = 0; row < 40; ++row) {
    const float size = factor * std::ldexp(1.0F, static_cast<int>(row % 9) - 4);
    for (std::int64_t d = 0; d < dim; ++d) x.at<float>(row, d) *= size;
    if (row % 3 == 0) x.at<float>(row, row % dim) *= 30;
  }
  return x;
}

/// The most that the stored number may be off, as the header says.
double bound(const QuantizedTensor& q, std::int64_t row, std::int64_t d, double x, double stored) {
  const double scale = double{q.scale.at<float>(row, 0)};
  constexpr double kRounding = 1 + 1e-6;  // of products with the scale
  if (q.dtype == DType::i8) return scale / 2 * kRounding;
  if (q.dtype == DType::f8e4m3) {
    const double magnitude = std::abs(stored) / scale;
    const double place = magnitude < 0x1p-6 ? 0x1p-9 : std::ldexp(1.0, std::ilogb(magnitude) - 3);
    return scale * place / 2 * kRounding;
  }
  const int multiplier = q.multipliers.at<std::int8_t>(row, d / 16);
  const double step = scale * std::abs(multiplier), in_steps = x / (scale * multiplier);
  if (in_steps > 7) return std::abs(x - 7 * scale * multiplier) + step * 1e-6;  // clipped
  if (in_steps < -8) return std::abs(x + 8 * scale * multiplier) + step * 1e-6;
  return step / 2 * kRounding;
}

TEST_P(Quantize, StoresEveryNumberWithinHalfAStep) {
  for (const DType dtype : kTypes) {
    for (const std::int64_t dim : kDims) {
      for (const float factor : {1.0F, 1e-30F, 1e34F}) {
        const Tensor x = rows_of(dim, factor);
        const QuantizedTensor q = quantize(x, dtype);
        const Tensor stored = dequantize(q);
        ASSERT_EQ(stored.shape(), x.shape());
        for (std::int64_t row = 0; row < x.shape(0); ++row)
          for (std::int64_t d = 0; d < dim; ++d) {
            const double given = x.at<float>(row, d), kept = stored.at<float>(row, d);
            ASSERT_LE(std::abs(given - kept), bound(q, row, d, given, kept))
                << name_of(dtype) << " dim " << dim << " row " << row << ": " << given << " is " << kept;
          }
      }
    }
  }
}

TEST_P(Quantize, UsesTheWholeRange) {
  for (const std::int64_t dim : kDims) {
    const Tensor x = rows_of(dim, 1);
    const QuantizedTensor q = quantize(x, DType::i8);
    for (std::int64_t row = 0; row < x.shape(0); ++row) {
      int largest = 0;
      for (std::int64_t d = 0; d < dim; ++d)
        largest = std::max(largest, std::abs(q.numbers.at<std::int8_t>(row, d)));
      EXPECT_EQ(largest, 127);
    }
    const QuantizedTensor four = quantize(x, DType::i4);
    int largest = 0;
    for (const std::int8_t m : four.multipliers.values<std::int8_t>())
      largest = std::max<int>(largest, std::abs(m));
    EXPECT_EQ(largest, 15);
  }
}

TEST_P(Quantize, KeepsZerosNansTinyAndHugeRows) {
  const std::vector<float> values{0, kNan, std::numeric_limits<float>::infinity(), kDenormal, 1e-42F, 3e38F, kMax};
  for (const DType dtype : kTypes) {
    for (const std::int64_t dim : {5, 64}) {
      Tensor x(DType::f32, {static_cast<std::int64_t>(values.size()), dim});
      for (std::size_t row = 0; row < values.size(); ++row) {
        const auto r = static_cast<std::int64_t>(row);
        x.at<float>(r, 3) = -values[row];
        x.at<float>(r, 1) = values[row] / 4;
      }
      const QuantizedTensor q = quantize(x, dtype);
      const Tensor stored = dequantize(q);
      for (std::int64_t row = 0; row < x.shape(0); ++row)
        for (std::int64_t d = 0; d < dim; ++d) {
          const float given = x.at<float>(row, d), kept = stored.at<float>(row, d);
          SCOPED_TRACE(std::string(name_of(dtype)) + " row " + std::to_string(row) + " d " + std::to_string(d));
          if (row == 0) {
            EXPECT_EQ(kept, 0.0F);
            EXPECT_EQ(q.scale.at<float>(row, 0), 0.0F);
          } else if (row <= 2) {
            EXPECT_TRUE(std::isnan(kept));
          } else {
            EXPECT_TRUE(std::isfinite(kept));
            EXPECT_LE(std::abs(double{given} - double{kept}),
                      bound(q, row, d, given, kept) + double{kDenormal} / 2);
          }
        }
    }
  }
}

TEST_P(Quantize, ReadsAllNumbersOf8Bits) {
  Tensor bytes(DType::f8e4m3, {1, 256}), integers(DType::i8, {1, 256});
  for (std::int64_t i = 0; i < 256; ++i) {
    bytes.at<float8_e4m3>(0, i).bits = static_cast<std::uint8_t>(i);
    integers.at<std::int8_t>(0, i) = static_cast<std::int8_t>(i - 128);
  }
  const Tensor read = dequantize(bytes, {}), whole = dequantize(integers, Tensor::of<float>({0.5F}));
  for (std::int64_t i = 0; i < 256; ++i) {
    const float wanted = bytes.at<float8_e4m3>(0, i);
    EXPECT_TRUE(read.at<float>(0, i) == wanted || (std::isnan(wanted) && std::isnan(read.at<float>(0, i)))) << i;
    EXPECT_EQ(whole.at<float>(0, i), 0.5F * static_cast<float>(i - 128));
  }
}

TEST_P(Quantize, ReadsScalesThatBroadcast) {
  Tensor x(DType::i8, {2, 3, 5});
  for (std::size_t i = 0; i < 30; ++i) x.values<std::int8_t>()[i] = static_cast<std::int8_t>(i);
  for (const Shape& shape : {Shape{1}, Shape{5}, Shape{3, 1}, Shape{2, 1, 1}, Shape{2, 1, 5}, Shape{2, 3, 1}}) {
    Tensor scale = random_tensor(shape, 3);
    const Tensor read = dequantize(x, scale);
    for (std::int64_t i = 0; i < 2; ++i)
      for (std::int64_t j = 0; j < 3; ++j)
        for (std::int64_t d = 0; d < 5; ++d) {
          std::int64_t at = 0;
          const std::int64_t index[] = {i, j, d};
          for (std::size_t axis = 0; axis < shape.size(); ++axis) {
            const std::int64_t length = shape[axis];
            at = at * length + (length == 1 ? 0 : index[3 - shape.size() + axis]);
          }
          EXPECT_EQ(read.at<float>(i, j, d), static_cast<float>(x.at<std::int8_t>(i, j, d)) *
                                                 scale.values<float>()[static_cast<std::size_t>(at)]);
        }
  }
}

TEST_P(Quantize, HadamardIsItsOwnInverseAndKeepsProducts) {
  for (const std::int64_t dim : {1, 2, 6, 7, 8, 48, 64, 96, 128, 256}) {
    const Tensor x = random_tensor({5, dim}, 1), y = random_tensor({5, dim}, 2);
    const Tensor a = hadamard(x), b = hadamard(y), back = hadamard(a);
    for (std::int64_t row = 0; row < 5; ++row) {
      double before = 0, after = 0;
      for (std::int64_t d = 0; d < dim; ++d) {
        EXPECT_NEAR(back.at<float>(row, d), x.at<float>(row, d), 2e-6);
        before += double{x.at<float>(row, d)} * double{y.at<float>(row, d)};
        after += double{a.at<float>(row, d)} * double{b.at<float>(row, d)};
      }
      EXPECT_NEAR(before, after, 1e-4);
    }
  }
  Tensor unit(DType::f32, {64});
  unit.values<float>()[5] = 1;
  const Tensor spread = hadamard(unit);
  for (std::int64_t d = 0; d < 64; ++d)
    EXPECT_NEAR(spread.at<float>(d), __builtin_parity(static_cast<unsigned>(d & 5)) ? -0.125 : 0.125, 1e-7) << d;
}

TEST(QuantizeArguments, AreRefusedWithAReason) {
  const Tensor x(DType::f32, {2, 8}), whole(DType::i8, {2, 8}), scale(DType::f32, {2, 1});
  EXPECT_THAT(refusal([&] { quantize(x, DType::bf16); }),
              HasSubstr("dtype must be i8, i4 or f8e4m3, but it is bf16"));
  EXPECT_THAT(refusal([&] { quantize(whole, DType::i8); }),
              HasSubstr("x must be f32, bf16, f16 or f64, but it is i8"));
  EXPECT_THAT(refusal([&] { dequantize(x, scale); }), HasSubstr("x must be i8, i4 or f8e4m3, but it is f32"));
  EXPECT_THAT(refusal([&] { dequantize(whole, {}); }), HasSubstr("x is i8, which needs scale"));
  EXPECT_THAT(refusal([&] {
                dequantize(whole, Tensor(DType::f32, {3, 1}));
              }),
              HasSubstr("scale has shape [3, 1]"));
  EXPECT_THAT(refusal([&] { dequantize(whole, scale, whole); }), HasSubstr("has no multipliers"));
  EXPECT_THAT(refusal([&] { dequantize(quantize(x, DType::i4).view(), scale); }), HasSubstr("needs multipliers"));
  EXPECT_THAT(refusal([&] { hadamard(whole); }), HasSubstr("[hadamard] x must be"));
}

}  // namespace
}  // namespace saccade::test
