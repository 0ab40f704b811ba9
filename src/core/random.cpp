#include "saccade/random.h"

#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numbers>
#include <span>

#include "core/check.h"

// The bits promised here depend on which operations are fused multiply-adds. Those are written as std::fma, and
// src/CMakeLists.txt keeps the compiler from fusing any other.

namespace saccade {
namespace {

void require_probability(double p, const char* function) {
  if (!(p >= 0.0 && p <= 1.0)) refuse(function, "p must lie in [0, 1], got ", p);
}

/// 53 bits of randomness, taken from a 64-bit word as in PyTorch.
double unit_interval(std::uint64_t word) {
  constexpr std::uint64_t kMask = (std::uint64_t{1} << 53) - 1;
  return static_cast<double>(word & kMask) * 0x1p-53;
}

// ---- The logarithm, sine and cosine of PyTorch's vectorized randn ----------------------------------------------
//
// On x86 with AVX2, torch.randn evaluates the single-precision polynomials of Cephes (S. L. Moshier,
// https://www.netlib.org/cephes), with the fused multiply-adds that GCC generated. The code below does the same
// operations in the same order, so it rounds identically.

template <std::size_t N>
float polynomial(float x, const float (&coefficients)[N]) {
  float y = coefficients[0];
  for (std::size_t i = 1; i < N; ++i) y = std::fma(y, x, coefficients[i]);
  return y;
}

/// log(u) for 0 < u <= 1, u normal.
float cephes_log(float u) {
  constexpr float kCoefficients[] = {7.0376836292e-2f,  -1.1514610310e-1f, 1.1676998740e-1f,
                                     -1.2420140846e-1f, 1.4249322787e-1f,  -1.6668057665e-1f,
                                     2.0000714765e-1f,  -2.4999993993e-1f, 3.3333331174e-1f};
  constexpr float kSqrtHalf = 0.707106781186547524f;
  // log(2) in two parts; the larger one has few bits, so its product with the exponent is exact.
  constexpr float kLog2High = 0.693359375f;
  constexpr float kLog2Low = -2.12194440e-4f;

  int exponent = 0;
  float x = std::frexp(u, &exponent);  // in [0.5, 1)
  if (x < kSqrtHalf) {
    --exponent;
    x = (x - 1.0f) + x;
  } else {
    x -= 1.0f;
  }
  const auto e = static_cast<float>(exponent);
  const float square = x * x;
  float y = polynomial(x, kCoefficients) * x;
  y = std::fma(y, square, e * kLog2Low);
  y = std::fma(square, -0.5f, y);
  return std::fma(e, kLog2High, x + y);
}

struct SineCosine {
  float sine;
  float cosine;
};

/// Sine and cosine of 0 <= angle < 8192.
SineCosine cephes_sincos(float angle) {
  constexpr float kSine[] = {-1.9515295891e-4f, 8.3321608736e-3f, -1.6666654611e-1f};
  constexpr float kCosine[] = {2.443315711809948e-5f, -1.388731625493765e-3f, 4.166664568298827e-2f};
  constexpr float kFourOverPi = 1.27323954473516f;
  // pi/4 in three parts
  constexpr float kPart1 = 0.78515625f;
  constexpr float kPart2 = 2.4187564849853515625e-4f;
  constexpr float kPart3 = 3.77489497744594108e-8f;

  // The nearest even octant, and the angle relative to it: |x| <= pi/4.
  const auto octant = (static_cast<std::int32_t>(angle * kFourOverPi) + 1) & ~1;
  const auto octants = static_cast<float>(octant);
  float x = std::fma(octants, -kPart1, angle);
  x = std::fma(octants, -kPart2, x);
  x = std::fma(octants, -kPart3, x);
  const float square = x * x;
  const float even = std::fma(polynomial(square, kCosine) * square, square, -0.5f * square) + 1.0f;
  const float odd = std::fma(polynomial(square, kSine) * square, x, x);

  switch (octant & 6) {
    case 0:
      return {odd, even};
    case 2:
      return {even, -odd};
    case 4:
      return {-odd, -even};
    default:
      return {-even, odd};
  }
}

/// Transforms 16 uniform numbers into 16 normal ones: element j is paired with element j + 8.
void box_muller_16(std::span<float, 16> values, float mean, float stddev) {
  constexpr float kTwoPi = 2.0f * std::numbers::pi_v<float>;
  for (std::size_t j = 0; j < 8; ++j) {
    const float radius = std::sqrt(-2.0f * cephes_log(1.0f - values[j]));
    const SineCosine direction = cephes_sincos(kTwoPi * values[j + 8]);
    values[j] = std::fma(radius * direction.cosine, stddev, mean);
    values[j + 8] = std::fma(radius * direction.sine, stddev, mean);
  }
}

/// The sum fan_in + fan_out of torch.nn.init.
double fans_of(const Shape& shape, const char* function) {
  if (shape.size() < 2) refuse(function, "needs a shape of rank 2 or more, got " + to_string(shape));
  element_count(shape);
  double receptive_field = 1.0;
  for (std::size_t i = 2; i < shape.size(); ++i) receptive_field *= static_cast<double>(shape[i]);
  const double fans =
      static_cast<double>(shape[0]) * receptive_field + static_cast<double>(shape[1]) * receptive_field;
  if (fans == 0.0) refuse(function, "needs a fan above 0, got shape " + to_string(shape));
  return fans;
}

/// Intel MKL's multiplicative congruential generator MCG31m1, as used by its Bernoulli generator.
class MklStream {
 public:
  explicit MklStream(std::uint32_t seed) : state_(seed % kModulus) {
    if (state_ == 0) state_ = 1;
  }

