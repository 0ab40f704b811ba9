// The Vec interface over AVX-512: 8 doubles. See simd/avx512.h for what each function means.
#pragma once

#include "cpu/simd/words/avx512.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

using Scalar = double;
inline constexpr int kWidth = 8;
inline constexpr int kRegisters = 32;

using Vec = __m512d;
using Mask = __mmask8;

SACCADE_INLINE Vec zero() { return _mm512_setzero_pd(); }
SACCADE_INLINE Vec broadcast(double x) { return _mm512_set1_pd(x); }
SACCADE_INLINE Vec broadcast_from(const double* p) { return _mm512_set1_pd(*p); }
using Factor = Vec;
SACCADE_INLINE Factor factor_from(const double* p) { return broadcast_from(p); }
SACCADE_INLINE Vec load(const double* p) { return _mm512_load_pd(p); }
SACCADE_INLINE Vec loadu(const double* p) { return _mm512_loadu_pd(p); }
SACCADE_INLINE Vec in_register(Vec x) {
  asm("" : "+v"(x));
  return x;
}
SACCADE_INLINE void store(double* p, Vec x) { _mm512_store_pd(p, x); }
SACCADE_INLINE void storeu(double* p, Vec x) { _mm512_storeu_pd(p, x); }

SACCADE_INLINE Mask first(int n) { return static_cast<Mask>(n >= 8 ? 0xff : (1u << n) - 1u); }
SACCADE_INLINE Vec load_first(const double* p, int n) { return _mm512_maskz_loadu_pd(first(n), p); }
SACCADE_INLINE void store_first(double* p, int n, Vec x) { _mm512_mask_storeu_pd(p, first(n), x); }

SACCADE_INLINE Vec add(Vec a, Vec b) { return _mm512_add_pd(a, b); }
SACCADE_INLINE Vec sub(Vec a, Vec b) { return _mm512_sub_pd(a, b); }
SACCADE_INLINE Vec mul(Vec a, Vec b) { return _mm512_mul_pd(a, b); }
SACCADE_INLINE Vec div(Vec a, Vec b) { return _mm512_div_pd(a, b); }
SACCADE_INLINE Vec sqrt(Vec a) { return _mm512_sqrt_pd(a); }
SACCADE_INLINE Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_pd(a, b, c); }
SACCADE_INLINE Vec max(Vec a, Vec b) { return _mm512_max_pd(a, b); }
SACCADE_INLINE Vec min(Vec a, Vec b) { return _mm512_min_pd(a, b); }
SACCADE_INLINE Vec abs(Vec a) { return _mm512_abs_pd(a); }
SACCADE_INLINE Vec copysign(Vec magnitude, Vec sign) {
  return _mm512_or_pd(magnitude, _mm512_and_pd(sign, _mm512_set1_pd(-0.0)));
}

SACCADE_INLINE Vec fma_from(const double* a, Vec b, Vec acc) { return fma(load(a), b, acc); }
SACCADE_INLINE Vec fma_broadcast(const double* a, Vec b, Vec acc) { return fma(broadcast(*a), b, acc); }

SACCADE_INLINE Mask less(Vec a, Vec b) { return _mm512_cmp_pd_mask(a, b, _CMP_LT_OQ); }
SACCADE_INLINE Mask equal(Vec a, Vec b) { return _mm512_cmp_pd_mask(a, b, _CMP_EQ_OQ); }
SACCADE_INLINE Mask is_nan(Vec a) { return _mm512_cmp_pd_mask(a, a, _CMP_UNORD_Q); }
SACCADE_INLINE Mask both(Mask a, Mask b) { return static_cast<Mask>(a & b); }
SACCADE_INLINE bool any(Mask m) { return m != 0; }
SACCADE_INLINE unsigned bits(Mask m) { return m; }
SACCADE_INLINE Vec select(Mask m, Vec yes, Vec no) { return _mm512_mask_blend_pd(m, no, yes); }
SACCADE_INLINE Mask columns_within(int column, int begin, int end) {
  const __m256i lane = _mm256_add_epi32(_mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0), _mm256_set1_epi32(column));
  return static_cast<Mask>(_mm256_cmpge_epi32_mask(lane, _mm256_set1_epi32(begin)) &
                           _mm256_cmplt_epi32_mask(lane, _mm256_set1_epi32(end)));
}
SACCADE_INLINE Vec lane_index() { return _mm512_set_pd(7, 6, 5, 4, 3, 2, 1, 0); }

SACCADE_INLINE Vec scale_by_exponent(Vec x, Vec rounded) {
  return _mm512_castsi512_pd(
      _mm512_add_epi64(_mm512_castpd_si512(x), _mm512_slli_epi64(_mm512_castpd_si512(rounded), 52)));
}

SACCADE_INLINE Vec add_lanes(Vec a, Vec b) {
  return add(_mm512_shuffle_f64x2(a, b, 0x88), _mm512_shuffle_f64x2(a, b, 0xdd));
}
SACCADE_INLINE Vec sum_within_lanes(const Vec (&x)[2]) {
  return add(_mm512_unpacklo_pd(x[0], x[1]), _mm512_unpackhi_pd(x[0], x[1]));
}

SACCADE_INLINE double reduce_add(Vec a) { return _mm512_reduce_add_pd(a); }
SACCADE_INLINE double reduce_max(Vec a) { return _mm512_reduce_max_pd(a); }
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

/// Writes the transpose of the 8 x 8 numbers at `from` (rows `from_stride` apart) to aligned rows of `to`.
SACCADE_INLINE void transpose_tile(const double* from, std::int64_t from_stride, double* to,
                                   std::int64_t to_stride) {
  Vec r[8], t[8];
  SACCADE_UNROLL
  for (int i = 0; i < 8; ++i) r[i] = loadu(from + i * from_stride);
  SACCADE_UNROLL
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = _mm512_unpacklo_pd(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_pd(r[2 * i], r[2 * i + 1]);
  }
  SACCADE_UNROLL
  for (int i = 0; i < 2; ++i) {
    const Vec a = _mm512_shuffle_f64x2(t[i], t[2 + i], 0x88), b = _mm512_shuffle_f64x2(t[4 + i], t[6 + i], 0x88);
    const Vec c = _mm512_shuffle_f64x2(t[i], t[2 + i], 0xdd), d = _mm512_shuffle_f64x2(t[4 + i], t[6 + i], 0xdd);
    store(to + (i + 0) * to_stride, _mm512_shuffle_f64x2(a, b, 0x88));
    store(to + (i + 4) * to_stride, _mm512_shuffle_f64x2(a, b, 0xdd));
    store(to + (i + 2) * to_stride, _mm512_shuffle_f64x2(c, d, 0x88));
    store(to + (i + 6) * to_stride, _mm512_shuffle_f64x2(c, d, 0xdd));
  }
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
