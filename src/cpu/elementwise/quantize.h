// Rows of f32 to quantized numbers and back, and Hadamard transforms (saccade/quantize.h). A row's bytes depend on
// the row alone.
#pragma once

#include "cpu/simd/elements.h"
#include "cpu/simd/quantized.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

// ---- Scales --------------------------------------------------------------------------------------------------

/// Rows whose numbers are all smaller are quantized number by number: reciprocals of their scales may overflow.
inline constexpr float kSmallRow = 0x1p-100F;

/// The largest magnitude of a row; NaN if a number is not finite.
inline float largest_magnitude(const float* row, std::int64_t dim) {
  Vec largest = zero(), finite = zero();
  for (std::int64_t d = 0; d < dim; d += kWidth) {
    const Vec x = load_part(row + d, dim - d);
    largest = max(abs(x), largest);
    finite = fma(x, zero(), finite);
  }
  return any(is_nan(finite)) ? std::numeric_limits<float>::quiet_NaN() : reduce_max(largest);
}

/// The scale with which `most` stands for a largest magnitude of `largest`, and not for less unless that
/// overflows.
inline float scale_for(float largest, float most) {
  const double exact = double{largest} / double{most};
  float scale = static_cast<float>(exact);
  if (largest < kSmallRow && double{scale} < exact)
    scale = std::bit_cast<float>(std::bit_cast<std::uint32_t>(scale) + 1);
  if (double{scale} * double{most} > double{std::numeric_limits<float>::max()})
    scale = std::bit_cast<float>(std::bit_cast<std::uint32_t>(scale) - 1);
  return scale;
}

/// Rounds to the nearest whole number, ties to even; below 2^22 in magnitude.
SACCADE_INLINE Vec round_to_whole(Vec x) {
  const Vec magic = broadcast(0x1.8p23F);
  return sub(add(x, magic), magic);
}

/// x / scale, rounded to the nearest whole number: the product with the reciprocal, corrected by the remainder.
SACCADE_INLINE Vec divide_to_whole(Vec x, Vec reciprocal, Vec scale) {
  const Vec near = round_to_whole(mul(x, reciprocal));
  const Vec rest = fma(sub(zero(), near), scale, x), half = mul(scale, broadcast(0.5F));
  const Vec up = select(less(half, rest), broadcast(1), zero());
  const Vec down = select(less(rest, sub(zero(), half)), broadcast(1), zero());
  return add(near, sub(up, down));
}

/// Writes `count` whole numbers, at most kWidth.
template <class T>
SACCADE_INLINE void store_whole(T* to, int count, Vec x) {
  alignas(64) float numbers[kWidth];
  store(numbers, x);
  if (count >= kWidth) {
    for (int i = 0; i < kWidth; ++i) to[i] = static_cast<T>(static_cast<std::int32_t>(numbers[i]));
  } else {
    for (int i = 0; i < count; ++i) to[i] = static_cast<T>(static_cast<std::int32_t>(numbers[i]));
  }
}

// ---- Rows ----------------------------------------------------------------------------------------------------

/// Writes the scale of a row of bytes. Returns the row's largest magnitude; 0 for a row of zeros, or with NaN or
/// an infinity, whose numbers it writes: zeros.
inline float put_scale(const float* from, std::int64_t dim, float most, const QuantizedRow& to) {
  const float largest = largest_magnitude(from, dim);
  *to.scale = largest > 0 ? scale_for(largest, most) : largest;
  if (largest > 0) return largest;
  std::memset(to.numbers, 0, static_cast<std::size_t>(dim));
  return 0;
}

inline void quantize_i8(const float* from, std::int64_t dim, const QuantizedRow& to) {
  constexpr float kMost = 127;
  auto* const numbers = static_cast<std::int8_t*>(to.numbers);
  const float largest = put_scale(from, dim, kMost, to), scale = *to.scale;
  if (largest == 0) return;
  if (largest < kSmallRow) {
    for (std::int64_t d = 0; d < dim; ++d)
      numbers[d] = static_cast<std::int8_t>(std::lrint(double{from[d]} / double{scale}));
    return;
  }
  const Vec reciprocal = broadcast(1 / scale), factor = broadcast(scale), most = broadcast(kMost);
  for (std::int64_t d = 0; d < dim; d += kWidth) {
    const Vec x = divide_to_whole(load_part(from + d, dim - d), reciprocal, factor);
    store_whole(numbers + d, static_cast<int>(std::min<std::int64_t>(kWidth, dim - d)),
                max(min(x, most), broadcast(-kMost)));
  }
}

/// The bits of float8_e4m3 for a number of at most 448.
SACCADE_INLINE std::uint8_t e4m3_bits(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x), magnitude = bits & 0x7fffffffU;
  const std::uint32_t normal = (magnitude - (120U << 23) + 0x7ffffU + (magnitude >> 20 & 1U)) >> 20;
  const auto denormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0x1p14F) -
                        std::bit_cast<std::uint32_t>(0x1p14F);
  return static_cast<std::uint8_t>((bits >> 24 & 0x80U) | (magnitude < 121U << 23 ? denormal : normal));
}

