// Rope against the formula in long double, and the properties that attention needs.
#include "saccade/rope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>

#include "saccade/runtime.h"
#include "support/expect_close.h"
#include "support/refusal.h"

namespace saccade::test {
namespace {

Tensor random_tensor(Shape shape, std::uint64_t seed, DType dtype = DType::f32) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  Tensor result(DType::f64, std::move(shape));
  for (double& x : result.values<double>()) x = normal(random);
  return Tensor::copy_of(result, dtype);
}

void expect_same_bits(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.shape(), b.shape());
  ASSERT_EQ(a.dtype(), b.dtype());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.bytes()), 0);
}

Tensor rotated(const Rope& rope, const TensorView& x, std::int64_t start = 0, Layout layout = Layout::bhsd) {
  Tensor y(x.dtype, Shape(x.dims().begin(), x.dims().end()));
  rope.rotate(x, y, start, layout);
  return y;
}

/// A rotation of vectors [seqlen, dim] by the formula, every number computed in Real and returned as f64;
/// `absolute` adds the absolute values of the terms instead.
template <class Real>
Tensor by_formula(const Tensor& x, std::int64_t start, const RopeOptions& options, bool absolute = false) {
  Tensor y = Tensor::copy_of(x, DType::f64);
  const std::int64_t dim = options.rotary_dim == 0 ? x.shape(1) : options.rotary_dim;
  for (std::int64_t token = 0; token < x.shape(0); ++token) {
    for (std::int64_t i = 0; i < dim / 2; ++i) {
      const auto real = static_cast<Real>(dim);
      // Angles need double: in float, those of distant positions have no correct digits.
      using Angle = std::conditional_t<std::is_same_v<Real, float>, double, Real>;
      const Angle frequency = options.frequencies.empty()
                                  ? std::pow(static_cast<Angle>(options.base), static_cast<Angle>(-2 * i / real))
                                  : static_cast<Angle>(options.frequencies[static_cast<std::size_t>(i)]);
      const Angle angle =
          static_cast<Angle>(start + token) * frequency / static_cast<Angle>(options.scaling_factor);
      const auto c = static_cast<Real>(std::cos(angle)), s = static_cast<Real>(std::sin(angle));
      const bool half = options.pairs == RopePairs::half;
      double& first = y.at<double>(token, half ? i : 2 * i);
      double& second = y.at<double>(token, half ? i + dim / 2 : 2 * i + 1);
      const auto a = static_cast<Real>(first), b = static_cast<Real>(second);
      const Real ac = a * c, bs = b * s, bc = b * c, as = a * s;
      first = static_cast<double>(absolute ? std::abs(ac) + std::abs(bs) : ac - bs);
      second = static_cast<double>(absolute ? std::abs(bc) + std::abs(as) : bc + as);
    }
    for (std::int64_t i = dim; absolute && i < x.shape(1); ++i)
      y.at<double>(token, i) = std::abs(y.at<double>(token, i));
  }
  return y;
}

void check_formula(const Tensor& x, std::int64_t start, const RopeOptions& options) {
  SCOPED_TRACE(to_string(x.shape()) + " " + std::string(name_of(x.dtype())) + " from position " +
               std::to_string(start));
  const Tensor reference = by_formula<long double>(x, start, options);
  const Tensor bound = by_formula<long double>(x, start, options, true);
  const Tensor naive =
      x.dtype() == DType::f64 ? by_formula<double>(x, start, options) : by_formula<float>(x, start, options);
  expect_close(rotated(Rope(x.shape(1), options), x, start),
               {reference, Tensor::copy_of(naive, x.dtype()), bound});
}

