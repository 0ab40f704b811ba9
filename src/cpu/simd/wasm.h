// The Vec interface over WebAssembly's 128-bit vectors: 4 floats. See simd/avx512.h for what each function means.
#pragma once

#include "cpu/simd/words/wasm.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

using Scalar = float;
inline constexpr int kWidth = 4;
inline constexpr int kRegisters = 16;  // of the processor below, on x86-64

// Types of their own: v128_t is also the type of integers.
struct Vec {
  v128_t lanes;
};
struct Mask {
  v128_t lanes;
};

SACCADE_INLINE Vec zero() { return {wasm_f32x4_const_splat(0)}; }
SACCADE_INLINE Vec broadcast(float x) { return {wasm_f32x4_splat(x)}; }
SACCADE_INLINE Vec broadcast_from(const float* p) { return {wasm_v128_load32_splat(p)}; }
using Factor = Vec;
SACCADE_INLINE Factor factor_from(const float* p) { return broadcast_from(p); }
SACCADE_INLINE Vec load(const float* p) { return {wasm_v128_load(p)}; }
SACCADE_INLINE Vec loadu(const float* p) { return {wasm_v128_load(p)}; }
SACCADE_INLINE Vec in_register(Vec x) { return x; }
SACCADE_INLINE void store(float* p, Vec x) { wasm_v128_store(p, x.lanes); }
SACCADE_INLINE void storeu(float* p, Vec x) { wasm_v128_store(p, x.lanes); }

SACCADE_INLINE Vec load_first(const float* p, int n) {
  if (n >= 4) return loadu(p);
  if (n <= 0) return zero();
  if (n == 1) return {wasm_v128_load32_zero(p)};
  const v128_t two = wasm_v128_load64_zero(p);
  return {n == 2 ? two : wasm_v128_load32_lane(p + 2, two, 2)};
}
SACCADE_INLINE void store_first(float* p, int n, Vec x) {
  if (n >= 4) return storeu(p, x);
  if (n >= 2) wasm_v128_store64_lane(p, x.lanes, 0);
  if (n == 3) wasm_v128_store32_lane(p + 2, x.lanes, 2);
  if (n == 1) wasm_v128_store32_lane(p, x.lanes, 0);
}