inline void quantize_f8e4m3(const float* from, std::int64_t dim, const QuantizedRow& to) {
  constexpr float kMost = 448;
  auto* const numbers = static_cast<std::uint8_t*>(to.numbers);
  const float largest = put_scale(from, dim, kMost, to), scale = *to.scale;
  if (largest == 0) return;
  if (largest < kSmallRow) {
    for (std::int64_t d = 0; d < dim; ++d)
      numbers[d] = e4m3_bits(std::min(static_cast<float>(double{from[d]} / double{scale}), kMost));
    return;
  }
  const float reciprocal = 1 / scale;
  for (std::int64_t d = 0; d < dim; ++d) {
    const float x = from[d] * reciprocal;
    numbers[d] = e4m3_bits(x > kMost ? kMost : x < -kMost ? -kMost : x);
  }
}

// ---- Rows of i4 ----------------------------------------------------------------------------------------------

/// 1 / multiplier.
inline constexpr auto kReciprocals = [] {
  std::array<float, kMostMultiplier + 1> table{};
  for (int m = 1; m <= kMostMultiplier; ++m) table[static_cast<std::size_t>(m)] = 1 / static_cast<float>(m);
  return table;
}();

/// A multiplier with its sign, for numbers in units of the row's scale.
struct GroupStep {
  Vec step, reciprocal;
  SACCADE_INLINE GroupStep(float sign, int multiplier)
      : step(broadcast(sign * static_cast<float>(multiplier))),
        reciprocal(broadcast(sign * kReciprocals[static_cast<std::size_t>(multiplier)])) {}

  /// Whole numbers from -8 to 7.
  SACCADE_INLINE Vec whole(Vec x) const {
    return max(min(round_to_whole(mul(x, reciprocal)), broadcast(7)), broadcast(-8));
  }
  SACCADE_INLINE Vec squared_error(Vec x, Vec n) const {
    const Vec rest = fma(sub(zero(), n), step, x);
    return mul(rest, rest);
  }
};

/// Writes a group's whole numbers with the better of two multipliers, which it returns: the one with which the
/// largest number is about -8, and the next smaller one, which clips it. Yet smaller ones hardly ever are better.
SACCADE_INLINE int fit_group(const float* group, float* numbers) {
  Vec magnitude = zero();
  for (int i = 0; i < kQuantizedGroup; i += kWidth) magnitude = max(magnitude, abs(load(group + i)));
  const float largest = reduce_max(magnitude);
  bool is_negative = false;
  for (int i = 0; i < kQuantizedGroup; i += kWidth)
    is_negative = any(equal(load(group + i), broadcast(-largest))) || is_negative;
  const float sign = is_negative ? 1.0F : -1.0F;
  const int first = std::clamp(static_cast<int>(largest * 0.125F + 0.5F), 1, kMostMultiplier),
            second = std::max(first - 1, 1);
  const GroupStep steps[2] = {{sign, first}, {sign, second}};
  alignas(64) float fits[2][kQuantizedGroup];
  Vec gain = zero();
  for (int i = 0; i < kQuantizedGroup; i += kWidth) {
    const Vec x = load(group + i), a = steps[0].whole(x), b = steps[1].whole(x);
    gain = add(gain, sub(steps[0].squared_error(x, a), steps[1].squared_error(x, b)));
    store(fits[0] + i, a);
    store(fits[1] + i, b);
  }
  const bool clips = reduce_add(gain) > 0;
  std::copy_n(fits[clips ? 1 : 0], kQuantizedGroup, numbers);
  return (is_negative ? 1 : -1) * (clips ? second : first);
}

/// Writes the nibbles of a group, or of the `count` numbers that are left and zeros. Returns its multiplier.
inline std::int8_t quantize_group(const float* from, std::int64_t count, float scale, bool is_small,
                                  std::uint8_t* nibbles) {
  alignas(64) float group[kQuantizedGroup], whole[kQuantizedGroup];
  if (is_small) {
    for (std::int64_t i = 0; i < kQuantizedGroup; ++i)
      group[i] = i < count ? static_cast<float>(double{from[i]} / double{scale}) : 0;
  } else {
    const Vec reciprocal = broadcast(1 / scale);
    for (std::int64_t i = 0; i < kQuantizedGroup; i += kWidth)
      store(group + i, mul(load_part(from + i, count - i), reciprocal));
  }
  const int multiplier = fit_group(group, whole);
  for (std::int64_t i = 0; i < kQuantizedGroup; ++i)
    nibbles[i] = static_cast<std::uint8_t>(static_cast<std::int32_t>(whole[i]) + 8);
  return static_cast<std::int8_t>(multiplier);
}

