// The Vec interface over NEON: 2 doubles. See simd/avx512.h for what each function means.
#pragma once

#include "cpu/simd/words/neon.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

using Scalar = double;
inline constexpr int kWidth = 2;
inline constexpr int kRegisters = 32;

using Vec = float64x2_t;
struct Mask {
  uint64x2_t lanes;
};

SACCADE_INLINE Vec zero() { return vdupq_n_f64(0); }
SACCADE_INLINE Vec broadcast(double x) { return vdupq_n_f64(x); }
SACCADE_INLINE Vec broadcast_from(const double* p) { return vld1q_dup_f64(p); }
SACCADE_INLINE Vec load(const double* p) { return vld1q_f64(p); }
SACCADE_INLINE Vec loadu(const double* p) { return vld1q_f64(p); }
SACCADE_INLINE Vec in_register(Vec x) {
  asm("" : "+w"(x));
  return x;
}
SACCADE_INLINE void store(double* p, Vec x) { vst1q_f64(p, x); }
SACCADE_INLINE void storeu(double* p, Vec x) { vst1q_f64(p, x); }

/// See simd/neon.h.
struct Factor {
  float64x2_t lanes;
};
SACCADE_INLINE Factor factor_from(const double* p) {
#ifdef __clang__
  double number = *p;
  asm("" : "+w"(number));
  return {vdupq_n_f64(number)};
#else
  Factor x;
  asm("ldr %d0, %1" : "=w"(x.lanes) : "m"(*p));
  return x;
#endif
}

SACCADE_INLINE Vec load_first(const double* p, int n) {
  if (n >= 2) return loadu(p);
  return n == 1 ? vld1q_lane_f64(p, zero(), 0) : zero();
}
SACCADE_INLINE void store_first(double* p, int n, Vec x) {
  if (n >= 2) return storeu(p, x);
  if (n == 1) vst1q_lane_f64(p, x, 0);
}

SACCADE_INLINE Vec add(Vec a, Vec b) { return vaddq_f64(a, b); }
SACCADE_INLINE Vec sub(Vec a, Vec b) { return vsubq_f64(a, b); }
SACCADE_INLINE Vec mul(Vec a, Vec b) { return vmulq_f64(a, b); }
SACCADE_INLINE Vec div(Vec a, Vec b) { return vdivq_f64(a, b); }
SACCADE_INLINE Vec sqrt(Vec a) { return vsqrtq_f64(a); }
SACCADE_INLINE Vec fma(Vec a, Vec b, Vec c) { return vfmaq_f64(c, a, b); }
SACCADE_INLINE Vec fma(Factor a, Vec b, Vec c) { return vfmaq_laneq_f64(c, b, a.lanes, 0); }
SACCADE_INLINE Vec max(Vec a, Vec b) { return vbslq_f64(vcgtq_f64(a, b), a, b); }
SACCADE_INLINE Vec min(Vec a, Vec b) { return vbslq_f64(vcltq_f64(a, b), a, b); }
SACCADE_INLINE Vec abs(Vec a) { return vabsq_f64(a); }
SACCADE_INLINE Vec copysign(Vec magnitude, Vec sign) {
  return vbslq_f64(vdupq_n_u64(0x8000000000000000u), sign, magnitude);
}

SACCADE_INLINE Vec fma_from(const double* a, Vec b, Vec acc) { return fma(load(a), b, acc); }
SACCADE_INLINE Vec fma_broadcast(const double* a, Vec b, Vec acc) { return fma(factor_from(a), b, acc); }

SACCADE_INLINE Mask less(Vec a, Vec b) { return {vcltq_f64(a, b)}; }
SACCADE_INLINE Mask equal(Vec a, Vec b) { return {vceqq_f64(a, b)}; }
SACCADE_INLINE Mask is_nan(Vec a) { return {veorq_u64(vceqq_f64(a, a), vdupq_n_u64(~std::uint64_t{0}))}; }
SACCADE_INLINE Mask both(Mask a, Mask b) { return {vandq_u64(a.lanes, b.lanes)}; }
SACCADE_INLINE unsigned bits(Mask m) {
  return static_cast<unsigned>((vgetq_lane_u64(m.lanes, 0) & 1u) | (vgetq_lane_u64(m.lanes, 1) & 2u));
}
SACCADE_INLINE bool any(Mask m) { return vmaxvq_u32(vreinterpretq_u32_u64(m.lanes)) != 0; }
SACCADE_INLINE Vec select(Mask m, Vec yes, Vec no) { return vbslq_f64(m.lanes, yes, no); }
SACCADE_INLINE Mask columns_within(int column, int begin, int end) {
  const int64x2_t lane = vaddq_s64(vcombine_s64(vcreate_s64(0), vcreate_s64(1)), vdupq_n_s64(column));
  return {vandq_u64(vcgeq_s64(lane, vdupq_n_s64(begin)), vcltq_s64(lane, vdupq_n_s64(end)))};
}
SACCADE_INLINE Vec lane_index() { return vcombine_f64(vdup_n_f64(0), vdup_n_f64(1)); }

SACCADE_INLINE Vec scale_by_exponent(Vec x, Vec rounded) {
  return vreinterpretq_f64_u64(
      vaddq_u64(vreinterpretq_u64_f64(x), vshlq_n_u64(vreinterpretq_u64_f64(rounded), 52)));
}

SACCADE_INLINE Vec add_lanes(Vec a, Vec) { return a; }  // never called
SACCADE_INLINE Vec sum_within_lanes(const Vec (&x)[2]) { return vpaddq_f64(x[0], x[1]); }

SACCADE_INLINE double reduce_add(Vec a) { return vgetq_lane_f64(a, 0) + vgetq_lane_f64(a, 1); }
SACCADE_INLINE double reduce_max(Vec a) { return vgetq_lane_f64(max(a, vextq_f64(a, a, 1)), 0); }
/// Two rows at a time: transposed, their lanes meet in the order of reduce_max and reduce_add.
template <int kRows>
SACCADE_INLINE void row_maxima(const double* rows, double* maxima) {
  static_assert(kRows % 2 == 0);
  SACCADE_UNROLL
  for (int i = 0; i < kRows; i += 2) {
    const Vec a = load(rows + 2 * i), b = load(rows + 2 * i + 2);
    store(maxima + i, max(vtrn1q_f64(a, b), vtrn2q_f64(a, b)));
  }
}
template <int kRows>
SACCADE_INLINE void row_sums(const double* rows, double* sums) {
  static_assert(kRows % 2 == 0);
  SACCADE_UNROLL
  for (int i = 0; i < kRows; i += 2) store(sums + i, vpaddq_f64(load(rows + 2 * i), load(rows + 2 * i + 2)));
}

SACCADE_INLINE void transpose_tile(const double* from, std::int64_t from_stride, double* to,
                                   std::int64_t to_stride) {
  const Vec a = loadu(from), b = loadu(from + from_stride);
  store(to, vtrn1q_f64(a, b));
  store(to + to_stride, vtrn2q_f64(a, b));
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
