// Numbers as words of tiles, and scores as vectors, in AVX-512: 32 rows of 32 numbers are packed at a time, and
// their magnitudes are found on the way. Numbers are scanned as vectors, 32 where they are one part, else 16 as
// floats. amx/words_twin.h has the same in plain C++.
#pragma once

#include "cpu/amx/parts.h"
#include "cpu/attention/kv_source.h"
#include "cpu/bytes/rows_avx512.h"
#include "cpu/simd/byte_tables.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// The largest magnitude of the numbers that were added, and whether tiles can hold all of them: finite ones with
/// a magnitude of at least kLeast, or below kSmallest, which count as 0. Both are bits of T.
template <class T, BitsOf<T> kLeast, BitsOf<T> kSmallest = 1, int kParts = kPartsOf<T>>
class MagnitudeScan {
 public:
  MagnitudeScan() : largest_(_mm512_setzero_si512()), smallest_(_mm512_set1_epi32(-1)) {}

  SACCADE_INLINE void add(__m512i x) {
    if constexpr (kIsWide) {
      x = _mm512_and_si512(x, _mm512_set1_epi32(0x7fffffff));
      largest_ = _mm512_max_epu32(largest_, x);
      if constexpr (kFindsSmall) smallest_ = _mm512_min_epu32(smallest_, _mm512_sub_epi32(x, all_of(kSmallest)));
    } else {
      x = _mm512_and_si512(x, _mm512_set1_epi16(0x7fff));
      largest_ = _mm512_max_epu16(largest_, x);
      if constexpr (kFindsSmall) smallest_ = _mm512_min_epu16(smallest_, _mm512_sub_epi16(x, all_of(kSmallest)));
    }
  }
  SACCADE_INLINE void add(Vec x) { add(_mm512_castps_si512(x)); }

  /// Adds n numbers, times `factor`, which must be a sign for types of 16 bits.
  void add_row(const T* row, std::int64_t n, float factor = 1) {
    for (; n > 0; n -= kLanes, row += kLanes) {
      if constexpr (kIsWide)
        add(mul(broadcast(factor), load_first(row, static_cast<int>(std::min<std::int64_t>(n, 16)))));
      else
        add(_mm512_maskz_loadu_epi16(n >= 32 ? ~0U : (1U << n) - 1U, row));
    }
  }

  /// Infinite or NaN if a number is.
  SACCADE_INLINE float largest() const {
    if constexpr (kIsWide) return std::bit_cast<float>(_mm512_reduce_max_epu32(largest_));
    const __m512i low = _mm512_slli_epi32(largest_, 16),
                  high = _mm512_and_si512(largest_, all_of_words(0xffff0000U));
    const std::uint32_t bits = _mm512_reduce_max_epu32(_mm512_max_epu32(low, high));
    if constexpr (std::is_same_v<T, float16>)
      return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(static_cast<int>(bits >> 16))));
    return std::bit_cast<float>(bits);
  }
  SACCADE_INLINE bool all_fit() const {
    return largest() < std::numeric_limits<float>::infinity() && !(kFindsSmall && has_small());
  }

 private:
  static constexpr bool kIsWide = kParts > 1, kFindsSmall = kLeast > kSmallest;
  static constexpr int kLanes = kIsWide ? 16 : 32;
  static_assert(sizeof(T) == 4 || !kIsWide || !kFindsSmall, "parts of f16 are scanned as floats");

  static SACCADE_INLINE __m512i all_of_words(std::uint32_t x) { return _mm512_set1_epi32(static_cast<int>(x)); }
  static SACCADE_INLINE __m512i all_of(BitsOf<T> x) {
    return kIsWide ? all_of_words(x) : _mm512_set1_epi16(static_cast<short>(x));
  }
  SACCADE_INLINE bool has_small() const {
    if constexpr (kIsWide) return _mm512_cmplt_epu32_mask(smallest_, all_of(kLeast - kSmallest)) != 0;
    return _mm512_cmplt_epu16_mask(smallest_, all_of(kLeast - kSmallest)) != 0;
  }

  __m512i largest_, smallest_;  // magnitudes; smallest_ less kSmallest
};

// ---- Numbers of one part: bf16, or f16 as it is