TEST(Rope, FollowsTheFormula) {
  std::uint64_t seed = 1;
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    for (const RopePairs pairs : {RopePairs::half, RopePairs::interleaved}) {
      for (const std::int64_t dim : {2, 6, 64, 128, 130}) {
        for (const std::int64_t start : {0, 255, 65'500, 131'072, -300})
          check_formula(random_tensor({70, dim}, seed++, dtype), start, {.pairs = pairs});
      }
      check_formula(random_tensor({70, 40}, seed++, dtype), 1000,
                    {.base = 500000.0, .scaling_factor = 4.0, .rotary_dim = 24, .pairs = pairs});
      check_formula(random_tensor({70, 6}, seed++, dtype), 1000,
                    {.pairs = pairs, .frequencies = {0.5, 0.25, -0.125}});
    }
  }
}

TEST(Rope, KnowsWhereAQuarterTurnLeads) {
  const double quarter = std::acos(-1.0) / 2;
  const Rope rope(5, {.rotary_dim = 4, .pairs = RopePairs::half, .frequencies = {quarter, 0.0}});
  const Tensor x = Tensor::of<float>({{1, 2, 3, 4, 5}, {1, 2, 3, 4, 5}, {1, 2, 3, 4, 5}});
  const Tensor y = rotated(rope, x);
  const Tensor expected = Tensor::of<float>({{1, 2, 3, 4, 5}, {-3, 2, 1, 4, 5}, {-1, 2, -3, 4, 5}});
  for (std::size_t i = 0; i < 15; ++i) EXPECT_FLOAT_EQ(y.values<float>()[i], expected.values<float>()[i]) << i;
}

