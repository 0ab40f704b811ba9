// The Vec interface in plain C++: one float. See simd_avx512.h for what each function means.
#pragma once

#include "cpu/prelude.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

inline constexpr Isa kIsa = Isa::scalar;
inline constexpr int kWidth = 1;
inline constexpr int kRegisters = 16;

using Vec = float;
using Mask = bool;

SACCADE_INLINE Vec zero() { return 0.0f; }
SACCADE_INLINE Vec broadcast(float x) { return x; }
SACCADE_INLINE Vec broadcast_from(const float* p) { return *p; }
SACCADE_INLINE Vec load(const float* p) { return *p; }
SACCADE_INLINE Vec loadu(const float* p) { return *p; }
SACCADE_INLINE void store(float* p, Vec x) { *p = x; }
SACCADE_INLINE void storeu(float* p, Vec x) { *p = x; }

SACCADE_INLINE Vec load_first(const float* p, int n) { return n > 0 ? *p : 0.0f; }
SACCADE_INLINE void store_first(float* p, int n, Vec x) {
  if (n > 0) *p = x;
}

SACCADE_INLINE Vec add(Vec a, Vec b) { return a + b; }
SACCADE_INLINE Vec sub(Vec a, Vec b) { return a - b; }
SACCADE_INLINE Vec mul(Vec a, Vec b) { return a * b; }
SACCADE_INLINE Vec div(Vec a, Vec b) { return a / b; }
// Two roundings: without an FMA instruction std::fma is a slow library call.
SACCADE_INLINE Vec fma(Vec a, Vec b, Vec c) { return a * b + c; }
SACCADE_INLINE Vec max(Vec a, Vec b) { return a > b ? a : b; }
SACCADE_INLINE Vec min(Vec a, Vec b) { return a < b ? a : b; }
SACCADE_INLINE Vec abs(Vec a) { return __builtin_fabsf(a); }
SACCADE_INLINE Vec copysign(Vec magnitude, Vec sign) { return __builtin_copysignf(magnitude, sign); }

SACCADE_INLINE Vec fma_broadcast(const float* a, Vec b, Vec acc) { return fma(*a, b, acc); }

SACCADE_INLINE Mask less(Vec a, Vec b) { return a < b; }
SACCADE_INLINE Mask equal(Vec a, Vec b) { return a == b; }
SACCADE_INLINE Mask is_nan(Vec a) { return a != a; }
SACCADE_INLINE Mask both(Mask a, Mask b) { return a && b; }
SACCADE_INLINE bool any(Mask m) { return m; }
SACCADE_INLINE Vec select(Mask m, Vec yes, Vec no) { return m ? yes : no; }
SACCADE_INLINE Mask columns_within(int column, int begin, int end) { return begin <= column && column < end; }
SACCADE_INLINE Vec lane_index() { return 0.0f; }

SACCADE_INLINE Vec scale_by_exponent(Vec x, Vec rounded) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) + (std::bit_cast<std::uint32_t>(rounded) << 23));
}

SACCADE_INLINE float reduce_add(Vec a) { return a; }
SACCADE_INLINE float reduce_max(Vec a) { return a; }

SACCADE_INLINE void transpose_tile(const float* from, std::int64_t, float* to, std::int64_t) { *to = *from; }

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