SACCADE_INLINE v128_t either(v128_t mask, v128_t yes, v128_t no) { return wasm_v128_bitselect(yes, no, mask); }
/// Of 32-bit lanes whose lower half holds a 16-bit number. The bits of an f16, moved to where f32 has them, are
/// 2^-112 of the number.
SACCADE_INLINE Vec widen(v128_t x, bfloat16) { return {wasm_i32x4_shl(x, 16)}; }
SACCADE_INLINE Vec widen(v128_t x, float16) {
  const v128_t magnitude = wasm_v128_and(x, wasm_i32x4_const_splat(0x7fff)), moved = wasm_i32x4_shl(magnitude, 13);
  const v128_t number = wasm_f32x4_mul(moved, wasm_i32x4_const_splat(0x77800000));
  const v128_t quiet =
      wasm_v128_and(wasm_i32x4_gt(magnitude, wasm_i32x4_const_splat(0x7c00)), wasm_i32x4_const_splat(0x400000));
  const v128_t not_finite = wasm_v128_or(wasm_v128_or(moved, wasm_i32x4_const_splat(0x7f800000)), quiet);
  const v128_t positive = either(wasm_i32x4_ge(magnitude, wasm_i32x4_const_splat(0x7c00)), not_finite, number);
  return {wasm_v128_or(positive, wasm_i32x4_shl(wasm_v128_xor(x, magnitude), 16))};
}
template <class T>
requires(sizeof(T) == 2) SACCADE_INLINE Vec loadu(const T* p) { return widen(wasm_u32x4_load16x4(p), T{}); }
template <class T>
requires(sizeof(T) == 2) SACCADE_INLINE Vec load_first(const T* p, int n) {
  if (n >= 4) return loadu(p);
  T numbers[4] = {};
  for (int i = 0; i < n; ++i) numbers[i] = p[i];
  return loadu(numbers);
}
/// To the lower half of 32-bit lanes, rounded to nearest even.
SACCADE_INLINE v128_t narrow(Vec x, bfloat16) {
  const v128_t upper = wasm_u32x4_shr(x.lanes, 16), even = wasm_v128_and(upper, wasm_i32x4_const_splat(1));
  const v128_t rounded =
      wasm_u32x4_shr(wasm_i32x4_add(wasm_i32x4_add(x.lanes, wasm_i32x4_const_splat(0x7fff)), even), 16);
  const v128_t quiet = wasm_v128_or(upper, wasm_i32x4_const_splat(0x40));
  return either(wasm_f32x4_eq(x.lanes, x.lanes), rounded, quiet);
}
SACCADE_INLINE v128_t narrow(Vec x, float16) {
  const v128_t magnitude = wasm_v128_and(x.lanes, wasm_i32x4_const_splat(0x7fffffff));
  // Normal numbers: the exponent less 112, and half a unit of the last place less a bit unless that place is odd.
  const v128_t odd = wasm_v128_and(wasm_u32x4_shr(magnitude, 13), wasm_i32x4_const_splat(1));
  const v128_t biased = wasm_i32x4_add(magnitude, wasm_i32x4_const_splat(0xfff - (112 << 23)));
  const v128_t normal = wasm_u32x4_shr(wasm_i32x4_add(biased, odd), 13);
  // Denormal numbers: beside 0.5 the last place of an f32 is that of an f16.
  const v128_t half = wasm_f32x4_const_splat(0.5f);
  const v128_t denormal = wasm_i32x4_sub(wasm_f32x4_add(magnitude, half), half);
  const v128_t finite = either(wasm_i32x4_lt(magnitude, wasm_i32x4_const_splat(0x38800000)), denormal, normal);
  const v128_t quiet = wasm_v128_or(wasm_v128_and(wasm_u32x4_shr(magnitude, 13), wasm_i32x4_const_splat(0x3ff)),
                                    wasm_i32x4_const_splat(0x7e00));
  const v128_t not_finite = either(wasm_f32x4_eq(x.lanes, x.lanes), wasm_i32x4_const_splat(0x7c00), quiet);
  const v128_t positive = either(wasm_i32x4_ge(magnitude, wasm_i32x4_const_splat(0x47800000)), not_finite, finite);
  return wasm_v128_or(positive, wasm_u32x4_shr(wasm_v128_xor(x.lanes, magnitude), 16));
}
template <class T>
requires(sizeof(T) == 2) SACCADE_INLINE void storeu(T* p, Vec x) {
  const v128_t numbers = narrow(x, T{});
  wasm_v128_store64_lane(p, wasm_u16x8_narrow_i32x4(numbers, numbers), 0);
}
template <class T>
requires(sizeof(T) == 2) SACCADE_INLINE void store_first(T* p, int n, Vec x) {
  if (n >= 4) return storeu(p, x);
  T numbers[4];
  storeu(numbers, x);
  for (int i = 0; i < n; ++i) p[i] = numbers[i];
}

