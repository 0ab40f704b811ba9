// Rows of quantized numbers as they lie in memory; saccade/quantize.h describes the types.
#pragma once

#include <array>
#include <cstdint>

#include "core/ceil_div.h"
#include "saccade/dtype.h"

namespace saccade {

/// Numbers of a row of i4 that share a multiplier.
inline constexpr std::int64_t kQuantizedGroup = 16;

/// The numbers of a row in memory: a row of i4 is filled with zeros to two halves of whole groups.
constexpr std::int64_t stored_dim(DType dtype, std::int64_t dim) {
  return dtype == DType::i4 ? ceil_div(dim, 2 * kQuantizedGroup) * 2 * kQuantizedGroup : dim;
}
/// The multipliers of a row of i4.
constexpr std::int64_t quantized_groups(std::int64_t dim) { return stored_dim(DType::i4, dim) / kQuantizedGroup; }

/// The largest multiplier of a group of i4.
inline constexpr int kMostMultiplier = 15;

/// The numbers of a group: multiplier times (nibble - 8), at [multiplier as an unsigned byte][nibble]. Multipliers
/// beyond kMostMultiplier wrap around: a caller's tensor may hold any byte.
inline constexpr auto kMultiples = [] {
  std::array<std::array<std::int8_t, 16>, 256> table{};
  for (int m = -128; m < 128; ++m)
    for (int n = 0; n < 16; ++n)
      table[static_cast<std::uint8_t>(m)][static_cast<std::size_t>(n)] = static_cast<std::int8_t>(m * (n - 8));
  return table;
}();

/// Where a row is stored; `multipliers` only of i4.
struct QuantizedRow {
  void* numbers = nullptr;
  float* scale = nullptr;
  std::int8_t* multipliers = nullptr;
};
struct ConstQuantizedRow {
  const void* numbers = nullptr;
  float scale = 1;
  const std::int8_t* multipliers = nullptr;
};

/// The functions on one row of `dim` numbers. The kernels define them.
struct QuantizeKernels {
  void (*i8)(const float* from, std::int64_t dim, const QuantizedRow& to);
  void (*i4)(const float* from, std::int64_t dim, const QuantizedRow& to);
  void (*f8e4m3)(const float* from, std::int64_t dim, const QuantizedRow& to);
  /// The numbers of a row of any of these types, each times the scale.
  void (*read)(DType dtype, const ConstQuantizedRow& from, std::int64_t dim, float* to);
  /// The Hadamard transform in place.
  void (*hadamard)(float* numbers, std::int64_t dim);
};

/// Quantizes a row, or its Hadamard transform; `scratch`: dim floats.
void quantize_row(DType dtype, const float* row, std::int64_t dim, bool rotate, float* scratch,
                  const QuantizedRow& to);

/// Those of the active instruction set; as conversions(), never throws.
const QuantizeKernels& quantize_kernels() noexcept;

}  // namespace saccade