inline void quantize_i4(const float* from, std::int64_t dim, const QuantizedRow& to) {
  constexpr float kMost = 8 * (kMostMultiplier + 0.5F);
  auto* const numbers = static_cast<std::uint8_t*>(to.numbers);
  const std::int64_t half = stored_dim(DType::i4, dim) / 2;
  const float largest = largest_magnitude(from, dim);
  *to.scale = largest;
  if (!(largest > 0)) {
    std::memset(numbers, 0x88, static_cast<std::size_t>(half));
    std::memset(to.multipliers, 0, static_cast<std::size_t>(quantized_groups(dim)));
    return;
  }
  const float scale = *to.scale = scale_for(largest, kMost);
  const bool is_small = largest < kSmallRow;
  for (std::int64_t d = 0; d < half; d += kQuantizedGroup) {
    std::uint8_t lower[kQuantizedGroup], upper[kQuantizedGroup];
    std::int8_t* const multipliers = to.multipliers + d / kQuantizedGroup;
    multipliers[0] = quantize_group(from + d, dim - d, scale, is_small, lower);
    multipliers[half / kQuantizedGroup] = quantize_group(from + half + d, dim - half - d, scale, is_small, upper);
    for (std::int64_t i = 0; i < kQuantizedGroup; ++i)
      numbers[d + i] = static_cast<std::uint8_t>(lower[i] | upper[i] << 4);
  }
}

// ---- Back ----------------------------------------------------------------------------------------------------

template <class Row>
void read_row(Row row, std::int64_t dim, float* to) {
  std::int64_t d = 0;
  for (; d + kWidth <= dim; d += kWidth) storeu(to + d, loadu(row + d));
  const int rest = static_cast<int>(dim - d);
  if (rest > 0) store_first(to + d, rest, load_first(row + d, rest));
}

inline void read_quantized(DType dtype, const ConstQuantizedRow& from, std::int64_t dim, float* to) {
  if (dtype == DType::i8)
    return read_row(ScaledRow<const std::int8_t*>{static_cast<const std::int8_t*>(from.numbers), from.scale}, dim,
                    to);
  if (dtype == DType::f8e4m3)
    return read_row(ScaledRow<const float8_e4m3*>{static_cast<const float8_e4m3*>(from.numbers), from.scale}, dim,
                    to);
  const Int4Row row{static_cast<const std::uint8_t*>(from.numbers), from.multipliers,
                    stored_dim(DType::i4, dim) / 2};
  read_row(ScaledRow<Int4Row>{row, from.scale}, dim, to);
}

// ---- Hadamard transforms -------------------------------------------------------------------------------------

/// The matrix of kWidth numbers: the sign of [i][j] is the parity of i & j.
inline constexpr auto kHadamard = [] {
  struct {
    alignas(64) float signs[kWidth][kWidth];
  } table{};
  for (int i = 0; i < kWidth; ++i)
    for (int j = 0; j < kWidth; ++j)
      table.signs[i][j] = std::popcount(static_cast<unsigned>(i & j)) % 2 == 0 ? 1.0F : -1.0F;
  return table;
}();

/// Of `size` numbers, a power of two of at least kWidth. The transform is that of vectors with each other, and
/// then within each.
inline void transform_block(float* x, std::int64_t size, float norm) {
  for (std::int64_t h = kWidth; h < size; h *= 2) {
    for (std::int64_t i = 0; i < size; i += 2 * h) {
      for (std::int64_t j = i; j < i + h; j += kWidth) {
        const Vec a = loadu(x + j), b = loadu(x + j + h);
        storeu(x + j, add(a, b));
        storeu(x + j + h, sub(a, b));
      }
    }
  }
  for (std::int64_t i = 0; i < size; i += kWidth) {
    Vec sums[2] = {zero(), zero()};
    SACCADE_UNROLL
    for (int j = 0; j < kWidth; ++j) sums[j % 2] = fma_broadcast(x + i + j, load(kHadamard.signs[j]), sums[j % 2]);
    storeu(x + i, mul(add(sums[0], sums[1]), broadcast(norm)));
  }
}

/// The same of any power of two.
inline void transform_small_block(float* x, std::int64_t size, float norm) {
  for (std::int64_t h = 1; h < size; h *= 2) {
    for (std::int64_t i = 0; i < size; i += 2 * h) {
      for (std::int64_t j = i; j < i + h; ++j) {
        const float a = x[j], b = x[j + h];
        x[j] = a + b, x[j + h] = a - b;
      }
    }
  }
  for (std::int64_t i = 0; i < size; ++i) x[i] *= norm;
}

inline void hadamard_row(float* numbers, std::int64_t dim) {
  const std::int64_t size = dim & -dim;
  const float norm = 1 / std::sqrt(static_cast<float>(size));
  for (std::int64_t i = 0; i < dim; i += size) {
    if (size >= kWidth)
      transform_block(numbers + i, size, norm);
    else
      transform_small_block(numbers + i, size, norm);
  }
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