/// Of 32-bit lanes with the byte's bits, its sign extended.
SACCADE_INLINE Vec widen_bytes(v128_t x, std::int8_t) { return {wasm_f32x4_convert_i32x4(x)}; }
SACCADE_INLINE Vec widen_bytes(v128_t x, float8_e4m3) {
  const v128_t magnitude = wasm_v128_and(x, wasm_i32x4_const_splat(0x7f));
  const v128_t number =
      wasm_f32x4_mul(wasm_i32x4_shl(magnitude, 20), wasm_i32x4_const_splat(0x7b800000));  // 2^120
  const v128_t nan = wasm_i32x4_eq(magnitude, wasm_i32x4_const_splat(0x7f));
  const v128_t sign = wasm_v128_and(x, wasm_i32x4_const_splat(std::numeric_limits<std::int32_t>::min()));
  return {either(nan, wasm_i32x4_const_splat(0x7fc00000), wasm_v128_or(number, sign))};
}
SACCADE_INLINE v128_t extend_bytes(v128_t x) {
  return wasm_i32x4_extend_low_i16x8(wasm_i16x8_extend_low_i8x16(x));
}
template <class T>
requires(sizeof(T) == 1) SACCADE_INLINE Vec loadu(const T* p) {
  return widen_bytes(extend_bytes(wasm_v128_load32_zero(p)), T{});
}
template <class T>
requires(sizeof(T) == 1) SACCADE_INLINE Vec load_first(const T* p, int n) {
  if (n >= 4) return loadu(p);
  T numbers[4] = {};
  for (int i = 0; i < n; ++i) numbers[i] = p[i];
  return loadu(numbers);
}
/// `multiplier` times each of 16 nibbles less 8.
SACCADE_INLINE v128_t multiples_of(v128_t bytes, bool upper, std::int8_t multiplier) {
  const v128_t nibbles = upper ? wasm_u8x16_shr(bytes, 4) : wasm_v128_and(bytes, wasm_i8x16_const_splat(15));
  return wasm_i8x16_swizzle(wasm_v128_load(kMultiples[static_cast<std::uint8_t>(multiplier)].data()), nibbles);
}
SACCADE_INLINE Vec load_nibbles(const std::uint8_t* p, bool upper, std::int8_t multiplier) {
  return widen_bytes(extend_bytes(multiples_of(wasm_v128_load32_zero(p), upper, multiplier)), std::int8_t{});
}

template <class T>
SACCADE_INLINE void widen_16(v128_t x, Vec (&to)[4], T type) {
  const v128_t low = wasm_i16x8_extend_low_i8x16(x), high = wasm_i16x8_extend_high_i8x16(x);
  to[0] = widen_bytes(wasm_i32x4_extend_low_i16x8(low), type);
  to[1] = widen_bytes(wasm_i32x4_extend_high_i16x8(low), type);
  to[2] = widen_bytes(wasm_i32x4_extend_low_i16x8(high), type);
  to[3] = widen_bytes(wasm_i32x4_extend_high_i16x8(high), type);
}
template <class T>
requires(sizeof(T) == 1) SACCADE_INLINE void load_16(const T* p, Vec (&x)[4]) {
  widen_16(wasm_v128_load(p), x, T{});
}
SACCADE_INLINE void load_16_nibbles(const std::uint8_t* p, bool upper, std::int8_t multiplier, Vec (&x)[4]) {
  widen_16(multiples_of(wasm_v128_load(p), upper, multiplier), x, std::int8_t{});
}

SACCADE_INLINE Vec add(Vec a, Vec b) { return {wasm_f32x4_add(a.lanes, b.lanes)}; }
SACCADE_INLINE Vec sub(Vec a, Vec b) { return {wasm_f32x4_sub(a.lanes, b.lanes)}; }
SACCADE_INLINE Vec mul(Vec a, Vec b) { return {wasm_f32x4_mul(a.lanes, b.lanes)}; }
SACCADE_INLINE Vec div(Vec a, Vec b) { return {wasm_f32x4_div(a.lanes, b.lanes)}; }
SACCADE_INLINE Vec sqrt(Vec a) { return {wasm_f32x4_sqrt(a.lanes)}; }
// Two roundings, the same on every machine. The fused multiply-add of "relaxed SIMD" rounds once or twice, as the
// machine has it.
SACCADE_INLINE Vec fma(Vec a, Vec b, Vec c) { return add(mul(a, b), c); }
// Pseudo-maximum and -minimum return their first operand where either is NaN.
SACCADE_INLINE Vec max(Vec a, Vec b) { return {wasm_f32x4_pmax(b.lanes, a.lanes)}; }
SACCADE_INLINE Vec min(Vec a, Vec b) { return {wasm_f32x4_pmin(b.lanes, a.lanes)}; }
SACCADE_INLINE Vec abs(Vec a) { return {wasm_f32x4_abs(a.lanes)}; }
SACCADE_INLINE Vec copysign(Vec magnitude, Vec sign) {
  return {either(wasm_f32x4_const_splat(-0.0f), sign.lanes, magnitude.lanes)};
}