/// Copies 32 rows, to [32 rows][16 words]. Only the sign of `factor` counts.
template <int kParts, class T, class Scan>
requires(kParts == 1) SACCADE_INLINE
    void put_rows(StridedRows<T> rows, float factor, std::uint32_t* to, Scan& scan) {
  const __m512i sign = _mm512_set1_epi32(factor < 0 ? static_cast<int>(0x80008000) : 0);
  SACCADE_UNROLL
  for (int i = 0; i < 32; ++i) {
    const __m512i x = _mm512_loadu_si512(rows[i]);
    scan.add(x);
    _mm512_store_si512(to + i * 16, _mm512_xor_si512(x, sign));
  }
}

/// Transposes 16 rows of 16 words: 128-bit lanes of rows 0, 4, 8 and 12 are loaded into one vector, so that all
/// that is left is to transpose within lanes.
template <class T, class Scan>
SACCADE_INLINE void put_16_columns(StridedRows<T> rows, std::uint32_t* to, Scan& scan) {
  SACCADE_UNROLL
  for (int lane = 0; lane < 4; ++lane) {
    Vec r[4];
    SACCADE_UNROLL
    for (int i = 0; i < 4; ++i) {
      const auto part = [&](int row) {
        return _mm_loadu_ps(reinterpret_cast<const float*>(rows[row] + 8 * lane));
      };
      r[i] = _mm512_castps128_ps512(part(i));
      r[i] = _mm512_mask_broadcast_f32x4(r[i], 0x00f0, part(i + 4));
      r[i] = _mm512_mask_broadcast_f32x4(r[i], 0x0f00, part(i + 8));
      r[i] = _mm512_mask_broadcast_f32x4(r[i], 0xf000, part(i + 12));
      scan.add(r[i]);
    }
    transpose_quarters(r);
    SACCADE_UNROLL
    for (int i = 0; i < 4; ++i) store(reinterpret_cast<float*>(to) + (4 * lane + i) * 16, r[i]);
  }
}

/// The transpose of 32 rows: two tiles of [16 pairs of columns][16 rows].
template <int kParts, class T, class Scan>
requires(kParts == 1) SACCADE_INLINE void put_columns(StridedRows<T> rows, std::uint32_t* to, Scan& scan) {
  put_16_columns(rows, to, scan);
  put_16_columns(rows + 16, to + 256, scan);
}

/// Two rows of 32 numbers as words of both: columns 0 to 15, and, 256 words further on, columns 16 to 31.
template <int kParts, class T, class Scan>
requires(kParts == 1) SACCADE_INLINE void put_pair(const T* even, const T* odd, std::uint32_t* to, Scan& scan) {
  const __m512i a = _mm512_loadu_si512(even), b = _mm512_loadu_si512(odd);
  scan.add(a), scan.add(b);
  const __m512i low = _mm512_unpacklo_epi16(a, b), high = _mm512_unpackhi_epi16(a, b);
  _mm512_store_si512(to, _mm512_permutex2var_epi64(low, _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0), high));
  _mm512_store_si512(to + 256, _mm512_permutex2var_epi64(low, _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4), high));
}

/// Writes 32 numbers, times `factor`, rounded to bf16. Adds them times 0 to `finite`: NaN unless all are finite,
/// and then what is written for the others is of no use. Half of the instructions of two storeu(), which keep NaN.
SACCADE_INLINE Vec write_32(const float* from, Vec factor, bfloat16* to, Vec finite) {
  const Vec low = fma(factor, load(from), zero()), high = fma(factor, load(from + 16), zero());
  const __m512i words =
      _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(rounded_bits(low), 16), rounded_bits(high));
  alignas(64) static constexpr auto kOrder = [] {
    std::array<std::uint16_t, 32> order{};
    for (std::size_t i = 0; i < 32; ++i) order[i] = static_cast<std::uint16_t>(i % 16 * 2 + i / 16);
    return order;
  }();
  _mm512_storeu_si512(to, _mm512_permutexvar_epi16(_mm512_load_si512(kOrder.data()), words));
  return fma(high, zero(), fma(low, zero(), finite));
}

/// Writes 32 numbers that bf16 has all bits of.
SACCADE_INLINE void store_exact(const Vec (&x)[2], bfloat16* to) {
  alignas(64) static constexpr auto kUpper = [] {
    std::array<std::uint16_t, 32> places{};
    for (std::size_t i = 0; i < 32; ++i) places[i] = static_cast<std::uint16_t>(2 * i + 1);
    return places;
  }();
  _mm512_storeu_si512(to, _mm512_permutex2var_epi16(_mm512_castps_si512(x[0]), _mm512_load_si512(kUpper.data()),
                                                    _mm512_castps_si512(x[1])));
}

