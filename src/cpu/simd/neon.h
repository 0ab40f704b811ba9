// The Vec interface over NEON: 4 floats. See simd/avx512.h for what each function means.
#pragma once

#include "cpu/simd/words/neon.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

using Scalar = float;
inline constexpr int kWidth = 4;
inline constexpr int kRegisters = 32;

using Vec = float32x4_t;
struct Mask {
  uint32x4_t lanes;
};

SACCADE_INLINE Vec zero() { return vdupq_n_f32(0); }
SACCADE_INLINE Vec broadcast(float x) { return vdupq_n_f32(x); }
SACCADE_INLINE Vec broadcast_from(const float* p) { return vld1q_dup_f32(p); }
SACCADE_INLINE Vec load(const float* p) { return vld1q_f32(p); }
SACCADE_INLINE Vec loadu(const float* p) { return vld1q_f32(p); }
SACCADE_INLINE Vec in_register(Vec x) {
  asm("" : "+w"(x));
  return x;
}
SACCADE_INLINE void store(float* p, Vec x) { vst1q_f32(p, x); }
SACCADE_INLINE void storeu(float* p, Vec x) { vst1q_f32(p, x); }

// Multiply-adds take a factor from a lane of a register, and a plain load fills one. A load that broadcasts
// (ld1r), which compilers would choose, also uses an arithmetic unit (optimization guides of Neoverse V2,
// Cortex-X4).
struct Factor {
  float32x4_t lanes;  // the number in lane 0
};
// Clang would compute each address of GCC's form separately; from Clang's, GCC would load more factors ahead than
// there are registers.
SACCADE_INLINE Factor factor_from(const float* p) {
#ifdef __clang__
  float number = *p;
  asm("" : "+w"(number));
  return {vdupq_n_f32(number)};  // no instruction, where only lane 0 is used
#else
  Factor x;
  asm("ldr %s0, %1" : "=w"(x.lanes) : "m"(*p));
  return x;
#endif
}

SACCADE_INLINE Vec load_first(const float* p, int n) {
  if (n >= 4) return loadu(p);
  if (n <= 0) return zero();
  if (n == 1) return vld1q_lane_f32(p, zero(), 0);
  const Vec two = vcombine_f32(vld1_f32(p), vdup_n_f32(0));
  return n == 2 ? two : vld1q_lane_f32(p + 2, two, 2);
}
SACCADE_INLINE void store_first(float* p, int n, Vec x) {
  if (n >= 4) return storeu(p, x);
  if (n >= 2) vst1_f32(p, vget_low_f32(x));
  if (n == 3) vst1q_lane_f32(p + 2, x, 2);
  if (n == 1) vst1q_lane_f32(p, x, 0);
}

SACCADE_INLINE Vec widen(uint16x4_t x, float16) { return vcvt_f32_f16(vreinterpret_f16_u16(x)); }
SACCADE_INLINE Vec widen(uint16x4_t x, bfloat16) { return vreinterpretq_f32_u32(vshll_n_u16(x, 16)); }
/// The first n (at most 4) of the 16-bit numbers at p, and zeros after them.
template <class T>
SACCADE_INLINE uint16x4_t load_first_bits(const T* p, int n) {
  if (n >= 4) return vld1_u16(&p->bits);
  std::uint16_t bits[4] = {};
  for (int i = 0; i < n; ++i) bits[i] = p[i].bits;
  return vld1_u16(bits);
}
template <class T>
requires(sizeof(T) == 2) SACCADE_INLINE Vec loadu(const T* p) { return widen(vld1_u16(&p->bits), T{}); }
template <class T>
requires(sizeof(T) == 2) SACCADE_INLINE Vec load_first(const T* p, int n) {
  return widen(load_first_bits(p, n), T{});
}
SACCADE_INLINE uint16x4_t narrow(Vec x, float16) { return vreinterpret_u16_f16(vcvt_f16_f32(x)); }
SACCADE_INLINE uint16x4_t narrow(Vec x, bfloat16) {
  const uint32x4_t bits = vreinterpretq_u32_f32(x), upper = vshrq_n_u32(bits, 16);
  const uint32x4_t even = vandq_u32(upper, vdupq_n_u32(1));
  const uint32x4_t rounded = vshrq_n_u32(vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), even), 16);
  const uint32x4_t quiet = vorrq_u32(upper, vdupq_n_u32(0x40));
  return vmovn_u32(vbslq_u32(vceqq_f32(x, x), rounded, quiet));
}
template <class T>
requires(sizeof(T) == 2) SACCADE_INLINE void storeu(T* p, Vec x) { vst1_u16(&p->bits, narrow(x, T{})); }
template <class T>
requires(sizeof(T) == 2) SACCADE_INLINE void store_first(T* p, int n, Vec x) {
  if (n >= 4) return storeu(p, x);
  std::uint16_t bits[4];
  vst1_u16(bits, narrow(x, T{}));
  for (int i = 0; i < n; ++i) p[i].bits = bits[i];
}

