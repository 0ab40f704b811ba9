// The Vec interface in plain C++: one number, a float or (SACCADE_SCALAR) a double. See simd/avx512.h for what
// each function means.
#pragma once

#include "cpu/simd/words/scalar.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

using Scalar = SACCADE_SCALAR;
inline constexpr int kWidth = 1;
inline constexpr int kRegisters = 16;

using Vec = Scalar;
using Mask = bool;

SACCADE_INLINE Vec zero() { return 0; }
SACCADE_INLINE Vec broadcast(Scalar x) { return x; }
SACCADE_INLINE Vec broadcast_from(const Scalar* p) { return *p; }
using Factor = Vec;
SACCADE_INLINE Factor factor_from(const Scalar* p) { return broadcast_from(p); }
SACCADE_INLINE Vec load(const Scalar* p) { return *p; }
SACCADE_INLINE Vec loadu(const Scalar* p) { return *p; }
SACCADE_INLINE Vec in_register(Vec x) { return x; }
SACCADE_INLINE void store(Scalar* p, Vec x) { *p = x; }
SACCADE_INLINE void storeu(Scalar* p, Vec x) { *p = x; }

SACCADE_INLINE Vec load_first(const Scalar* p, int n) { return n > 0 ? *p : Scalar{0}; }
SACCADE_INLINE void store_first(Scalar* p, int n, Vec x) {
  if (n > 0) *p = x;
}

template <class T>
requires(sizeof(T) == 2) SACCADE_INLINE Vec loadu(const T* p) { return *p; }
template <class T>
requires(sizeof(T) == 2) SACCADE_INLINE Vec load_first(const T* p, int n) { return n > 0 ? Vec{*p} : Vec{0}; }
template <class T>
requires(sizeof(T) == 2) SACCADE_INLINE void storeu(T* p, Vec x) { *p = T(static_cast<float>(x)); }
template <class T>
requires(sizeof(T) == 2) SACCADE_INLINE void store_first(T* p, int n, Vec x) {
  if (n > 0) *p = T(static_cast<float>(x));
}

template <class T>
requires(sizeof(T) == 1) SACCADE_INLINE Vec loadu(const T* p) { return static_cast<float>(*p); }
template <class T>
requires(sizeof(T) == 1) SACCADE_INLINE Vec load_first(const T* p, int n) { return n > 0 ? loadu(p) : Vec{0}; }
SACCADE_INLINE Vec load_nibbles(const std::uint8_t* p, bool upper, std::int8_t multiplier) {
  return kMultiples[static_cast<std::uint8_t>(multiplier)][upper ? *p >> 4 : *p & 15];
}

SACCADE_INLINE Vec add(Vec a, Vec b) { return a + b; }
SACCADE_INLINE Vec sub(Vec a, Vec b) { return a - b; }
SACCADE_INLINE Vec mul(Vec a, Vec b) { return a * b; }
SACCADE_INLINE Vec div(Vec a, Vec b) { return a / b; }
SACCADE_INLINE Vec sqrt(Vec a) { return std::sqrt(a); }
// Two roundings: without an FMA instruction std::fma is a slow library call.
SACCADE_INLINE Vec fma(Vec a, Vec b, Vec c) { return a * b + c; }
SACCADE_INLINE Vec max(Vec a, Vec b) { return a > b ? a : b; }
SACCADE_INLINE Vec min(Vec a, Vec b) { return a < b ? a : b; }
SACCADE_INLINE Vec abs(Vec a) { return std::abs(a); }
SACCADE_INLINE Vec copysign(Vec magnitude, Vec sign) { return std::copysign(magnitude, sign); }

SACCADE_INLINE Vec fma_from(const Scalar* a, Vec b, Vec acc) { return fma(load(a), b, acc); }
SACCADE_INLINE Vec fma_broadcast(const Scalar* a, Vec b, Vec acc) { return fma(*a, b, acc); }

SACCADE_INLINE Mask less(Vec a, Vec b) { return a < b; }
SACCADE_INLINE Mask equal(Vec a, Vec b) { return a == b; }
SACCADE_INLINE Mask is_nan(Vec a) { return a != a; }
SACCADE_INLINE Mask both(Mask a, Mask b) { return a && b; }
SACCADE_INLINE bool any(Mask m) { return m; }
SACCADE_INLINE unsigned bits(Mask m) { return m ? 1u : 0u; }
SACCADE_INLINE Vec select(Mask m, Vec yes, Vec no) { return m ? yes : no; }
SACCADE_INLINE Mask columns_within(int column, int begin, int end) { return begin <= column && column < end; }
SACCADE_INLINE Vec lane_index() { return 0; }

SACCADE_INLINE Vec scale_by_exponent(Vec x, Vec rounded) {
  using Bits = std::conditional_t<sizeof(Scalar) == 4, std::uint32_t, std::uint64_t>;
  return std::bit_cast<Scalar>(std::bit_cast<Bits>(x) +
                               (std::bit_cast<Bits>(rounded) << (std::numeric_limits<Scalar>::digits - 1)));
}

SACCADE_INLINE Vec add_lanes(Vec a, Vec) { return a; }  // never called
SACCADE_INLINE Vec sum_within_lanes(const Vec (&x)[1]) { return x[0]; }

SACCADE_INLINE Scalar reduce_add(Vec a) { return a; }
SACCADE_INLINE Scalar reduce_max(Vec a) { return a; }
template <int kRows>
SACCADE_INLINE void row_maxima(const Scalar* rows, Scalar* maxima) {
  SACCADE_UNROLL
  for (int i = 0; i < kRows; ++i) maxima[i] = reduce_max(load(rows + i * kWidth));
}
template <int kRows>
SACCADE_INLINE void row_sums(const Scalar* rows, Scalar* sums) {
  SACCADE_UNROLL
  for (int i = 0; i < kRows; ++i) sums[i] = reduce_add(load(rows + i * kWidth));
}

SACCADE_INLINE void transpose_tile(const Scalar* from, std::int64_t, Scalar* to, std::int64_t) { *to = *from; }

SACCADE_INLINE void load_columns(const Scalar* from, std::int64_t, int, int columns, Vec* x) {
  for (int c = 0; c < 4; ++c) x[c] = load_first(from + c, columns - c);
}
SACCADE_INLINE void store_columns(Scalar* to, std::int64_t, int, int columns, const Vec* x) {
  for (int c = 0; c < columns; ++c) to[c] = x[c];
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