/// 16 numbers rounded to bf16, as the lower halves of 16 words and as the upper halves of the next 16; the other
/// halves are 0.
SACCADE_INLINE void put_halves(const float* from, std::uint32_t* to) {
  const __m512i bits = rounded_bits(load(from));
  _mm512_store_si512(to, _mm512_srli_epi32(bits, 16));
  _mm512_store_si512(to + 16, _mm512_and_si512(bits, _mm512_set1_epi32(static_cast<int>(0xffff0000))));
}

// ---- Numbers of several parts: the same for each part, kPartWords apart; a word has columns (or pairs of rows) i
// and 16 + i

template <int kParts, class T, class Scan>
SACCADE_INLINE void put_rows(StridedRows<T> rows, float factor, std::uint32_t* to, Scan& scan) {
  const Bf16Split<kParts> parts;
  const Vec times = broadcast(factor);
  for (int i = 0; i < 32; ++i) {
    const Vec low = mul(times, loadu(rows[i])), high = mul(times, loadu(rows[i] + 16));
    scan.add(low), scan.add(high);
    parts.split(low, high, to + i * 16, kPartWords);
  }
}

template <class T>
SACCADE_INLINE void load_transposed(StridedRows<T> rows, Vec (&columns)[16]) {
  SACCADE_UNROLL
  for (int i = 0; i < 16; ++i) columns[i] = loadu(rows[i]);
  transpose(columns);
}
/// Transposed before they are split: a third of the shuffles.
template <int kParts, class T, class Scan>
SACCADE_INLINE void put_columns(StridedRows<T> rows, std::uint32_t* to, Scan& scan) {
  const Bf16Split<kParts> parts;
  for (int half = 0; half < 2; ++half, rows = rows + 16, to += 256) {
    alignas(64) Vec low[16], high[16];
    load_transposed(rows, low);
    load_transposed(StridedRows<T>{rows[0] + 16, rows.stride}, high);
    for (int i = 0; i < 16; ++i) {
      scan.add(low[i]), scan.add(high[i]);
      parts.split(low[i], high[i], to + i * 16, kPartWords);
    }
  }
}

template <int kParts, class T, class Scan>
SACCADE_INLINE void put_pair(const T* even, const T* odd, std::uint32_t* to, Scan& scan) {
  const Bf16Split<kParts> parts;
  SACCADE_UNROLL
  for (int half = 0; half < 2; ++half) {
    const Vec a = loadu(even + half * 16), b = loadu(odd + half * 16);
    scan.add(a), scan.add(b);
    parts.split(a, b, to + half * 256, kPartWords);
  }
}

/// to[j][i] = from[i][j] for 16 x 16 words, aligned.
SACCADE_INLINE void transpose_words(const std::uint32_t* from, std::uint32_t* to) {
  transpose_tile(reinterpret_cast<const float*>(from), 16, reinterpret_cast<float*>(to), 16);
}

// ---- Scores

SACCADE_INLINE Mask mask_of_bits(std::uint32_t bits) { return static_cast<Mask>(bits); }
/// A bit for each of 32 bytes that is not 0.
SACCADE_INLINE std::uint32_t bits_of_32(const std::uint8_t* bytes) {
  const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes));
  return _mm256_test_epi8_mask(x, x);
}

/// 1 / x for x > 0 with a relative error of 0.051, from the bits of x.
SACCADE_INLINE Vec reciprocal_guess(Vec x) {
  return _mm512_castsi512_ps(_mm512_sub_epi32(_mm512_set1_epi32(kReciprocalBits), _mm512_castps_si512(x)));
}
SACCADE_INLINE Vec ceil(Vec x) { return _mm512_roundscale_ps(x, 10); }

