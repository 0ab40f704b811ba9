// Loops over numbers of any alignment and count: whole vectors, and a partial one at the end.
#pragma once

#include "cpu/simd/math.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// Loads the next vector, of which `left` numbers remain (0 or fewer: none), and zeros beyond them. (A masked
/// access of AVX2 costs 20 times a plain one.)
template <class T>
SACCADE_INLINE Vec load_part(const T* p, std::int64_t left) {
  return left >= kWidth ? loadu(p) : load_first(p, static_cast<int>(std::max<std::int64_t>(left, 0)));
}
template <class T>
SACCADE_INLINE void store_part(T* p, std::int64_t left, Vec x) {
  if (left >= kWidth)
    storeu(p, x);
  else
    store_first(p, static_cast<int>(std::max<std::int64_t>(left, 0)), x);
}
/// x where there are numbers, `rest` beyond them.
SACCADE_INLINE Vec fill_rest(Vec x, std::int64_t left, Vec rest) {
  return left >= kWidth ? x : select(columns_within(0, 0, static_cast<int>(left)), x, rest);
}

/// The sum of a row is spread over `kSums` vectors in rotation, because a multiply-add waits for the previous one
/// on its vector.
inline constexpr int kSums = 4;
SACCADE_INLINE float reduce_sums(const Vec (&sums)[kSums]) {
  return reduce_add(add(add(sums[0], sums[1]), add(sums[2], sums[3])));
}

/// y += x
inline void add_to(const float* x, float* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += kWidth)
    store_part(y + i, count - i, add(load_part(y + i, count - i), load_part(x + i, count - i)));
}

/// x *= factor
inline void multiply(float factor, float* x, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += kWidth)
    store_part(x + i, count - i, mul(load_part(x + i, count - i), broadcast(factor)));
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