SACCADE_INLINE Vec widen_bytes(int8x8_t x, std::int8_t) {
  return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(x))));
}
SACCADE_INLINE Vec widen_bytes(int8x8_t x, float8_e4m3) {
  const uint16x4_t shifted = vshl_n_u16(vreinterpret_u16_s16(vget_low_s16(vmovl_s8(x))), 7);
  const Vec y = vmulq_n_f32(vcvt_f32_f16(vreinterpret_f16_u16(vand_u16(shifted, vdup_n_u16(0xbfff)))), 256);
  return vbslq_f32(vceqq_f32(vabsq_f32(y), vdupq_n_f32(480)), broadcast(std::numeric_limits<float>::quiet_NaN()),
                   y);
}
/// The 4 bytes at p, and zeros after them.
SACCADE_INLINE int8x8_t load_bytes(const void* p) {
  std::uint32_t bytes;
  std::memcpy(&bytes, p, sizeof bytes);
  return vreinterpret_s8_u32(vset_lane_u32(bytes, vdup_n_u32(0), 0));
}
template <class T>
requires(sizeof(T) == 1) SACCADE_INLINE Vec loadu(const T* p) { return widen_bytes(load_bytes(p), T{}); }
template <class T>
requires(sizeof(T) == 1) SACCADE_INLINE Vec load_first(const T* p, int n) {
  if (n >= 4) return loadu(p);
  T numbers[4] = {};
  for (int i = 0; i < n; ++i) numbers[i] = p[i];
  return loadu(numbers);
}
/// `multiplier` times each of 16 nibbles less 8.
SACCADE_INLINE int8x16_t multiples_of(uint8x16_t nibbles, std::int8_t multiplier) {
  return vqtbl1q_s8(vld1q_s8(kMultiples[static_cast<std::uint8_t>(multiplier)].data()), nibbles);
}
SACCADE_INLINE Vec load_nibbles(const std::uint8_t* p, bool upper, std::int8_t multiplier) {
  const uint8x8_t bytes = vreinterpret_u8_s8(load_bytes(p));
  const uint8x8_t nibbles = upper ? vshr_n_u8(bytes, 4) : vand_u8(bytes, vdup_n_u8(15));
  const auto* const table = kMultiples[static_cast<std::uint8_t>(multiplier)].data();
  return widen_bytes(vqtbl1_s8(vld1q_s8(table), nibbles), std::int8_t{});
}

SACCADE_INLINE void widen_halves(int16x8_t x, Vec& low, Vec& high) {
  low = vcvtq_f32_s32(vmovl_s16(vget_low_s16(x))), high = vcvtq_f32_s32(vmovl_high_s16(x));
}
SACCADE_INLINE void widen_16(int8x16_t x, Vec (&to)[4]) {
  widen_halves(vmovl_s8(vget_low_s8(x)), to[0], to[1]);
  widen_halves(vmovl_high_s8(x), to[2], to[3]);
}
SACCADE_INLINE void load_16(const std::int8_t* p, Vec (&x)[4]) { widen_16(vld1q_s8(p), x); }
SACCADE_INLINE void load_16_nibbles(const std::uint8_t* p, bool upper, std::int8_t multiplier, Vec (&x)[4]) {
  const uint8x16_t bytes = vld1q_u8(p);
  widen_16(multiples_of(upper ? vshrq_n_u8(bytes, 4) : vandq_u8(bytes, vdupq_n_u8(15)), multiplier), x);
}
SACCADE_INLINE void load_16(const float8_e4m3* p, Vec (&x)[4]) {
  const int8x16_t bytes = vreinterpretq_s8_u8(vld1q_u8(&p->bits));
  const auto widen = [](int16x8_t shifted, Vec & low, Vec & high) __attribute__((always_inline)) {
    const uint16x8_t bits = vreinterpretq_u16_s16(shifted), most = vdupq_n_u16(0x3f80);
    const uint16x8_t number = vbicq_u16(bits, vdupq_n_u16(0x4000));
    const uint16x8_t nan = vceqq_u16(vandq_u16(bits, most), most);
    const float16x8_t halves = vreinterpretq_f16_u16(vbslq_u16(nan, vdupq_n_u16(0x7e00), number));
    low = vmulq_n_f32(vcvt_f32_f16(vget_low_f16(halves)), 256);
    high = vmulq_n_f32(vcvt_high_f32_f16(halves), 256);
  };
  widen(vshll_n_s8(vget_low_s8(bytes), 7), x[0], x[1]);
  widen(vshll_high_n_s8(bytes, 7), x[2], x[3]);
}