/// The largest of each of 32 rows of 32 numbers.
SACCADE_INLINE void maxima_of_32_rows(const float* rows, float* maxima) {
  for (int half = 0; half < 2; ++half, rows += 512) {
    const auto of_row = [&](int i) { return max(load(rows + i * 32), load(rows + i * 32 + 16)); };
    Vec four[4];  // each quarter of a vector holds one number of each of four rows
    SACCADE_UNROLL
    for (int i = 0; i < 4; ++i) {
      const __m512d a = _mm512_castps_pd(max_of_pairs(of_row(4 * i), of_row(4 * i + 1)));
      const __m512d b = _mm512_castps_pd(max_of_pairs(of_row(4 * i + 2), of_row(4 * i + 3)));
      four[i] = max(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
    }
    store(maxima + half * 16,
          max_of_quarters(max_of_quarters(four[0], four[1]), max_of_quarters(four[2], four[3])));
  }
}

// ---- Digits of integers (amx/bytes/integers.h)

/// The bytes of 64 weights, times `reciprocal` below 2^32, rounded: [digit][64 weights], the lowest first.
SACCADE_INLINE void put_digits(const float* weights, float reciprocal, std::uint8_t* to) {
  const __m512i by_digit = _mm512_set_epi8(63, 59, 55, 51, 47, 43, 39, 35, 31, 27, 23, 19, 15, 11, 7, 3,  //
                                           62, 58, 54, 50, 46, 42, 38, 34, 30, 26, 22, 18, 14, 10, 6, 2,  //
                                           61, 57, 53, 49, 45, 41, 37, 33, 29, 25, 21, 17, 13, 9, 5, 1,   //
                                           60, 56, 52, 48, 44, 40, 36, 32, 28, 24, 20, 16, 12, 8, 4, 0);
  __m512i x[4];
  SACCADE_UNROLL
  for (int i = 0; i < 4; ++i)
    x[i] =
        _mm512_permutexvar_epi8(by_digit, _mm512_cvtps_epu32(mul(load(weights + i * 16), broadcast(reciprocal))));
  const __m512i a = _mm512_shuffle_i32x4(x[0], x[1], 0x44), b = _mm512_shuffle_i32x4(x[0], x[1], 0xee);
  const __m512i c = _mm512_shuffle_i32x4(x[2], x[3], 0x44), d = _mm512_shuffle_i32x4(x[2], x[3], 0xee);
  _mm512_store_si512(to, _mm512_shuffle_i32x4(a, c, 0x88));
  _mm512_store_si512(to + 64, _mm512_shuffle_i32x4(a, c, 0xdd));
  _mm512_store_si512(to + 128, _mm512_shuffle_i32x4(b, d, 0x88));
  _mm512_store_si512(to + 192, _mm512_shuffle_i32x4(b, d, 0xdd));
}

/// 64 columns of four rows, `stride` bytes apart, as four rows of 16 words, kTile bytes apart: each word is a
/// column of the four rows, in the order of column_of_word().
SACCADE_INLINE void interleave_rows(const std::int8_t* rows, std::int64_t stride, std::int8_t* to) {
  constexpr std::int64_t kTile = 1024;
  const __m512i r0 = _mm512_loadu_si512(rows), r1 = _mm512_loadu_si512(rows + stride);
  const __m512i r2 = _mm512_loadu_si512(rows + 2 * stride), r3 = _mm512_loadu_si512(rows + 3 * stride);
  const __m512i low01 = _mm512_unpacklo_epi8(r0, r1), high01 = _mm512_unpackhi_epi8(r0, r1);
  const __m512i low23 = _mm512_unpacklo_epi8(r2, r3), high23 = _mm512_unpackhi_epi8(r2, r3);
  _mm512_store_si512(to, _mm512_unpacklo_epi16(low01, low23));
  _mm512_store_si512(to + kTile, _mm512_unpackhi_epi16(low01, low23));
  _mm512_store_si512(to + 2 * kTile, _mm512_unpacklo_epi16(high01, high23));
  _mm512_store_si512(to + 3 * kTile, _mm512_unpackhi_epi16(high01, high23));
}

/// Sums of products with the digits of weights, [digit][16 columns] of tile `t`, times `unit`, to their places
/// among 64 columns.
SACCADE_INLINE void join_digit_columns(const std::int32_t* sums, float unit, int t, float* to) {
  Vec x = zero();
  SACCADE_UNROLL
  for (int d = 0; d < 4; ++d)
    x = fma(_mm512_cvtepi32_ps(_mm512_load_si512(sums + d * 16)), broadcast(static_cast<float>(1 << 8 * d)), x);
  alignas(64) float columns[16];
  store(columns, mul(x, broadcast(unit)));
  for (int i = 0; i < 16; ++i) to[column_of_word(t, i)] = columns[i];
}

/// Digits of 7 bits of up to 16 numbers, n of them, each times 2^-exponent and rounded: the digits of
/// four numbers next to each other, the next digits 16 bytes later, those of the next four numbers 64 bytes later.
/// The first digit may have 8 bits.
SACCADE_INLINE void put_query_digits(const float* numbers, int n, int exponent, std::int8_t* to) {
  const Vec scale = broadcast(static_cast<float>(-exponent));
  __m512i rest = _mm512_cvtps_epi32(_mm512_scalef_ps(load_first(numbers, n), scale));
  alignas(64) std::int8_t digits[4][16];
  const __m512i half = _mm512_set1_epi32(64), most = _mm512_set1_epi32(127);
  SACCADE_UNROLL
  for (int i = 3; i > 0; --i) {
    const __m512i digit = _mm512_sub_epi32(_mm512_and_si512(_mm512_add_epi32(rest, half), most), half);
    _mm_store_si128(reinterpret_cast<__m128i*>(digits[i]), _mm512_cvtepi32_epi8(digit));
    rest = _mm512_srai_epi32(_mm512_sub_epi32(rest, digit), 7);
  }
  _mm_store_si128(reinterpret_cast<__m128i*>(digits[0]), _mm512_cvtepi32_epi8(rest));
  SACCADE_UNROLL
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 16; j += 4) std::memcpy(to + i * 16 + j * 16, digits[i] + j, 4);
}

