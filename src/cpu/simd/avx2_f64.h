// The Vec interface over AVX2 and FMA: 4 doubles. See simd/avx512.h for what each function means.
#pragma once

#include "cpu/simd/words/avx2.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

using Scalar = double;
inline constexpr int kWidth = 4;
inline constexpr int kRegisters = 16;

using Vec = __m256d;
struct Mask {
  __m256d lanes;
};

SACCADE_INLINE Vec zero() { return _mm256_setzero_pd(); }
SACCADE_INLINE Vec broadcast(double x) { return _mm256_set1_pd(x); }
SACCADE_INLINE Vec broadcast_from(const double* p) { return _mm256_broadcast_sd(p); }
using Factor = Vec;
SACCADE_INLINE Factor factor_from(const double* p) { return broadcast_from(p); }
SACCADE_INLINE Vec load(const double* p) { return _mm256_load_pd(p); }
SACCADE_INLINE Vec loadu(const double* p) { return _mm256_loadu_pd(p); }
SACCADE_INLINE Vec in_register(Vec x) {
  asm("" : "+x"(x));
  return x;
}
SACCADE_INLINE void store(double* p, Vec x) { _mm256_store_pd(p, x); }
SACCADE_INLINE void storeu(double* p, Vec x) { _mm256_storeu_pd(p, x); }

SACCADE_INLINE __m256i lane_numbers() { return _mm256_set_epi64x(3, 2, 1, 0); }
SACCADE_INLINE __m256i first(int n) { return _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), lane_numbers()); }
SACCADE_INLINE Vec load_first(const double* p, int n) { return _mm256_maskload_pd(p, first(n)); }
SACCADE_INLINE void store_first(double* p, int n, Vec x) { _mm256_maskstore_pd(p, first(n), x); }

SACCADE_INLINE Vec add(Vec a, Vec b) { return _mm256_add_pd(a, b); }
SACCADE_INLINE Vec sub(Vec a, Vec b) { return _mm256_sub_pd(a, b); }
SACCADE_INLINE Vec mul(Vec a, Vec b) { return _mm256_mul_pd(a, b); }
SACCADE_INLINE Vec div(Vec a, Vec b) { return _mm256_div_pd(a, b); }
SACCADE_INLINE Vec sqrt(Vec a) { return _mm256_sqrt_pd(a); }
SACCADE_INLINE Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_pd(a, b, c); }
SACCADE_INLINE Vec max(Vec a, Vec b) { return _mm256_max_pd(a, b); }
SACCADE_INLINE Vec min(Vec a, Vec b) { return _mm256_min_pd(a, b); }
SACCADE_INLINE Vec abs(Vec a) { return _mm256_andnot_pd(_mm256_set1_pd(-0.0), a); }
SACCADE_INLINE Vec copysign(Vec magnitude, Vec sign) {
  return _mm256_or_pd(magnitude, _mm256_and_pd(sign, _mm256_set1_pd(-0.0)));
}

SACCADE_INLINE Vec fma_from(const double* a, Vec b, Vec acc) { return fma(load(a), b, acc); }
SACCADE_INLINE Vec fma_broadcast(const double* a, Vec b, Vec acc) {
  return _mm256_fmadd_pd(_mm256_broadcast_sd(a), b, acc);
}

SACCADE_INLINE Mask less(Vec a, Vec b) { return {_mm256_cmp_pd(a, b, _CMP_LT_OQ)}; }
SACCADE_INLINE Mask equal(Vec a, Vec b) { return {_mm256_cmp_pd(a, b, _CMP_EQ_OQ)}; }
SACCADE_INLINE Mask is_nan(Vec a) { return {_mm256_cmp_pd(a, a, _CMP_UNORD_Q)}; }
SACCADE_INLINE Mask both(Mask a, Mask b) { return {_mm256_and_pd(a.lanes, b.lanes)}; }
SACCADE_INLINE bool any(Mask m) { return _mm256_movemask_pd(m.lanes) != 0; }
SACCADE_INLINE unsigned bits(Mask m) { return static_cast<unsigned>(_mm256_movemask_pd(m.lanes)); }
SACCADE_INLINE Vec select(Mask m, Vec yes, Vec no) { return _mm256_blendv_pd(no, yes, m.lanes); }
SACCADE_INLINE Mask columns_within(int column, int begin, int end) {
  const __m256i lane = _mm256_add_epi64(lane_numbers(), _mm256_set1_epi64x(column));
  const __m256i below = _mm256_cmpgt_epi64(_mm256_set1_epi64x(begin), lane);
  return {_mm256_castsi256_pd(_mm256_andnot_si256(below, _mm256_cmpgt_epi64(_mm256_set1_epi64x(end), lane)))};
}
SACCADE_INLINE Vec lane_index() { return _mm256_set_pd(3, 2, 1, 0); }

SACCADE_INLINE Vec scale_by_exponent(Vec x, Vec rounded) {
  return _mm256_castsi256_pd(
      _mm256_add_epi64(_mm256_castpd_si256(x), _mm256_slli_epi64(_mm256_castpd_si256(rounded), 52)));
}

SACCADE_INLINE Vec add_lanes(Vec a, Vec b) {
  return add(_mm256_permute2f128_pd(a, b, 0x20), _mm256_permute2f128_pd(a, b, 0x31));
}
SACCADE_INLINE Vec sum_within_lanes(const Vec (&x)[2]) {
  return add(_mm256_unpacklo_pd(x[0], x[1]), _mm256_unpackhi_pd(x[0], x[1]));
}

SACCADE_INLINE double reduce_add(Vec a) {
  const __m128d half = _mm_add_pd(_mm256_castpd256_pd128(a), _mm256_extractf128_pd(a, 1));
  return _mm_cvtsd_f64(_mm_add_sd(half, _mm_unpackhi_pd(half, half)));
}
SACCADE_INLINE double reduce_max(Vec a) {
  const __m128d half = _mm_max_pd(_mm256_castpd256_pd128(a), _mm256_extractf128_pd(a, 1));
  return _mm_cvtsd_f64(_mm_max_sd(half, _mm_unpackhi_pd(half, half)));
}
template <int kRows>
SACCADE_INLINE void row_maxima(const double* rows, double* maxima) {
  SACCADE_UNROLL
  for (int i = 0; i < kRows; ++i) maxima[i] = reduce_max(load(rows + i * kWidth));
}
template <int kRows>
SACCADE_INLINE void row_sums(const double* rows, double* sums) {
  SACCADE_UNROLL
  for (int i = 0; i < kRows; ++i) sums[i] = reduce_add(load(rows + i * kWidth));
}

SACCADE_INLINE void transpose_tile(const double* from, std::int64_t from_stride, double* to,
                                   std::int64_t to_stride) {
  const Vec r0 = loadu(from), r1 = loadu(from + from_stride);
  const Vec r2 = loadu(from + 2 * from_stride), r3 = loadu(from + 3 * from_stride);
  const Vec t0 = _mm256_unpacklo_pd(r0, r1), t1 = _mm256_unpackhi_pd(r0, r1);
  const Vec t2 = _mm256_unpacklo_pd(r2, r3), t3 = _mm256_unpackhi_pd(r2, r3);
  store(to, _mm256_permute2f128_pd(t0, t2, 0x20));
  store(to + to_stride, _mm256_permute2f128_pd(t1, t3, 0x20));
  store(to + 2 * to_stride, _mm256_permute2f128_pd(t0, t2, 0x31));
  store(to + 3 * to_stride, _mm256_permute2f128_pd(t1, t3, 0x31));
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