  float next_uniform() {
    const auto value = static_cast<float>(static_cast<double>(state_) / static_cast<double>(kModulus));
    state_ = state_ * kMultiplier % kModulus;
    return value;
  }

 private:
  static constexpr std::uint64_t kModulus = 0x7fffffff;
  static constexpr std::uint64_t kMultiplier = 1132489760;
  std::uint64_t state_;
};

}  // namespace

// ---- PyTorch ---------------------------------------------------------------------------------------------------

TorchGenerator::TorchGenerator(std::uint64_t seed) : engine_(static_cast<std::uint32_t>(seed)) {}

std::uint32_t TorchGenerator::next32() { return static_cast<std::uint32_t>(engine_()); }

std::uint64_t TorchGenerator::next64() {
  const std::uint64_t high = next32();
  return high << 32 | next32();
}

float TorchGenerator::next_uniform() { return static_cast<float>(next32() & 0xffffff) * 0x1p-24f; }

Tensor TorchGenerator::rand(const Shape& shape) {
  Tensor result(DType::f32, shape);
  for (float& value : result.values<float>()) value = next_uniform();
  return result;
}

Tensor TorchGenerator::uniform(const Shape& shape, float low, float high) {
  const float range = high - low;
  if (!(low <= high && std::isfinite(low) && std::isfinite(range))) {
    refuse("uniform", "needs finite low <= high, got ", low, " and ", high);
  }
  Tensor result(DType::f32, shape);
  for (float& value : result.values<float>()) value = std::fma(next_uniform(), range, low);
  return result;
}

Tensor TorchGenerator::randn(const Shape& shape) { return normal(shape, 0.0, 1.0); }

Tensor TorchGenerator::normal(const Shape& shape, double mean, double stddev) {
  if (!(stddev >= 0.0)) refuse("normal", "stddev must not be negative, got ", stddev);
  constexpr std::size_t kBlock = 16;
  Tensor result(DType::f32, shape);
  const std::span<float> values = result.values<float>();
  if (values.size() < kBlock) {
    for (float& value : values) value = static_cast<float>(std::fma(next_normal(), stddev, mean));
    return result;
  }
  const auto transform = [&](std::size_t begin) {
    box_muller_16(std::span<float, kBlock>(values.data() + begin, kBlock), static_cast<float>(mean),
                  static_cast<float>(stddev));
  };
  for (float& value : values) value = next_uniform();
  for (std::size_t i = 0; i + kBlock <= values.size(); i += kBlock) transform(i);
  if (values.size() % kBlock != 0) {
    for (float& value : values.last(kBlock)) value = next_uniform();
    transform(values.size() - kBlock);
  }
  return result;
}

double TorchGenerator::next_normal() {
  if (spare_normal_) {
    const double spare = *spare_normal_;
    spare_normal_.reset();
    return spare;
  }
  const double u1 = unit_interval(next64());
  const double u2 = unit_interval(next64());
  const double radius = std::sqrt(-2.0 * std::log1p(-u2));
  const double theta = 2.0 * std::numbers::pi * u1;
  spare_normal_ = radius * std::sin(theta);
  return radius * std::cos(theta);
}

Tensor TorchGenerator::xavier_uniform(const Shape& shape) {
  const double stddev = std::sqrt(2.0 / fans_of(shape, "xavier_uniform"));
  const auto bound = static_cast<float>(std::sqrt(3.0) * stddev);
  return uniform(shape, -bound, bound);
}

Tensor TorchGenerator::xavier_normal(const Shape& shape) {
  return normal(shape, 0.0, std::sqrt(2.0 / fans_of(shape, "xavier_normal")));
}

TorchGenerator::Linear TorchGenerator::linear(std::int64_t d_in, std::int64_t d_out, bool bias) {
  if (d_in <= 0 || d_out <= 0) {
    refuse("linear", "d_in and d_out must be positive, got ", d_in, " and ", d_out);
  }
  // PyTorch computes this bound by Kaiming's rule with slope sqrt(5). As floats, the two bounds are equal for
  // every d_in below 50 million.
  const auto bound = static_cast<float>(1.0 / std::sqrt(static_cast<double>(d_in)));
  Linear layer;
  layer.weight = uniform({d_out, d_in}, -bound, bound);
  if (bias) layer.bias = uniform({d_out}, -bound, bound);
  return layer;
}

Tensor TorchGenerator::dropout_mask(const Shape& shape, double p, TorchBuild build) {
  require_probability(p, "dropout_mask");
  Tensor mask(DType::boolean, shape);
  const std::span<bool> keeps = mask.values<bool>();
  const double keep_probability = 1.0 - p;
  if (p == 0.0 || p == 1.0 || keeps.empty()) {
    for (bool& keep : keeps) keep = p == 0.0;
  } else if (build == TorchBuild::mkl) {
    MklStream stream(next32());
    for (bool& keep : keeps) keep = stream.next_uniform() < static_cast<float>(keep_probability);
  } else {
    for (bool& keep : keeps) keep = unit_interval(next64()) < keep_probability;
  }
  return mask;
}

// ---- NumPy -----------------------------------------------------------------------------------------------------

NumpyRandomState::NumpyRandomState(std::uint32_t seed) : engine_(seed) {}

std::uint32_t NumpyRandomState::next32() { return static_cast<std::uint32_t>(engine_()); }

Tensor NumpyRandomState::randint(std::int64_t high, const Shape& shape) { return randint(0, high, shape); }

Tensor NumpyRandomState::randint(std::int64_t low, std::int64_t high, const Shape& shape) {
  if (low >= high) {
    refuse("randint", "needs low < high, got ", low, " and ", high);
  }
  Tensor result(DType::i64, shape);
  const std::uint64_t largest = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low) - 1;
  const std::uint64_t mask = largest == 0 ? 0 : ~std::uint64_t{0} >> std::countl_zero(largest);
  for (std::int64_t& value : result.values<std::int64_t>()) {
    std::uint64_t draw = 0;
    if (largest != 0) {
      do {
        draw = (largest >> 32 == 0 ? next32() : next64()) & mask;
      } while (draw > largest);
    }
    value = static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + draw);
  }
  return result;
}