/// The sums over the quarters of four vectors, one in each quarter: (fourth + third) + (second + first).
SACCADE_INLINE Vec sums_of_quarters(Vec x, Vec y, Vec z, Vec w) {
  const Vec a = _mm512_shuffle_f32x4(x, y, 0x44), b = _mm512_shuffle_f32x4(x, y, 0xee);
  const Vec c = _mm512_shuffle_f32x4(z, w, 0x44), d = _mm512_shuffle_f32x4(z, w, 0xee);
  return add(add(_mm512_shuffle_f32x4(b, d, 0xdd), _mm512_shuffle_f32x4(b, d, 0x88)),
             add(_mm512_shuffle_f32x4(a, c, 0xdd), _mm512_shuffle_f32x4(a, c, 0x88)));
}

/// The scores of 16 keys and 4 rows from their products [key][digit][row], in four rows `stride` apart. `factors`:
/// of the last digit of each row; a digit before another has 2^7 times its value. `scales`: of the keys.
SACCADE_INLINE void join_digits(const std::int32_t* products, const float* factors, const float* scales, float* to,
                                std::int64_t stride) {
  const Vec last = _mm512_broadcast_f32x4(_mm_loadu_ps(factors));
  const Vec values = mul(last, _mm512_setr_ps(0x1p21F, 0x1p21F, 0x1p21F, 0x1p21F, 0x1p14F, 0x1p14F, 0x1p14F,
                                              0x1p14F, 0x1p7F, 0x1p7F, 0x1p7F, 0x1p7F, 1, 1, 1, 1));
  Vec keys[4];  // quarter i of keys[q] has the four rows of key 4 i + q
  SACCADE_UNROLL
  for (int q = 0; q < 4; ++q) {
    Vec x[4];
    SACCADE_UNROLL
    for (int i = 0; i < 4; ++i)
      x[i] = mul(_mm512_cvtepi32_ps(_mm512_load_si512(products + (4 * i + q) * 16)), values);
    keys[q] = sums_of_quarters(x[0], x[1], x[2], x[3]);
  }
  transpose_quarters(keys);
  SACCADE_UNROLL
  for (int r = 0; r < 4; ++r) store(to + r * stride, mul(keys[r], load(scales)));
}

// ---- e4m3 as bf16 (amx/bytes/float8.h)

/// The two bytes of 64 numbers of e4m3 as bf16.
struct Float8Bytes {
  __m512i low, high;
  SACCADE_INLINE explicit Float8Bytes(const std::int8_t* from) {
    const __m512i x = _mm512_loadu_si512(from);
    const auto look_up = [x](const auto& table) __attribute__((always_inline)) {
      return _mm512_permutex2var_epi8(_mm512_load_si512(table), x, _mm512_load_si512(table + 64));
    };
    low = look_up(kPairsOfFloat8.lower);
    const __m512i sign = _mm512_and_si512(x, _mm512_set1_epi8(-128));
    high = _mm512_or_si512(look_up(kPairsOfFloat8.upper), sign);
  }
};

