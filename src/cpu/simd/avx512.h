// The Vec interface over AVX-512: 16 floats. The functions here have the same names and meaning for every
// instruction set and for both element types of the arithmetic (Scalar: float, or double in simd/*_f64.h); the
// rest of the kernels is independent of both.
#pragma once

#include "cpu/simd/words/avx512.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

using Scalar = float;
inline constexpr int kWidth = 16;
inline constexpr int kRegisters = 32;

using Vec = __m512;
using Mask = __mmask16;

SACCADE_INLINE Vec zero() { return _mm512_setzero_ps(); }
SACCADE_INLINE Vec broadcast(float x) { return _mm512_set1_ps(x); }
// Uses vpbroadcastd: compilers choose vbroadcastss for a constant, which from memory takes a slot that FMA needs
// (Zen 4: 26.9 instead of 24 clocks a step).
SACCADE_INLINE Vec broadcast_from(const float* p) {
  Vec x;
  asm("vpbroadcastd %1, %0" : "=v"(x) : "m"(*p));
  return x;
}
/// The type of a factor that multiply-adds apply to a whole vector, and its load.
using Factor = Vec;
SACCADE_INLINE Factor factor_from(const float* p) { return broadcast_from(p); }
SACCADE_INLINE Vec load(const float* p) { return _mm512_load_ps(p); }
SACCADE_INLINE Vec loadu(const float* p) { return _mm512_loadu_ps(p); }
/// Returns x, and hides its address from the compiler: x stays in a register and is not loaded again.
SACCADE_INLINE Vec in_register(Vec x) {
  asm("" : "+v"(x));
  return x;
}
SACCADE_INLINE void store(float* p, Vec x) { _mm512_store_ps(p, x); }
SACCADE_INLINE void storeu(float* p, Vec x) { _mm512_storeu_ps(p, x); }

SACCADE_INLINE Mask first(int n) { return static_cast<Mask>(n >= 16 ? 0xffff : (1u << n) - 1u); }
SACCADE_INLINE Vec load_first(const float* p, int n) { return _mm512_maskz_loadu_ps(first(n), p); }
SACCADE_INLINE void store_first(float* p, int n, Vec x) { _mm512_mask_storeu_ps(p, first(n), x); }

/// Conversions from and to 16-bit types: widening is exact, narrowing rounds once, to nearest even.
SACCADE_INLINE Vec widen(__m256i x, float16) { return _mm512_cvtph_ps(x); }
SACCADE_INLINE Vec widen(__m256i x, bfloat16) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}
template <class T>
requires(sizeof(T) == 2) SACCADE_INLINE Vec loadu(const T* p) {
  return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), T{});
}
template <class T>
requires(sizeof(T) == 2) SACCADE_INLINE Vec load_first(const T* p, int n) {
  return widen(_mm256_maskz_loadu_epi16(first(n), p), T{});
}
SACCADE_INLINE __m256i narrow(Vec x, float16) { return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT); }
SACCADE_INLINE __m256i narrow(Vec x, bfloat16) {
  const __m512i bits = _mm512_castps_si512(x), upper = _mm512_srli_epi32(bits, 16);
  const __m512i even = _mm512_and_si512(upper, _mm512_set1_epi32(1));
  const __m512i rounded =
      _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), even), 16);
  const __m512i quiet = _mm512_or_si512(upper, _mm512_set1_epi32(0x40));
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_mask_blend_epi32(nan, rounded, quiet));
}
template <class T>
requires(sizeof(T) == 2) SACCADE_INLINE void storeu(T* p, Vec x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow(x, T{}));
}
template <class T>
requires(sizeof(T) == 2) SACCADE_INLINE void store_first(T* p, int n, Vec x) {
  _mm256_mask_storeu_epi16(p, first(n), narrow(x, T{}));
}