TEST(Rope, DotProductsDependOnTheDistanceOnly) {
  const RopeOptions options{.rotary_dim = 32};
  const Rope rope(48, options);
  const Tensor q = random_tensor({1, 48}, 1, DType::f64), k = random_tensor({1, 48}, 2, DType::f64);
  const auto dot = [](const Tensor& a, const Tensor& b) {
    double sum = 0.0;
    for (std::size_t i = 0; i < 48; ++i) sum += a.values<double>()[i] * b.values<double>()[i];
    return sum;
  };
  double terms = 0.0;
  for (std::size_t i = 0; i < 48; ++i) terms += 2 * std::abs(q.values<double>()[i] * k.values<double>()[i]);
  constexpr std::array<std::int64_t, 4> kDistances{-7, 0, 1, 300};
  constexpr std::array<std::int64_t, 6> kPositions{0, 1, 100, 255, 256, 70'000};
  const Shape shape{kDistances.size(), kPositions.size()};
  Tensor dots(DType::f64, shape), reference(DType::f64, shape), naive(DType::f64, shape), bound(DType::f64, shape);
  for (std::size_t i = 0; i < kDistances.size(); ++i) {
    const double without_positions = dot(by_formula<long double>(q, kDistances[i], options), k);
    for (std::size_t j = 0; j < kPositions.size(); ++j) {
      const std::int64_t n = kPositions[j], m = n + kDistances[i];
      dots.at<double>(i, j) = dot(rotated(rope, q, m), rotated(rope, k, n));
      reference.at<double>(i, j) = without_positions;
      naive.at<double>(i, j) = dot(by_formula<double>(q, m, options), by_formula<double>(k, n, options));
      bound.at<double>(i, j) = terms;
    }
  }
  expect_close(dots, {reference, naive, bound});
}

TEST(Rope, ThePairsAreThoseOfTheOtherOrderPermuted) {
  const Tensor x = random_tensor({100, 64}, 1);
  Tensor interleaved(DType::f32, {100, 64});
  for (std::int64_t token = 0; token < 100; ++token)
    for (std::int64_t i = 0; i < 64; ++i)
      interleaved.at<float>(token, 2 * (i % 32) + i / 32) = x.at<float>(token, i);
  const Tensor y = rotated(Rope(64, {.pairs = RopePairs::half}), x, 5);
  const Tensor other = rotated(Rope(64, {.pairs = RopePairs::interleaved}), interleaved, 5);
  for (std::int64_t token = 0; token < 100; ++token)
    for (std::int64_t i = 0; i < 64; ++i)
      ASSERT_EQ(other.at<float>(token, 2 * (i % 32) + i / 32), y.at<float>(token, i)) << token << ", " << i;
}

TEST(Rope, TokenByTokenGivesTheBitsOfTheWhole) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    const Tensor x = random_tensor({2, 3, 700, 20}, 1, dtype);
    const Rope rope(20);
    const Tensor whole = rotated(rope, x, 65'200);  // across the end of the table
    Tensor single(dtype, x.shape());
    for (std::int64_t i = 0; i < 700; ++i)
      rope.rotate(x.view().slice(2, i, i + 1), single.mutable_view().slice(2, i, i + 1), 65'200 + i);
    expect_same_bits(single, whole);
  }
}

TEST(Rope, ThreadsDoNotMatter) {
  const Tensor x = random_tensor({2, 8, 300, 64}, 1);
  const Rope rope(64);
  set_num_threads(1);
  const Tensor one = rotated(rope, x);
  set_num_threads(3);
  const Tensor three = rotated(rope, x);
  set_num_threads(0);
  expect_same_bits(one, three);
}

TEST(Rope, TakesAnyLayoutRankAndStrides) {
  const Tensor x = random_tensor({2, 3, 70, 8}, 1);
  const Rope rope(8);
  const Tensor y = rotated(rope, x, 9);
  const Tensor bshd = Tensor::copy_of(x.view().transposed(1, 2));
  expect_same_bits(Tensor::copy_of(rotated(rope, bshd, 9, Layout::bshd).view().transposed(1, 2)), y);
  const Tensor entry = Tensor::copy_of(y.view().select(0, 1)), head = Tensor::copy_of(entry.view().select(0, 2));
  expect_same_bits(rotated(rope, x.view().select(0, 1), 9), entry);
  expect_same_bits(rotated(rope, x.view().select(0, 1).select(0, 2), 9), head);
  expect_same_bits(rotated(rope, x.view().select(0, 1).select(0, 2), 9, Layout::bshd), head);
  // Strided numbers of a vector, and in place.
  Tensor scattered = Tensor::copy_of(x.view().transposed(2, 3));
  const MutableTensorView view = scattered.mutable_view().transposed(2, 3);
  rope.rotate(view, view, 9);
  expect_same_bits(Tensor::copy_of(view), y);
  expect_same_bits(rotated(rope, random_tensor({2, 0, 70, 8}, 1)), Tensor(DType::f32, {2, 0, 70, 8}));
}

TEST(Rope, TakesAPositionForEachToken) {
  const Tensor x = random_tensor({2, 3, 4, 8}, 1);
  const Rope rope(8);
  const Tensor each = Tensor::of<std::int64_t>({{0, 1, 2, 3}, {100, 7, 7, -2}});
  Tensor y(DType::f32, x.shape());
  rope.rotate(x, y, each);
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t i = 0; i < 4; ++i) {
      const Tensor token = Tensor::copy_of(x.view().slice(0, b, b + 1).slice(2, i, i + 1));
      expect_same_bits(Tensor::copy_of(y.view().slice(0, b, b + 1).slice(2, i, i + 1)),
                       rotated(rope, token, each.at<std::int64_t>(b, i)));
    }
  }
  rope.rotate(x, y, Tensor::of<std::int32_t>({5, 6, 7, 8}));
  expect_same_bits(y, rotated(rope, x, 5));
}

TEST(Rope, RoundsOnceToTheOutputsType) {
  const Tensor x = random_tensor({30, 16}, 1);
  const Rope rope(16);
  for (const DType dtype : {DType::bf16, DType::f16, DType::f64}) {
    Tensor y(dtype, x.shape());
    rope.rotate(x, y);
    expect_same_bits(y, Tensor::copy_of(rotated(rope, x), dtype));
  }
  Tensor y(DType::f32, x.shape());
  rope.rotate(Tensor::copy_of(x, DType::f64), y);
  expect_same_bits(y, Tensor::copy_of(rotated(rope, Tensor::copy_of(x, DType::f64)), DType::f32));
}