/// 16 rows of 64 numbers as two tiles: of each 16 numbers, the first tile has 8 and the second the others.
SACCADE_INLINE void put_float8_rows(const std::int8_t* rows, std::int64_t stride, std::int8_t* to) {
  SACCADE_UNROLL
  for (int i = 0; i < 16; ++i) {
    const Float8Bytes x(rows + i * stride);
    _mm512_store_si512(to + i * 64, _mm512_unpacklo_epi8(x.low, x.high));
    _mm512_store_si512(to + 1024 + i * 64, _mm512_unpackhi_epi8(x.low, x.high));
  }
}

/// 64 columns of two rows as four rows of 16 words, 1024 bytes apart: each word is a column of both, in the order
/// of column_of_word().
SACCADE_INLINE void interleave_float8(const std::int8_t* even, const std::int8_t* odd, std::int8_t* to) {
  const Float8Bytes a(even), b(odd);
  const __m512i low_a = _mm512_unpacklo_epi8(a.low, a.high), high_a = _mm512_unpackhi_epi8(a.low, a.high);
  const __m512i low_b = _mm512_unpacklo_epi8(b.low, b.high), high_b = _mm512_unpackhi_epi8(b.low, b.high);
  _mm512_store_si512(to, _mm512_unpacklo_epi16(low_a, low_b));
  _mm512_store_si512(to + 1024, _mm512_unpackhi_epi16(low_a, low_b));
  _mm512_store_si512(to + 2048, _mm512_unpacklo_epi16(high_a, high_b));
  _mm512_store_si512(to + 3072, _mm512_unpackhi_epi16(high_a, high_b));
}

/// Three parts of up to 16 numbers, n of them, each times 2^-exponent, for the tiles of
/// put_float8_rows(): the parts of two numbers next to each other, the next part 16 bytes later, the next two
/// numbers 64 bytes later, and the second 8 numbers 1024 bytes later.
SACCADE_INLINE void put_query_parts(const float* numbers, int n, int exponent, std::int8_t* to) {
  Vec rest = _mm512_scalef_ps(load_first(numbers, n), broadcast(static_cast<float>(-exponent)));
  SACCADE_UNROLL
  for (int part = 0; part < 3; ++part) {
    const Vec high = _mm512_and_ps(rest, _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(0xffff0000U))));
    alignas(32) std::uint16_t words[16];
    _mm256_store_si256(reinterpret_cast<__m256i*>(words),
                       _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(high), 16)));
    SACCADE_UNROLL
    for (int i = 0; i < 16; i += 2) std::memcpy(to + i / 8 * 1024 + i % 8 / 2 * 64 + part * 16, words + i, 4);
    rest = sub(rest, high);
  }
}

/// Three parts of 32 weights, times `reciprocal`: 16 words of weights j and 16 + j, `stride` bytes to the next
/// part.
SACCADE_INLINE void put_weight_parts(const float* weights, float reciprocal, std::int8_t* to,
                                     std::int64_t stride) {
  const Vec factor = broadcast(reciprocal);
  Bf16Split<3>().split(mul(load(weights), factor), mul(load(weights + 16), factor),
                       reinterpret_cast<std::uint32_t*>(to), stride / 4);
}

/// join_digits() of products with parts, [key][part][row], of which the fourth is 0.
SACCADE_INLINE void join_parts(const float* products, const float* factors, const float* scales, float* to,
                               std::int64_t stride) {
  const Vec factor = _mm512_broadcast_f32x4(_mm_loadu_ps(factors));
  Vec keys[4];  // quarter i of keys[q] has the four rows of key 4 i + q
  SACCADE_UNROLL
  for (int q = 0; q < 4; ++q) {
    const auto of_key = [&](int i) __attribute__((always_inline)) { return load(products + (4 * i + q) * 16); };
    keys[q] = mul(factor, sums_of_quarters(of_key(0), of_key(1), of_key(2), of_key(3)));
  }
  transpose_quarters(keys);
  SACCADE_UNROLL
  for (int r = 0; r < 4; ++r) store(to + r * stride, mul(keys[r], load(scales)));
}

/// join_digit_columns() of sums of products with three parts, `stride` numbers apart.
SACCADE_INLINE void join_part_columns(const float* sums, std::int64_t stride, float unit, int t, float* to) {
  const Vec x = add(add(load(sums + 2 * stride), load(sums + stride)), load(sums));
  alignas(64) float columns[16];
  store(columns, mul(x, broadcast(unit)));
  for (int i = 0; i < 16; ++i) to[column_of_word(t, i)] = columns[i];
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
