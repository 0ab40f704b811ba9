// Quantized rows: numbers of 8 or 4 bits with a scale for each row, as caches of keys and values store them.
#pragma once

#include "saccade/tensor.h"

#pragma GCC visibility push(default)
namespace saccade {

/// A tensor [..., rows, dim] of a quantized type. A row depends on its own numbers and the instruction
/// set only.
///
/// | type | a number | least scale with which the row fits |
/// |---|---|---|
/// | `i8` | scale x n, n from -127 to 127 | largest magnitude / 127 |
/// | `f8e4m3` | scale x n, n of e4m3 | largest magnitude / 448 |
/// | `i4` | scale x multiplier x (n - 8), n from 0 to 15 | largest magnitude / 124 |
///
/// The multiplier of i4, from -15 to 15, belongs to a group of 16 neighboring numbers. A row is filled up with
/// zeros to a multiple of 32 numbers; byte j holds number j in its lower half and number j + dim / 2 in its upper
/// one.
///
/// A number is rounded to the nearest stored one: with i8 it differs by at most scale / 2; with i4 by at most
/// scale x |multiplier| / 2, unless it lies beyond the 7 steps of one sign or the 8 of the other, to which it is
/// clipped where that makes the group's squared error smaller; with f8e4m3 by about half a unit in the last place
/// of e4m3, times the scale. A row of zeros has scale 0. A row with a NaN or an infinity has scale NaN, so that
/// all of its numbers read as NaN.
struct QuantizedTensor {
  DType dtype = DType::i8;  ///< i8, i4 or f8e4m3
  Shape shape;              ///< of the numbers: [..., rows, dim]
  Tensor numbers;           ///< i8: i8, f8e4m3: f8e4m3, both as `shape`; i4: u8 [..., rows, bytes of a row]
  Tensor scale;             ///< f32 [..., rows, 1]
  Tensor multipliers;       ///< of i4: i8 [..., rows, groups]

  /// The numbers as k or v of attention(), with AttentionOptions::k_scale and k_multipliers, or v_scale and
  /// v_multipliers.
  TensorView view() const;
};

/// Quantizes each row of x, of rank 1 or more and any floating-point type, to `dtype`. Throws
/// std::invalid_argument for another type.
QuantizedTensor quantize(const TensorView& x, DType dtype);

/// The f32 numbers of a quantized tensor x [..., rows, dim] that attention() reads: `scale` f32, broadcast from
/// the right against x (default: 1); `multipliers` i8 [..., rows, groups] for i4. Throws std::invalid_argument for
/// other types and shapes.
Tensor dequantize(const TensorView& x, const TensorView& scale, const TensorView& multipliers = {});
/// The same of a QuantizedTensor.
Tensor dequantize(const QuantizedTensor& x);

/// The Hadamard transform of each row of x [..., dim], f32 with the shape of x: of blocks of the largest power of
/// two that divides dim, divided by the square root of its length, so that it is its own inverse. It spreads a
/// large number over its block, so that rows with outliers are quantized with smaller errors; and the scores of
/// transformed queries and keys are those of the queries and keys. (QuaRot, arXiv:2404.00456.)
Tensor hadamard(const TensorView& x);

}  // namespace saccade
#pragma GCC visibility pop