/// Loads of quantized numbers: see simd/quantized.h.
SACCADE_INLINE Vec widen_bytes(__m128i x, std::int8_t) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(x)); }
/// f16 has one more bit of exponent, with twice the bias: the same bits are 2^-8 of the number. 480 is NaN.
SACCADE_INLINE Vec widen_bytes(__m128i x, float8_e4m3) {
  const __m256i shifted = _mm256_slli_epi16(_mm256_cvtepi8_epi16(x), 7);
  const __m256i bits = _mm256_and_si256(shifted, _mm256_set1_epi16(static_cast<short>(0xbfff)));
  const Vec y = _mm512_mul_ps(_mm512_cvtph_ps(bits), broadcast(256));
  const Mask nan = _mm512_cmp_ps_mask(_mm512_abs_ps(y), broadcast(480), _CMP_EQ_OQ);
  return _mm512_mask_blend_ps(nan, y, broadcast(std::numeric_limits<float>::quiet_NaN()));
}
template <class T>
requires(sizeof(T) == 1) SACCADE_INLINE Vec loadu(const T* p) {
  return widen_bytes(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)), T{});
}
template <class T>
requires(sizeof(T) == 1) SACCADE_INLINE Vec load_first(const T* p, int n) {
  return widen_bytes(_mm_maskz_loadu_epi8(first(n), p), T{});
}
SACCADE_INLINE Vec load_nibbles(const std::uint8_t* p, bool upper, std::int8_t multiplier) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  const __m128i nibbles = _mm_and_si128(_mm_srli_epi16(bytes, upper ? 4 : 0), _mm_set1_epi8(15));
  const auto* const table = kMultiples[static_cast<std::uint8_t>(multiplier)].data();
  const __m128i numbers = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)), nibbles);
  return widen_bytes(numbers, std::int8_t{});
}

SACCADE_INLINE Vec add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
SACCADE_INLINE Vec sub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
SACCADE_INLINE Vec mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
SACCADE_INLINE Vec div(Vec a, Vec b) { return _mm512_div_ps(a, b); }
SACCADE_INLINE Vec sqrt(Vec a) { return _mm512_sqrt_ps(a); }
SACCADE_INLINE Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
// Returns the second operand where either is NaN.
SACCADE_INLINE Vec max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
SACCADE_INLINE Vec min(Vec a, Vec b) { return _mm512_min_ps(a, b); }
SACCADE_INLINE Vec abs(Vec a) { return _mm512_abs_ps(a); }
SACCADE_INLINE Vec copysign(Vec magnitude, Vec sign) {
  return _mm512_or_ps(magnitude, _mm512_and_ps(sign, _mm512_set1_ps(-0.0f)));
}

/// acc + a[i] b[i], with a as the instruction's memory operand: a compiler would keep some of these operands in
/// registers and load b for each instead.
SACCADE_INLINE Vec fma_from(const float* a, Vec b, Vec acc) {
  asm("vfmadd231ps %2, %1, %0" : "+v"(acc) : "v"(b), "m"(*reinterpret_cast<const Vec*>(a)));
  return acc;
}
/// acc + *a * b, the broadcast folded into the instruction's memory operand.
SACCADE_INLINE Vec fma_broadcast(const float* a, Vec b, Vec acc) {
  asm("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(b), "m"(*a));
  return acc;
}

SACCADE_INLINE Mask less(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
SACCADE_INLINE Mask equal(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
SACCADE_INLINE Mask is_nan(Vec a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q); }
SACCADE_INLINE Mask both(Mask a, Mask b) { return static_cast<Mask>(a & b); }
SACCADE_INLINE bool any(Mask m) { return m != 0; }
/// One bit per lane; lane 0 is the lowest bit.
SACCADE_INLINE unsigned bits(Mask m) { return m; }
SACCADE_INLINE Vec select(Mask m, Vec yes, Vec no) { return _mm512_mask_blend_ps(m, no, yes); }
/// The lanes with begin <= column + lane < end.
SACCADE_INLINE Mask columns_within(int column, int begin, int end) {
  const __m512i lane = _mm512_add_epi32(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                                        _mm512_set1_epi32(column));
  return static_cast<Mask>(_mm512_cmpge_epi32_mask(lane, _mm512_set1_epi32(begin)) &
                           _mm512_cmplt_epi32_mask(lane, _mm512_set1_epi32(end)));
}
/// 0, 1, 2, ... 15.
SACCADE_INLINE Vec lane_index() { return _mm512_set_ps(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0); }

/// x * 2^floor(n), where `rounded` is n + kRoundTo32nds, which rounds n to a multiple of 1/32. Uses integer
/// operations on the exponent field. (vscalefps would cost an FMA slot.) One shift and a mask, not two shifts:
/// fewer units can shift (two of four on Zen 5, where additions need the same two; one on Intel).
SACCADE_INLINE Vec scale_by_exponent_of_32nds(Vec x, Vec rounded) {
  const __m512i n = _mm512_slli_epi32(_mm512_castps_si512(rounded), 18);
  const __m512i exponent = _mm512_and_epi32(n, _mm512_set1_epi32(static_cast<int>(0xff800000U)));
  return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(x), exponent));
}
/// The same with n rounded to a whole number.
SACCADE_INLINE Vec scale_by_exponent(Vec x, Vec rounded) {
  return _mm512_castsi512_ps(
      _mm512_add_epi32(_mm512_castps_si512(x), _mm512_slli_epi32(_mm512_castps_si512(rounded), 23)));
}
/// table[32 (n - floor(n))] for the same n.
SACCADE_INLINE Vec lookup_32nds(const float* table, Vec rounded) {
  return _mm512_permutex2var_ps(load(table), _mm512_castps_si512(rounded), load(table + 16));
}