SACCADE_INLINE Vec fma_from(const float* a, Vec b, Vec acc) { return fma(load(a), b, acc); }
SACCADE_INLINE Vec fma_broadcast(const float* a, Vec b, Vec acc) { return fma(broadcast_from(a), b, acc); }

SACCADE_INLINE Mask less(Vec a, Vec b) { return {wasm_f32x4_lt(a.lanes, b.lanes)}; }
SACCADE_INLINE Mask equal(Vec a, Vec b) { return {wasm_f32x4_eq(a.lanes, b.lanes)}; }
SACCADE_INLINE Mask is_nan(Vec a) { return {wasm_f32x4_ne(a.lanes, a.lanes)}; }
SACCADE_INLINE Mask both(Mask a, Mask b) { return {wasm_v128_and(a.lanes, b.lanes)}; }
SACCADE_INLINE bool any(Mask m) { return wasm_v128_any_true(m.lanes); }
SACCADE_INLINE unsigned bits(Mask m) { return static_cast<unsigned>(wasm_i32x4_bitmask(m.lanes)); }
SACCADE_INLINE Vec select(Mask m, Vec yes, Vec no) { return {either(m.lanes, yes.lanes, no.lanes)}; }
SACCADE_INLINE Mask columns_within(int column, int begin, int end) {
  const v128_t lane = wasm_i32x4_add(wasm_i32x4_const(0, 1, 2, 3), wasm_i32x4_splat(column));
  return {wasm_v128_and(wasm_i32x4_ge(lane, wasm_i32x4_splat(begin)), wasm_i32x4_lt(lane, wasm_i32x4_splat(end)))};
}
SACCADE_INLINE Vec lane_index() { return {wasm_f32x4_const(0, 1, 2, 3)}; }

SACCADE_INLINE Vec scale_by_exponent(Vec x, Vec rounded) {
  return {wasm_i32x4_add(x.lanes, wasm_i32x4_shl(rounded.lanes, 23))};
}

/// Transposes the 4 x 4 numbers in four vectors.
SACCADE_INLINE void transpose(Vec* r) {
  const v128_t a = wasm_i32x4_shuffle(r[0].lanes, r[1].lanes, 0, 4, 1, 5);
  const v128_t b = wasm_i32x4_shuffle(r[0].lanes, r[1].lanes, 2, 6, 3, 7);
  const v128_t c = wasm_i32x4_shuffle(r[2].lanes, r[3].lanes, 0, 4, 1, 5);
  const v128_t d = wasm_i32x4_shuffle(r[2].lanes, r[3].lanes, 2, 6, 3, 7);
  r[0].lanes = wasm_i64x2_shuffle(a, c, 0, 2);
  r[1].lanes = wasm_i64x2_shuffle(a, c, 1, 3);
  r[2].lanes = wasm_i64x2_shuffle(b, d, 0, 2);
  r[3].lanes = wasm_i64x2_shuffle(b, d, 1, 3);
}

SACCADE_INLINE Vec add_lanes(Vec a, Vec) { return a; }  // never called
SACCADE_INLINE Vec sum_within_lanes(const Vec (&x)[4]) {
  Vec r[4] = {x[0], x[1], x[2], x[3]};
  transpose(r);
  return add(add(r[0], r[1]), add(r[2], r[3]));
}

SACCADE_INLINE Vec swap_halves(Vec a) { return {wasm_i64x2_shuffle(a.lanes, a.lanes, 1, 0)}; }
SACCADE_INLINE float reduce_add(Vec a) {
  const Vec half = add(a, swap_halves(a));
  return wasm_f32x4_extract_lane(half.lanes, 0) + wasm_f32x4_extract_lane(half.lanes, 1);
}
SACCADE_INLINE float reduce_max(Vec a) {
  const Vec half = max(a, swap_halves(a));
  return wasm_f32x4_extract_lane(max(half, {wasm_i32x4_shuffle(half.lanes, half.lanes, 1, 0, 3, 2)}).lanes, 0);
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE

#include "cpu/simd/four_lanes.h"
