// Tables of the bf16 numbers that bytes of quantized numbers stand for: bf16 has all numbers of i8 and e4m3.
#pragma once

#include "cpu/simd/prelude.h"

namespace saccade::cpu {

/// The bytes of the bf16 numbers for the lower 7 bits of a byte, without a sign.
struct PairTables {
  alignas(64) std::uint8_t lower[128], upper[128];
};
template <class Number>
consteval PairTables pair_tables(Number number) {
  PairTables tables{};
  for (int i = 0; i < 128; ++i) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(number(i));
    tables.lower[i] = static_cast<std::uint8_t>(bits >> 16);
    tables.upper[i] = static_cast<std::uint8_t>(bits >> 24);
  }
  return tables;
}
/// Of magnitudes of i8: 0 is 128, for -128.
inline constexpr PairTables kPairsOfInt8 =
    pair_tables([](int i) { return i == 0 ? 128.0f : static_cast<float>(i); });
/// Of e4m3: bits 3 to 6 are an exponent with a bias of 7, or 0 for a multiple of 2^-9; 127 is NaN.
inline constexpr PairTables kPairsOfFloat8 = pair_tables([](int i) {
  if (i == 127) return std::numeric_limits<float>::quiet_NaN();
  const int exponent = i / 8;
  const int mantissa = exponent == 0 ? i : 8 + i % 8;
  float x = static_cast<float>(mantissa) / 512;
  for (int e = exponent; e > 1; --e) x *= 2;
  return x;
});

}  // namespace saccade::cpu
