// The Vec interface over AVX2 and FMA: 8 floats. See simd/avx512.h for what each function means.
#pragma once

#include "cpu/simd/words/avx2.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

using Scalar = float;
inline constexpr int kWidth = 8;
inline constexpr int kRegisters = 16;

using Vec = __m256;
struct Mask {
  __m256 lanes;
};

SACCADE_INLINE Vec zero() { return _mm256_setzero_ps(); }
SACCADE_INLINE Vec broadcast(float x) { return _mm256_set1_ps(x); }
SACCADE_INLINE Vec broadcast_from(const float* p) { return _mm256_broadcast_ss(p); }
using Factor = Vec;
SACCADE_INLINE Factor factor_from(const float* p) { return broadcast_from(p); }
SACCADE_INLINE Vec load(const float* p) { return _mm256_load_ps(p); }
SACCADE_INLINE Vec loadu(const float* p) { return _mm256_loadu_ps(p); }
SACCADE_INLINE Vec in_register(Vec x) {
  asm("" : "+x"(x));
  return x;
}
SACCADE_INLINE void store(float* p, Vec x) { _mm256_store_ps(p, x); }
SACCADE_INLINE void storeu(float* p, Vec x) { _mm256_storeu_ps(p, x); }

SACCADE_INLINE __m256i lane_numbers() { return _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0); }
SACCADE_INLINE __m256i first(int n) { return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane_numbers()); }
SACCADE_INLINE Vec load_first(const float* p, int n) { return _mm256_maskload_ps(p, first(n)); }
SACCADE_INLINE void store_first(float* p, int n, Vec x) { _mm256_maskstore_ps(p, first(n), x); }

SACCADE_INLINE Vec widen(__m128i x, float16) { return _mm256_cvtph_ps(x); }
SACCADE_INLINE Vec widen(__m128i x, bfloat16) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}
template <class T>
requires(sizeof(T) == 2) SACCADE_INLINE Vec loadu(const T* p) {
  return widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)), T{});
}
template <class T>
requires(sizeof(T) == 2) SACCADE_INLINE Vec load_first(const T* p, int n) {
  if (n >= 8) return loadu(p);
  alignas(16) std::uint16_t bits[8] = {};
  for (int i = 0; i < n; ++i) bits[i] = p[i].bits;
  return widen(_mm_load_si128(reinterpret_cast<const __m128i*>(bits)), T{});
}
SACCADE_INLINE __m128i narrow(Vec x, float16) { return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT); }
SACCADE_INLINE __m128i narrow(Vec x, bfloat16) {
  const __m256i bits = _mm256_castps_si256(x), upper = _mm256_srli_epi32(bits, 16);
  const __m256i even = _mm256_and_si256(upper, _mm256_set1_epi32(1));
  const __m256i rounded =
      _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), even), 16);
  const __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  const __m256i chosen = _mm256_blendv_epi8(rounded, quiet, nan);
  return _mm_packus_epi32(_mm256_castsi256_si128(chosen), _mm256_extracti128_si256(chosen, 1));
}
template <class T>
requires(sizeof(T) == 2) SACCADE_INLINE void storeu(T* p, Vec x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow(x, T{}));
}
template <class T>
requires(sizeof(T) == 2) SACCADE_INLINE void store_first(T* p, int n, Vec x) {
  if (n >= 8) return storeu(p, x);
  alignas(16) std::uint16_t bits[8];
  _mm_store_si128(reinterpret_cast<__m128i*>(bits), narrow(x, T{}));
  for (int i = 0; i < n; ++i) p[i].bits = bits[i];
}

SACCADE_INLINE Vec widen_bytes(__m128i x, std::int8_t) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(x)); }
SACCADE_INLINE Vec widen_bytes(__m128i x, float8_e4m3) {
  const __m128i shifted = _mm_slli_epi16(_mm_cvtepi8_epi16(x), 7);
  const __m128i bits = _mm_and_si128(shifted, _mm_set1_epi16(static_cast<short>(0xbfff)));
  const Vec y = _mm256_mul_ps(_mm256_cvtph_ps(bits), broadcast(256));
  const Vec magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), y);
  const Vec nan = _mm256_cmp_ps(magnitude, broadcast(480), _CMP_EQ_OQ);
  return _mm256_blendv_ps(y, broadcast(std::numeric_limits<float>::quiet_NaN()), nan);
}
template <class T>
requires(sizeof(T) == 1) SACCADE_INLINE Vec loadu(const T* p) {
  return widen_bytes(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)), T{});
}
template <class T>
requires(sizeof(T) == 1) SACCADE_INLINE Vec load_first(const T* p, int n) {
  if (n >= 8) return loadu(p);
  alignas(16) T numbers[16] = {};
  for (int i = 0; i < n; ++i) numbers[i] = p[i];
  return loadu(numbers);
}
/// `multiplier` times each of the lower or upper halves of bytes, less 8.
SACCADE_INLINE __m128i multiples_of(__m128i bytes, bool upper, std::int8_t multiplier) {
  const __m128i nibbles = _mm_and_si128(upper ? _mm_srli_epi16(bytes, 4) : bytes, _mm_set1_epi8(15));
  const auto* const table = kMultiples[static_cast<std::uint8_t>(multiplier)].data();
  return _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)), nibbles);
}
SACCADE_INLINE Vec load_nibbles(const std::uint8_t* p, bool upper, std::int8_t multiplier) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return widen_bytes(multiples_of(bytes, upper, multiplier), std::int8_t{});
}

