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

/// Same shape, element type and bits.
inline bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return false;
  return a.bytes() == 0 || std::memcmp(a.data(), b.data(), a.bytes()) == 0;  // nullptr if empty
}

}  // namespace saccade::test