Tensor NumpyRandomState::random_sample(const Shape& shape) {
  Tensor result(DType::f64, shape);
  for (double& value : result.values<double>()) value = next_double();
  return result;
}

Tensor NumpyRandomState::standard_normal(const Shape& shape) {
  Tensor result(DType::f64, shape);
  for (double& value : result.values<double>()) value = next_normal();
  return result;
}

std::uint64_t NumpyRandomState::next64() {
  const std::uint64_t high = next32();
  return high << 32 | next32();
}

double NumpyRandomState::next_double() {
  const auto high = static_cast<double>(next32() >> 5);
  const auto low = static_cast<double>(next32() >> 6);
  return (high * 0x1p26 + low) * 0x1p-53;
}

double NumpyRandomState::next_normal() {
  if (spare_normal_) {
    const double spare = *spare_normal_;
    spare_normal_.reset();
    return spare;
  }
  double x = 0.0;
  double y = 0.0;
  double square = 0.0;
  do {
    x = 2.0 * next_double() - 1.0;
    y = 2.0 * next_double() - 1.0;
    square = x * x + y * y;
  } while (square >= 1.0 || square == 0.0);
  const double factor = std::sqrt(-2.0 * std::log(square) / square);
  spare_normal_ = factor * x;
  return factor * y;
}

// ---- Philox ----------------------------------------------------------------------------------------------------

std::array<std::uint32_t, 4> philox4x32_10(std::array<std::uint32_t, 4> counter,
                                           std::array<std::uint32_t, 2> key) {
  constexpr std::uint64_t kMultiplier0 = 0xd2511f53;
  constexpr std::uint64_t kMultiplier1 = 0xcd9e8d57;
  constexpr std::uint32_t kWeyl0 = 0x9e3779b9;
  constexpr std::uint32_t kWeyl1 = 0xbb67ae85;
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t product0 = kMultiplier0 * counter[0];
    const std::uint64_t product1 = kMultiplier1 * counter[2];
    counter = {
        static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(product1),
        static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

std::uint64_t derived_seed(std::uint64_t seed, std::uint64_t index) {
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const auto high = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); };
  const auto words = philox4x32_10({low(index), high(index), 0, 0}, {low(seed), high(seed)});
  return std::uint64_t{words[1]} << 32 | words[0];
}

bool dropout_keeps(std::uint64_t seed, std::uint32_t offset, std::uint32_t batch_head, std::uint32_t row,
                   std::uint32_t column, double p) {
  require_probability(p, "dropout_keeps");
  const std::uint32_t block = column / 64 * 16 + column % 16;
  const std::array<std::uint32_t, 4> words =
      philox4x32_10({offset, batch_head, row, block},
                    {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  return static_cast<double>(words[column / 16 % 4]) >= p * 0x1p32;
}

}  // namespace saccade
