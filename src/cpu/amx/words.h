// Numbers as words of tiles, and scores as vectors, in AVX-512: 32 rows of 32 numbers are packed at a time, and
// their magnitudes are found on the way. Numbers are scanned as vectors, 32 where they are one part, else 16 as
// floats. amx/words_twin.h has the same in plain C++.
#pragma once

#include "cpu/amx/parts.h"
#include "cpu/attention/kv_source.h"

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

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
