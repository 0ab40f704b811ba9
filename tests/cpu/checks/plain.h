// What one lane of each vector function computes, in plain C++. Defined in plain.cpp, which is compiled for the
// baseline and never fuses a product with a sum.
#pragma once

#include <cstdint>

#include "backend/layer_params.h"

namespace saccade::test {

/// S: float or double.
template <class S>
struct Plain {
  static S add(S a, S b);
  static S sub(S a, S b);
  static S mul(S a, S b);
  static S div(S a, S b);
  static S sqrt(S a);
  /// a b + c, rounded once if `fused`.
  static S fma(S a, S b, S c, bool fused);
  /// The second operand where either is NaN.
  static S max(S a, S b);
  static S min(S a, S b);
  static S abs(S a);
  /// The magnitude of a, which is not negative, with the sign of b.
  static S copysign(S a, S b);
  static bool less(S a, S b);
  static bool equal(S a, S b);
  static bool is_nan(S a);
  /// x * 2^n
  static S ldexp(S x, int n);
};

/// An element of a tensor of 16-bit or 32-bit numbers.
float number_of(DType dtype, const void* data, std::int64_t index);

/// The product of row `row` of a and column `column` of b: a chain of multiply-adds for each `part` of the depth.
/// The first begins at the bias, or at `before` if p adds; the others begin at 0 and are added. `fused`: as of
/// Plain::fma.
float product_number(const ProductParams& p, std::int64_t row, std::int64_t column, std::int64_t part,
                     float before, bool fused);

/// c += a b for tiles of AMX: a has 16 rows of 16 words of two bf16 or f16 numbers, b has 16 such words of each
/// column in its rows. The even halves are one chain of multiply-adds from 0, the odd ones another; their sum is
/// added to c. Denormal numbers count as 0 and become 0, but for those of f16.
void add_tile_product(const std::uint32_t* a, const std::uint32_t* b, DType type, float* c);

/// The weights of 32 scores in 16-bit fixed point, as cpu/amx/tables.h describes them, in the order of
/// key_of_word(). Returns whether one of them was too large.
bool weights_of_row(const float* scores, float factor, float offset, std::uint32_t* words);

/// Subtracts the next bf16 part from a number and returns it: its leading bits, or the nearest bf16 number if it
/// `is_last`.
std::uint32_t take_part(float& number, bool is_last);

/// dropout_keeps() of random.h.
bool keeps_weight(std::uint64_t seed, std::uint32_t offset, std::uint32_t batch_head, std::uint32_t row,
                  std::int64_t column, double p);

}  // namespace saccade::test
