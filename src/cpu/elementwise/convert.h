// Conversions between contiguous floats and 16-bit numbers. The bits are those of float16 and bfloat16 in dtype.h,
// NaN included.
#pragma once

#include "cpu/simd/math.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

template <class T>
void narrow_all(const float* from, T* to, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) storeu(to + i, loadu(from + i));
  const int rest = static_cast<int>(count - i);
  if (rest > 0) store_first(to + i, rest, load_first(from + i, rest));
}

template <class T>
void widen_all(const T* from, float* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += kWidth) {
    const int n = static_cast<int>(std::min<std::int64_t>(kWidth, count - i));
    const Vec x = n == kWidth ? loadu(from + i) : load_first(from + i, n);
    // F16C would turn a signalling NaN into a quiet one.
    if (std::is_same_v<T, float16> && any(is_nan(x))) {
      for (int j = 0; j < n; ++j) to[i + j] = from[i + j];
    } else if (n == kWidth) {
      storeu(to + i, x);
    } else {
      store_first(to + i, n, x);
    }
  }
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