SACCADE_INLINE void load_16(const float8_e4m3* p, Vec (&x)[2]) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  const __m256i shifted = _mm256_slli_epi16(_mm256_cvtepi8_epi16(bytes), 7);
  const __m256i most = _mm256_set1_epi16(0x3f80), quiet_nan = _mm256_set1_epi16(0x7e00);
  const __m256i nan = _mm256_cmpeq_epi16(_mm256_and_si256(shifted, most), most);
  const __m256i bits = _mm256_and_si256(shifted, _mm256_set1_epi16(static_cast<short>(0xbfff)));
  const __m256i halves = _mm256_blendv_epi8(bits, quiet_nan, nan);
  x[0] = _mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(halves)), broadcast(256));
  x[1] = _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1)), broadcast(256));
}
SACCADE_INLINE void load_16_nibbles(const std::uint8_t* p, bool upper, std::int8_t multiplier, Vec (&x)[2]) {
  const __m128i numbers = multiples_of(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)), upper, multiplier);
  x[0] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(numbers));
  x[1] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(numbers, 8)));
}

SACCADE_INLINE Vec add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
SACCADE_INLINE Vec sub(Vec a, Vec b) { return _mm256_sub_ps(a, b); }
SACCADE_INLINE Vec mul(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
SACCADE_INLINE Vec div(Vec a, Vec b) { return _mm256_div_ps(a, b); }
SACCADE_INLINE Vec sqrt(Vec a) { return _mm256_sqrt_ps(a); }
SACCADE_INLINE Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
SACCADE_INLINE Vec max(Vec a, Vec b) { return _mm256_max_ps(a, b); }
SACCADE_INLINE Vec min(Vec a, Vec b) { return _mm256_min_ps(a, b); }
SACCADE_INLINE Vec abs(Vec a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
SACCADE_INLINE Vec copysign(Vec magnitude, Vec sign) {
  return _mm256_or_ps(magnitude, _mm256_and_ps(sign, _mm256_set1_ps(-0.0f)));
}

SACCADE_INLINE Vec fma_from(const float* a, Vec b, Vec acc) { return fma(load(a), b, acc); }
SACCADE_INLINE Vec fma_broadcast(const float* a, Vec b, Vec acc) {
  return _mm256_fmadd_ps(_mm256_broadcast_ss(a), b, acc);
}

SACCADE_INLINE Mask less(Vec a, Vec b) { return {_mm256_cmp_ps(a, b, _CMP_LT_OQ)}; }
SACCADE_INLINE Mask equal(Vec a, Vec b) { return {_mm256_cmp_ps(a, b, _CMP_EQ_OQ)}; }
SACCADE_INLINE Mask is_nan(Vec a) { return {_mm256_cmp_ps(a, a, _CMP_UNORD_Q)}; }
SACCADE_INLINE Mask both(Mask a, Mask b) { return {_mm256_and_ps(a.lanes, b.lanes)}; }
SACCADE_INLINE bool any(Mask m) { return _mm256_movemask_ps(m.lanes) != 0; }
SACCADE_INLINE unsigned bits(Mask m) { return static_cast<unsigned>(_mm256_movemask_ps(m.lanes)); }
SACCADE_INLINE Vec select(Mask m, Vec yes, Vec no) { return _mm256_blendv_ps(no, yes, m.lanes); }
SACCADE_INLINE Mask columns_within(int column, int begin, int end) {
  const __m256i lane = _mm256_add_epi32(lane_numbers(), _mm256_set1_epi32(column));
  const __m256i below = _mm256_cmpgt_epi32(_mm256_set1_epi32(begin), lane);
  return {_mm256_castsi256_ps(_mm256_andnot_si256(below, _mm256_cmpgt_epi32(_mm256_set1_epi32(end), lane)))};
}
SACCADE_INLINE Vec lane_index() { return _mm256_set_ps(7, 6, 5, 4, 3, 2, 1, 0); }

SACCADE_INLINE Vec scale_by_exponent(Vec x, Vec rounded) {
  return _mm256_castsi256_ps(
      _mm256_add_epi32(_mm256_castps_si256(x), _mm256_slli_epi32(_mm256_castps_si256(rounded), 23)));
}

SACCADE_INLINE Vec add_lanes(Vec a, Vec b) {
  return add(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}
SACCADE_INLINE Vec sum_within_lanes(const Vec (&x)[4]) {
  const __m256d a = _mm256_castps_pd(add(_mm256_unpacklo_ps(x[0], x[1]), _mm256_unpackhi_ps(x[0], x[1])));
  const __m256d b = _mm256_castps_pd(add(_mm256_unpacklo_ps(x[2], x[3]), _mm256_unpackhi_ps(x[2], x[3])));
  return add(_mm256_castpd_ps(_mm256_unpacklo_pd(a, b)), _mm256_castpd_ps(_mm256_unpackhi_pd(a, b)));
}

SACCADE_INLINE float reduce_add(Vec a) {
  __m128 half = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  half = _mm_add_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}
SACCADE_INLINE float reduce_max(Vec a) {
  __m128 half = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  half = _mm_max_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
}
template <int kRows>
SACCADE_INLINE void row_maxima(const float* rows, float* maxima) {
  SACCADE_UNROLL
  for (int i = 0; i < kRows; ++i) maxima[i] = reduce_max(load(rows + i * kWidth));
}
template <int kRows>
SACCADE_INLINE void row_sums(const float* rows, float* sums) {
  SACCADE_UNROLL
  for (int i = 0; i < kRows; ++i) sums[i] = reduce_add(load(rows + i * kWidth));
}

SACCADE_INLINE void transpose_halves(Vec* r) {
  const __m256d a = _mm256_castps_pd(_mm256_unpacklo_ps(r[0], r[1]));
  const __m256d b = _mm256_castps_pd(_mm256_unpacklo_ps(r[2], r[3]));
  const __m256d c = _mm256_castps_pd(_mm256_unpackhi_ps(r[0], r[1]));
  const __m256d d = _mm256_castps_pd(_mm256_unpackhi_ps(r[2], r[3]));
  r[0] = _mm256_castpd_ps(_mm256_unpacklo_pd(a, b));
  r[1] = _mm256_castpd_ps(_mm256_unpackhi_pd(a, b));
  r[2] = _mm256_castpd_ps(_mm256_unpacklo_pd(c, d));
  r[3] = _mm256_castpd_ps(_mm256_unpackhi_pd(c, d));
}

SACCADE_INLINE void transpose_tile(const float* from, std::int64_t from_stride, float* to,
                                   std::int64_t to_stride) {
  Vec r[8];
  SACCADE_UNROLL
  for (int i = 0; i < 8; ++i) r[i] = loadu(from + i * from_stride);
  transpose_halves(r);
  transpose_halves(r + 4);
  SACCADE_UNROLL
  for (int i = 0; i < 4; ++i) {
    _mm256_store_ps(to + i * to_stride, _mm256_permute2f128_ps(r[i], r[4 + i], 0x20));
    _mm256_store_ps(to + (i + 4) * to_stride, _mm256_permute2f128_ps(r[i], r[4 + i], 0x31));
  }
}

template <int kHalf>
SACCADE_INLINE void load_half(const float* from, std::int64_t stride, int rows, __m128i columns, Vec* r) {
  SACCADE_UNROLL
  for (int i = 0; i < 4; ++i)
    if (const int row = 4 * kHalf + i; row < rows)
      r[i] = _mm256_insertf128_ps(r[i], _mm_maskload_ps(from + row * stride, columns), kHalf);
}
template <int kHalf>
SACCADE_INLINE void store_half(float* to, std::int64_t stride, int rows, __m128i columns, const Vec* r) {
  SACCADE_UNROLL
  for (int i = 0; i < 4; ++i)
    if (const int row = 4 * kHalf + i; row < rows)
      _mm_maskstore_ps(to + row * stride, columns, _mm256_extractf128_ps(r[i], kHalf));
}
SACCADE_INLINE void load_columns(const float* from, std::int64_t stride, int rows, int columns, Vec* x) {
  const __m128i some = _mm256_castsi256_si128(first(columns));
  Vec r[4] = {zero(), zero(), zero(), zero()};
  load_half<0>(from, stride, rows, some, r);
  load_half<1>(from, stride, rows, some, r);
  transpose_halves(r);
  SACCADE_UNROLL
  for (int i = 0; i < 4; ++i) x[i] = r[i];
}
SACCADE_INLINE void store_columns(float* to, std::int64_t stride, int rows, int columns, const Vec* x) {
  const __m128i some = _mm256_castsi256_si128(first(columns));
  Vec r[4] = {x[0], x[1], x[2], x[3]};
  transpose_halves(r);
  store_half<0>(to, stride, rows, some, r);
  store_half<1>(to, stride, rows, some, r);
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