TEST(Rope, CopiesShareAndOutliveTheOriginal) {
  const Tensor x = random_tensor({3, 8}, 1);
  Rope copy(8);
  {
    const Rope original(8, {.base = 77.0});
    copy = original;
  }
  expect_same_bits(rotated(copy, x, 3), rotated(Rope(8, {.base = 77.0}), x, 3));
}

TEST(Rope, RefusesWhatItCannotBe) {
  const auto of = [](std::int64_t dim, const RopeOptions& options) {
    return refusal([&] { Rope(dim, options); });
  };
  EXPECT_EQ(of(0, {}), "[Rope] dim must lie between 1 and 2^40, got 0");
  EXPECT_EQ(of(7, {}), "[Rope] rotary_dim must be even and at most dim = 7, got 7");
  EXPECT_EQ(of(8, {.rotary_dim = 10}), "[Rope] rotary_dim must be even and at most dim = 8, got 10");
  EXPECT_EQ(of(8, {.rotary_dim = -2}), "[Rope] rotary_dim must be even and at most dim = 8, got -2");
  EXPECT_EQ(of(8, {.base = 0.0}), "[Rope] base must be a positive number, got 0");
  EXPECT_EQ(of(8, {.scaling_factor = -1.0}), "[Rope] scaling_factor must be a positive number, got -1");
  EXPECT_EQ(of(8, {.frequencies = {1.0}}), "[Rope] rotary_dim 8 takes 4 frequencies, got 1");
  EXPECT_EQ(of(2, {.frequencies = {std::numeric_limits<double>::infinity()}}),
            "[Rope] frequencies must be finite numbers, got inf");
}

TEST(Rope, RefusesTensorsThatDoNotFit) {
  const Rope rope(8);
  const Tensor x = random_tensor({2, 3, 4, 8}, 1);
  Tensor y(DType::f32, x.shape()), narrow(DType::f32, {2, 3, 4, 6}), flat(DType::f32, {8});
  Tensor other(DType::f32, {2, 3, 5, 8}), whole(DType::i32, x.shape());
  EXPECT_EQ(refusal([&] { rope.rotate(narrow, y); }), "[Rope::rotate] x has dim 6 but the embedding is for 8");
  EXPECT_EQ(refusal([&] { rope.rotate(flat, flat); }),
            "[Rope::rotate] x must have rank 2, 3 or 4, but it has shape [8]");
  EXPECT_EQ(refusal([&] { rope.rotate(x, whole); }),
            "[Rope::rotate] y must be of a floating-point type, but it is i32");
  EXPECT_EQ(refusal([&] { rope.rotate(x, other); }),
            "[Rope::rotate] y must have the shape of x, [2, 3, 4, 8], but it has shape [2, 3, 5, 8]");
  EXPECT_EQ(refusal([&] {
              rope.rotate(x, y, Tensor::of<float>({1, 2, 3, 4}));
            }),
            "[Rope::rotate] positions must be i32 or i64, but they are f32");
  EXPECT_EQ(refusal([&] {
              rope.rotate(x, y, Tensor::of<std::int32_t>({1, 2, 3}));
            }),
            "[Rope::rotate] positions must have shape [4], but it has shape [3]");
  EXPECT_EQ(refusal([&] {
              rope.rotate(x, y, Tensor(DType::i32, {3, 4}));
            }),
            "[Rope::rotate] positions must have shape [2, 4], but it has shape [3, 4]");
  EXPECT_EQ(refusal([&] { rope.rotate(x, y, std::numeric_limits<std::int64_t>::max()); }),
            "[Rope::rotate] start and positions must be within 2^40 of 0, but a position is 9223372036854775807");
  EXPECT_EQ(refusal([&] {
              rope.rotate(TensorView(static_cast<const float*>(nullptr), {4, 8}), y);
            }),
            "[Rope::rotate] x has shape [4, 8] but no data (null pointer)");
}

}  // namespace
}  // namespace saccade::test