SACCADE_INLINE Vec add(Vec a, Vec b) { return vaddq_f32(a, b); }
SACCADE_INLINE Vec sub(Vec a, Vec b) { return vsubq_f32(a, b); }
SACCADE_INLINE Vec mul(Vec a, Vec b) { return vmulq_f32(a, b); }
SACCADE_INLINE Vec div(Vec a, Vec b) { return vdivq_f32(a, b); }
SACCADE_INLINE Vec sqrt(Vec a) { return vsqrtq_f32(a); }
SACCADE_INLINE Vec fma(Vec a, Vec b, Vec c) { return vfmaq_f32(c, a, b); }
SACCADE_INLINE Vec fma(Factor a, Vec b, Vec c) { return vfmaq_laneq_f32(c, b, a.lanes, 0); }
// Not fmax and fmin, which return NaN if either operand is NaN.
SACCADE_INLINE Vec max(Vec a, Vec b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
SACCADE_INLINE Vec min(Vec a, Vec b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
SACCADE_INLINE Vec abs(Vec a) { return vabsq_f32(a); }
SACCADE_INLINE Vec copysign(Vec magnitude, Vec sign) {
  return vbslq_f32(vdupq_n_u32(0x80000000u), sign, magnitude);
}

SACCADE_INLINE Vec fma_from(const float* a, Vec b, Vec acc) { return fma(load(a), b, acc); }
SACCADE_INLINE Vec fma_broadcast(const float* a, Vec b, Vec acc) { return fma(factor_from(a), b, acc); }

SACCADE_INLINE Mask less(Vec a, Vec b) { return {vcltq_f32(a, b)}; }
SACCADE_INLINE Mask equal(Vec a, Vec b) { return {vceqq_f32(a, b)}; }
SACCADE_INLINE Mask is_nan(Vec a) { return {vmvnq_u32(vceqq_f32(a, a))}; }
SACCADE_INLINE Mask both(Mask a, Mask b) { return {vandq_u32(a.lanes, b.lanes)}; }
SACCADE_INLINE bool any(Mask m) { return vmaxvq_u32(m.lanes) != 0; }
SACCADE_INLINE uint32x4_t lane_numbers() {
  return vcombine_u32(vcreate_u32(0x0000000100000000u), vcreate_u32(0x0000000300000002u));
}
SACCADE_INLINE unsigned bits(Mask m) {
  const uint32x4_t bit = vshlq_u32(vdupq_n_u32(1), vreinterpretq_s32_u32(lane_numbers()));
  return vaddvq_u32(vandq_u32(m.lanes, bit));
}
SACCADE_INLINE Vec select(Mask m, Vec yes, Vec no) { return vbslq_f32(m.lanes, yes, no); }
SACCADE_INLINE Mask columns_within(int column, int begin, int end) {
  const int32x4_t lane = vaddq_s32(vreinterpretq_s32_u32(lane_numbers()), vdupq_n_s32(column));
  return {vandq_u32(vcgeq_s32(lane, vdupq_n_s32(begin)), vcltq_s32(lane, vdupq_n_s32(end)))};
}
SACCADE_INLINE Vec lane_index() { return vcvtq_f32_u32(lane_numbers()); }

SACCADE_INLINE Vec scale_by_exponent(Vec x, Vec rounded) {
  return vreinterpretq_f32_u32(
      vaddq_u32(vreinterpretq_u32_f32(x), vshlq_n_u32(vreinterpretq_u32_f32(rounded), 23)));
}

SACCADE_INLINE Vec add_lanes(Vec a, Vec) { return a; }  // never called
SACCADE_INLINE Vec sum_within_lanes(const Vec (&x)[4]) {
  return vpaddq_f32(vpaddq_f32(x[0], x[1]), vpaddq_f32(x[2], x[3]));
}

SACCADE_INLINE float reduce_add(Vec a) {
  const float32x2_t half = vadd_f32(vget_low_f32(a), vget_high_f32(a));
  return vget_lane_f32(half, 0) + vget_lane_f32(half, 1);
}
SACCADE_INLINE float reduce_max(Vec a) {
  const Vec half = max(a, vextq_f32(a, a, 2));
  return vgetq_lane_f32(max(half, vextq_f32(half, half, 1)), 0);
}

/// Transposes the 4 x 4 numbers in four vectors.
SACCADE_INLINE void transpose(Vec* r) {
  const float64x2_t a = vreinterpretq_f64_f32(vtrn1q_f32(r[0], r[1]));
  const float64x2_t b = vreinterpretq_f64_f32(vtrn2q_f32(r[0], r[1]));
  const float64x2_t c = vreinterpretq_f64_f32(vtrn1q_f32(r[2], r[3]));
  const float64x2_t d = vreinterpretq_f64_f32(vtrn2q_f32(r[2], r[3]));
  r[0] = vreinterpretq_f32_f64(vtrn1q_f64(a, c));
  r[1] = vreinterpretq_f32_f64(vtrn1q_f64(b, d));
  r[2] = vreinterpretq_f32_f64(vtrn2q_f64(a, c));
  r[3] = vreinterpretq_f32_f64(vtrn2q_f64(b, d));
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE

#include "cpu/simd/four_lanes.h"