/// Sums of adjacent 128-bit lanes: first those of a, then those of b.
SACCADE_INLINE Vec add_lanes(Vec a, Vec b) {
  return add(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}
/// Sums within each 128-bit lane: number t of a lane of the result is the sum of that lane of x[t].
SACCADE_INLINE Vec add_neighbours(Vec a, Vec b) { return add(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b)); }
SACCADE_INLINE Vec sum_within_lanes(const Vec (&x)[4]) {
  const __m512d a = _mm512_castps_pd(add_neighbours(x[0], x[1]));
  const __m512d b = _mm512_castps_pd(add_neighbours(x[2], x[3]));
  return add(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
}

SACCADE_INLINE float reduce_add(Vec a) { return _mm512_reduce_add_ps(a); }
SACCADE_INLINE float reduce_max(Vec a) { return _mm512_reduce_max_ps(a); }

SACCADE_INLINE Vec max_of_pairs(Vec a, Vec b) { return max(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b)); }
SACCADE_INLINE Vec max_of_quarters(Vec a, Vec b) {
  return max(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}
/// maxima[i] = the largest of rows[i][kWidth]; the rest of the last vector of maxima may hold anything. Reduces
/// all rows at once, through shuffles: one by one took 95 clocks instead of 36, and the scalar stores could not be
/// forwarded to the load that follows (0.4% at head_dim 64, Zen 4).
template <int kRows>
SACCADE_INLINE void row_maxima(const float* rows, float* maxima) {
  if constexpr (kRows != 12) {
    for (int i = 0; i < kRows; ++i) maxima[i] = reduce_max(load(rows + i * kWidth));
    return;
  }
  Vec four[3];  // each quarter of a vector holds one number of each of four rows
  SACCADE_UNROLL
  for (int i = 0; i < 3; ++i) {
    const float* r = rows + 4 * i * kWidth;
    const __m512d a = _mm512_castps_pd(max_of_pairs(load(r), load(r + kWidth)));
    const __m512d b = _mm512_castps_pd(max_of_pairs(load(r + 2 * kWidth), load(r + 3 * kWidth)));
    four[i] = max(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
  }
  store(maxima, max_of_quarters(max_of_quarters(four[0], four[1]), max_of_quarters(four[2], four[2])));
}

/// sums[i] = reduce_add of rows[i][kWidth], all rows at once: the same additions, through shuffles.
template <int kRows>
SACCADE_INLINE void row_sums(const float* rows, float* sums) {
  if constexpr (kRows != 12) {
    for (int i = 0; i < kRows; ++i) sums[i] = reduce_add(load(rows + i * kWidth));
    return;
  }
  Vec four[3];  // lanes j, j + 4, j + 8 and j + 12 of each of four rows, added up, in one quarter
  SACCADE_UNROLL
  for (int i = 0; i < 3; ++i) {
    const float* r = rows + 4 * i * kWidth;
    Vec two[2];
    SACCADE_UNROLL
    for (int h = 0; h < 2; ++h) {
      const Vec a = load(r + 2 * h * kWidth), b = load(r + (2 * h + 1) * kWidth);
      two[h] = add(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
    }
    four[i] = add(_mm512_shuffle_f32x4(two[0], two[1], 0x88), _mm512_shuffle_f32x4(two[0], two[1], 0xdd));
  }
  const __m512d a = _mm512_castps_pd(four[0]), b = _mm512_castps_pd(four[1]), c = _mm512_castps_pd(four[2]);
  const Vec ab = add(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
  const Vec cc = add(_mm512_castpd_ps(_mm512_unpacklo_pd(c, c)), _mm512_castpd_ps(_mm512_unpackhi_pd(c, c)));
  // Quarter r holds rows r, 4 + r, 8 + r.
  const Vec sum = add(_mm512_shuffle_ps(ab, cc, 0x88), _mm512_shuffle_ps(ab, cc, 0xdd));
  store(sums, _mm512_permutexvar_ps(_mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0), sum));
}

/// Transposes the 4 x 4 numbers in each quarter of four vectors.
SACCADE_INLINE void transpose_quarters(Vec* r) {
  const __m512d a = _mm512_castps_pd(_mm512_unpacklo_ps(r[0], r[1]));
  const __m512d b = _mm512_castps_pd(_mm512_unpacklo_ps(r[2], r[3]));
  const __m512d c = _mm512_castps_pd(_mm512_unpackhi_ps(r[0], r[1]));
  const __m512d d = _mm512_castps_pd(_mm512_unpackhi_ps(r[2], r[3]));
  r[0] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
  r[1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
  r[2] = _mm512_castpd_ps(_mm512_unpacklo_pd(c, d));
  r[3] = _mm512_castpd_ps(_mm512_unpackhi_pd(c, d));
}

/// Transposes the 16 x 16 numbers of 16 vectors.
SACCADE_INLINE void transpose(Vec (&r)[16]) {
  SACCADE_UNROLL
  for (int i = 0; i < 16; i += 4) transpose_quarters(r + i);
  SACCADE_UNROLL
  for (int i = 0; i < 4; ++i) {
    const Vec a = _mm512_shuffle_f32x4(r[i], r[4 + i], 0x88), b = _mm512_shuffle_f32x4(r[i], r[4 + i], 0xdd);
    const Vec c = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0x88),
              d = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0xdd);
    r[i] = _mm512_shuffle_f32x4(a, c, 0x88), r[4 + i] = _mm512_shuffle_f32x4(b, d, 0x88);
    r[8 + i] = _mm512_shuffle_f32x4(a, c, 0xdd), r[12 + i] = _mm512_shuffle_f32x4(b, d, 0xdd);
  }
}

/// Writes the transpose of the 16 x 16 numbers at `from` (rows `from_stride` apart) to aligned rows of `to`.
SACCADE_INLINE void transpose_tile(const float* from, std::int64_t from_stride, float* to,
                                   std::int64_t to_stride) {
  Vec r[16];
  SACCADE_UNROLL
  for (int i = 0; i < 16; ++i) r[i] = loadu(from + i * from_stride);
  transpose(r);
  SACCADE_UNROLL
  for (int i = 0; i < 16; ++i) store(to + i * to_stride, r[i]);
}

/// Loads rows 4 * kQuarter ... 4 * kQuarter + 3 into that quarter of r[0] ... r[3].
template <int kQuarter>
SACCADE_INLINE void load_quarter(const float* from, std::int64_t stride, int rows, __mmask8 columns, Vec* r) {
  SACCADE_UNROLL
  for (int i = 0; i < 4; ++i)
    if (const int row = 4 * kQuarter + i; row < rows)
      r[i] = _mm512_insertf32x4(r[i], _mm_maskz_loadu_ps(columns, from + row * stride), kQuarter);
}
template <int kQuarter>
SACCADE_INLINE void store_quarter(float* to, std::int64_t stride, int rows, __mmask8 columns, const Vec* r) {
  SACCADE_UNROLL
  for (int i = 0; i < 4; ++i)
    if (const int row = 4 * kQuarter + i; row < rows)
      _mm_mask_storeu_ps(to + row * stride, columns, _mm512_extractf32x4_ps(r[i], kQuarter));
}
/// Loads up to four columns of up to kWidth rows: x[c] is column c, with one row per lane; missing numbers are 0.
SACCADE_INLINE void load_columns(const float* from, std::int64_t stride, int rows, int columns, Vec* x) {
  const auto some = static_cast<__mmask8>(first(columns));
  Vec r[4] = {zero(), zero(), zero(), zero()};
  load_quarter<0>(from, stride, rows, some, r);
  load_quarter<1>(from, stride, rows, some, r);
  load_quarter<2>(from, stride, rows, some, r);
  load_quarter<3>(from, stride, rows, some, r);
  transpose_quarters(r);
  SACCADE_UNROLL
  for (int i = 0; i < 4; ++i) x[i] = r[i];
}
/// The inverse of load_columns.
SACCADE_INLINE void store_columns(float* to, std::int64_t stride, int rows, int columns, const Vec* x) {
  const auto some = static_cast<__mmask8>(first(columns));
  Vec r[4] = {x[0], x[1], x[2], x[3]};
  transpose_quarters(r);
  store_quarter<0>(to, stride, rows, some, r);
  store_quarter<1>(to, stride, rows, some, r);
  store_quarter<2>(to, stride, rows, some, r);
  store_quarter<3>(to, stride, rows, some, r);
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
