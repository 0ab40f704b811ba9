// Random tensors, and their comparison to the last bit.
#pragma once

#include <cstdint>
#include <cstring>
#include <random>

#include "saccade/tensor.h"

namespace saccade::test {

/// Normal numbers, rounded to `dtype`; the same seed draws the same ones.
inline Tensor random_tensor(Shape shape, std::uint64_t seed, DType dtype = DType::f32) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  Tensor result(DType::f32, std::move(shape));
  for (float& x : result.values<float>()) x = normal(random);
  return Tensor::copy_of(result, dtype);
}

/// A block mask for that many rows and keys, in blocks of the default size: few rows see few keys, which keeps a
/// call short, and they are spread over all rows and keys.
inline Tensor sparse_block_mask(std::int64_t rows) {
  const std::int64_t blocks = rows / 128;
  Tensor mask(DType::boolean, {blocks, blocks});
  for (std::int64_t row = 0; row < blocks; row += 8)
    for (std::int64_t key = 0; key < blocks; key += 24) mask.at<bool>(row, key) = true;
  return mask;
}

/// Same shape, element type and bits.
inline bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return false;
  return a.bytes() == 0 || std::memcmp(a.data(), b.data(), a.bytes()) == 0;  // nullptr if empty
}

}  // namespace saccade::test
