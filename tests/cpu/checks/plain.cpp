#include "cpu/checks/plain.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "cpu/amx/tables.h"
#include "saccade/random.h"

namespace saccade::test {

template <class S>
S Plain<S>::add(S a, S b) {
  return a + b;
}
template <class S>
S Plain<S>::sub(S a, S b) {
  return a - b;
}
template <class S>
S Plain<S>::mul(S a, S b) {
  return a * b;
}
template <class S>
S Plain<S>::div(S a, S b) {
  return a / b;
}
template <class S>
S Plain<S>::sqrt(S a) {
  return std::sqrt(a);
}
template <class S>
S Plain<S>::fma(S a, S b, S c, bool fused) {
  return fused ? std::fma(a, b, c) : a * b + c;
}
template <class S>
S Plain<S>::max(S a, S b) {
  return a > b ? a : b;
}
template <class S>
S Plain<S>::min(S a, S b) {
  return a < b ? a : b;
}
template <class S>
S Plain<S>::abs(S a) {
  return std::fabs(a);
}
template <class S>
S Plain<S>::copysign(S a, S b) {
  return std::copysign(a, b);
}
template <class S>
bool Plain<S>::less(S a, S b) {
  return a < b;
}
template <class S>
bool Plain<S>::equal(S a, S b) {
  return a == b;
}
template <class S>
bool Plain<S>::is_nan(S a) {
  return std::isnan(a);
}
template <class S>
S Plain<S>::ldexp(S x, int n) {
  return std::ldexp(x, n);
}

template struct Plain<float>;
template struct Plain<double>;

float number_of(DType dtype, const void* data, std::int64_t index) {
  if (dtype == DType::bf16) return static_cast<const bfloat16*>(data)[index];
  if (dtype == DType::f16) return static_cast<const float16*>(data)[index];
  return static_cast<const float*>(data)[index];
}

float product_number(const ProductParams& p, std::int64_t row, std::int64_t column, std::int64_t part,
                     float before, bool fused) {
  float result = p.adds ? before : p.bias != nullptr ? p.bias[column] : 0.0F;
  for (std::int64_t begin = 0; begin < p.depth; begin += part) {
    float chain = begin == 0 ? result : 0.0F;
    for (std::int64_t d = begin; d < std::min(begin + part, p.depth); ++d)
      chain = Plain<float>::fma(number_of(p.dtype, p.a, row * p.a_row_stride + d * p.a_depth_stride),
                                number_of(p.dtype, p.b, d * p.b_depth_stride + column * p.b_column_stride), chain,
                                fused);
    result = begin == 0 ? chain : result + chain;
  }
  return result;
}

namespace {

float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0F, x) : x; }

/// One half of a word of two bf16 numbers.
float half_of(std::uint32_t word, int half, DType type) {
  const auto bits = static_cast<std::uint16_t>(word >> 16 * half);
  return flushed(type == DType::f16 ? float16::from_bits(bits) : bfloat16::from_bits(bits));
}

}  // namespace

void add_tile_product(const std::uint32_t* a, const std::uint32_t* b, DType type, float* c) {
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 16; ++column) {
      float chains[2] = {0.0F, 0.0F};
      for (int half = 0; half < 2; ++half)
        for (int k = 0; k < 16; ++k)
          chains[half] = flushed(std::fma(half_of(a[16 * row + k], half, type),
                                          half_of(b[16 * k + column], half, type), chains[half]));
      float& sum = c[16 * row + column];
      sum = flushed(flushed(sum) + flushed(chains[0] + chains[1]));
    }
  }
}

bool weights_of_row(const float* scores, float factor, float offset, std::uint32_t* words) {
  bool overflowed = false;
  std::uint16_t weights[32];
  for (int word = 0; word < 32; ++word) {
    const float y = std::fma(scores[cpu::key_of_word(word)], factor, offset);
    const bool fits = y > 0.0F && y < 0x1p31F;  // otherwise the conversion gives the smallest integer
    const int fixed = fits ? static_cast<int>(std::nearbyint(std::min(y, 65535.0F))) : 0;
    overflowed |= fixed >= 32768;
    weights[word] = static_cast<std::uint16_t>((fixed + cpu::kWeightTables.correction[fixed / 4 % 64] + 1) / 2);
  }
  std::memcpy(words, weights, sizeof weights);
  return overflowed;
}

std::uint32_t take_part(float& number, bool is_last) {
  if (is_last) return bfloat16(number).bits;
  const auto digits = bfloat16::from_bits(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(number) >> 16));
  number -= digits;
  return digits.bits;
}

bool keeps_weight(std::uint64_t seed, std::uint32_t offset, std::uint32_t batch_head, std::uint32_t row,
                  std::int64_t column, double p) {
  return dropout_keeps(seed, offset, batch_head, row, static_cast<std::uint32_t>(column), p);
}

}  // namespace saccade::test
