// Rows of quantized numbers (saccade/quantize.h), and loads of their numbers without the row's scale. Each
// simd/*.h defines, for kWidth numbers and for the first n of them,
//   loadu(p), load_first(p, n)   of int8_t and float8_e4m3
//   load_nibbles(p, upper, m)    of kWidth bytes: m times (the lower or upper half of each byte, less 8)
//   load_16_nibbles(p, upper, m, x)  the same of 16 bytes, where kWidth is 4 or 8
#pragma once

#include "cpu/simd/math.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// A row of i4 from number `at` on.
struct Int4Row {
  const std::uint8_t* bytes;
  const std::int8_t* multipliers;  // of groups of kQuantizedGroup numbers
  std::int64_t half;               // byte j holds numbers j and half + j
  std::int64_t at = 0;

  SACCADE_INLINE Int4Row operator+(std::int64_t d) const { return {bytes, multipliers, half, at + d}; }
};

static_assert(kQuantizedGroup % kWidth == 0);

/// kWidth numbers of one group. Rows end with a whole group. (Templates, because kernels of f64 have no nibbles.)
template <std::same_as<Int4Row> Row>
SACCADE_INLINE Vec loadu(Row row) {
  const bool upper = row.at >= row.half;
  return load_nibbles(row.bytes + row.at - (upper ? row.half : 0), upper,
                      row.multipliers[row.at / kQuantizedGroup]);
}
template <std::same_as<Int4Row> Row>
SACCADE_INLINE Vec load_first(Row row, int n) {
  if (n <= 0) return zero();
  return n >= kWidth ? loadu(row) : select(columns_within(0, 0, n), loadu(row), zero());
}

template <std::same_as<Int4Row> Row>
SACCADE_INLINE void load_16(Row row, Vec (&x)[16 / kWidth]) {
  const bool upper = row.at >= row.half;
  load_16_nibbles(row.bytes + row.at - (upper ? row.half : 0), upper, row.multipliers[row.at / kQuantizedGroup],
                  x);
}

/// A row of which every number is multiplied by `scale`.
template <class Row>
struct ScaledRow {
  Row row;
  float scale;

  SACCADE_INLINE ScaledRow operator+(std::int64_t d) const { return {row + d, scale}; }
};
template <class Row>
SACCADE_INLINE Vec loadu(ScaledRow<Row> x) {
  return mul(loadu(x.row), broadcast(x.scale));
}
template <class Row>
SACCADE_INLINE Vec load_first(ScaledRow<Row> x, int n) {
  const Vec numbers = mul(load_first(x.row, n), broadcast(x.scale));
  return n >= kWidth ? numbers : select(columns_within(0, 0, n), numbers, zero());  // a scale may be NaN
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
