// What amx/words.h does with AVX-512, in plain C++ and with the same bits. See there for what each function means.
#pragma once

#include "cpu/amx/parts.h"
#include "cpu/attention/kv_source.h"
#include "cpu/simd/byte_tables.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

template <class T, BitsOf<T> kLeast, BitsOf<T> kSmallest = 1, int kParts = kPartsOf<T>>
class MagnitudeScan {
 public:
  void add(T x) {
    const auto magnitude = static_cast<BitsOf<T>>(std::bit_cast<BitsOf<T>>(x) & ~kSign);
    largest_ = std::max(largest_, magnitude);
    has_small_ = has_small_ || (magnitude >= kSmallest && magnitude < kLeast);
  }
  void add_row(const T* row, std::int64_t n, float factor = 1) {
    for (std::int64_t i = 0; i < n; ++i)
      if constexpr (std::is_same_v<T, float>)
        add(factor * row[i]);
      else
        add(row[i]);
  }

  float largest() const { return static_cast<float>(std::bit_cast<T>(largest_)); }
  bool all_fit() const { return largest_ < kNotFinite<T> && !has_small_; }

 private:
  static constexpr auto kSign = static_cast<BitsOf<T>>(BitsOf<T>{1} << (8 * sizeof(T) - 1));
  BitsOf<T> largest_ = 0;
  bool has_small_ = false;
};

template <class T>
std::uint32_t word_of(T low, T high) {
  return low.bits | static_cast<std::uint32_t>(high.bits) << 16;
}

template <int kParts, class T, class Scan>
requires(kParts == 1) void put_rows(StridedRows<T> rows, float factor, std::uint32_t* to, Scan& scan) {
  for (int i = 0; i < 32; ++i)
    for (int w = 0; w < 16; ++w) {
      const T low = rows[i][2 * w], high = rows[i][2 * w + 1];
      scan.add(low), scan.add(high);
      to[i * 16 + w] = word_of(low, high) ^ (factor < 0 ? 0x80008000U : 0U);
    }
}
template <int kParts, class T, class Scan>
requires(kParts == 1) void put_columns(StridedRows<T> rows, std::uint32_t* to, Scan& scan) {
  for (int i = 0; i < 32; ++i)
    for (int w = 0; w < 16; ++w) {
      const T low = rows[i][2 * w], high = rows[i][2 * w + 1];
      scan.add(low), scan.add(high);
      to[i / 16 * 256 + w * 16 + i % 16] = word_of(low, high);
    }
}
template <int kParts, class T, class Scan>
requires(kParts == 1) void put_pair(const T* even, const T* odd, std::uint32_t* to, Scan& scan) {
  for (int j = 0; j < 32; ++j) {
    scan.add(even[j]), scan.add(odd[j]);
    to[j / 16 * 256 + j % 16] = word_of(even[j], odd[j]);
  }
}

inline Vec write_32(const float* from, Vec factor, bfloat16* to, Vec finite) {
  for (int i = 0; i < 32; i += kWidth) {
    const Vec x = fma(factor, load(from + i), zero());
    storeu(to + i, x);
    finite = fma(x, zero(), finite);
  }
  return finite;
}

template <int kParts, class T, class Scan>
void put_rows(StridedRows<T> rows, float factor, std::uint32_t* to, Scan& scan) {
  const Bf16Split<kParts> parts;
  for (int i = 0; i < 32; ++i) {
    float numbers[32];
    for (int j = 0; j < 32; ++j) {
      numbers[j] = factor * static_cast<float>(rows[i][j]);
      scan.add(T(numbers[j]));
    }
    parts.split(numbers, numbers + 16, to + i * 16, kPartWords);
  }
}
template <int kParts, class T, class Scan>
void put_columns(StridedRows<T> rows, std::uint32_t* to, Scan& scan) {
  const Bf16Split<kParts> parts;
  for (int i = 0; i < 16; ++i) {
    float low[32], high[32];
    for (int j = 0; j < 32; ++j) {
      scan.add(rows[j][i]), scan.add(rows[j][16 + i]);
      low[j] = static_cast<float>(rows[j][i]), high[j] = static_cast<float>(rows[j][16 + i]);
    }
    parts.split(low, high, to + i * 16, kPartWords);
    parts.split(low + 16, high + 16, to + 256 + i * 16, kPartWords);
  }
}
template <int kParts, class T, class Scan>
void put_pair(const T* even, const T* odd, std::uint32_t* to, Scan& scan) {
  const Bf16Split<kParts> parts;
  float a[32], b[32];
  for (int j = 0; j < 32; ++j) {
    scan.add(even[j]), scan.add(odd[j]);
    a[j] = static_cast<float>(even[j]), b[j] = static_cast<float>(odd[j]);
  }
  parts.split(a, b, to, kPartWords);
  parts.split(a + 16, b + 16, to + 256, kPartWords);
}

inline void store_exact(const Vec (&x)[32 / kWidth], bfloat16* to) {
  alignas(64) float numbers[32];
  for (int i = 0; i < 32 / kWidth; ++i) store(numbers + i * kWidth, x[i]);
  for (int i = 0; i < 32; ++i)
    to[i].bits = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(numbers[i]) >> 16);
}

inline void put_halves(const float* from, std::uint32_t* to) {
  for (int i = 0; i < 16; ++i) to[i] = bfloat16(from[i]).bits, to[16 + i] = to[i] << 16;
}

/// to[j][i] = from[i][j] for 16 x 16 words.
inline void transpose_words(const std::uint32_t* from, std::uint32_t* to) {
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j) to[j * 16 + i] = from[i * 16 + j];
}

// ---- Scores

inline Mask mask_of_bits(std::uint32_t bits) {
  alignas(64) float lanes[kWidth];
  for (int i = 0; i < kWidth; ++i) lanes[i] = (bits >> i & 1U) != 0 ? 1.0F : 0.0F;
  return less(zero(), load(lanes));
}
inline std::uint32_t bits_of_32(const std::uint8_t* bytes) {
  std::uint32_t bits = 0;
  for (int i = 0; i < 32; ++i) bits |= std::uint32_t{bytes[i] != 0} << i;
  return bits;
}

inline Vec reciprocal_guess(Vec x) {
  alignas(64) float lanes[kWidth];
  store(lanes, x);
  for (float& lane : lanes) lane = std::bit_cast<float>(kReciprocalBits - std::bit_cast<std::int32_t>(lane));
  return load(lanes);
}

inline Vec ceil(Vec x) {
  alignas(64) float lanes[kWidth];
  store(lanes, x);
  for (float& lane : lanes) lane = std::ceil(lane);
  return load(lanes);
}

inline void maxima_of_32_rows(const float* rows, float* maxima) {
  for (int i = 0; i < 32; ++i) maxima[i] = *std::max_element(rows + i * 32, rows + i * 32 + 32);
}

// ---- Digits of integers (amx/bytes/integers.h)

inline void put_digits(const float* weights, float reciprocal, std::uint8_t* to) {
  for (int i = 0; i < 64; ++i) {
    const auto x = static_cast<std::uint32_t>(std::nearbyint(double{weights[i] * reciprocal}));
    for (int d = 0; d < 4; ++d) to[d * 64 + i] = static_cast<std::uint8_t>(x >> 8 * d);
  }
}

inline void interleave_rows(const std::int8_t* rows, std::int64_t stride, std::int8_t* to) {
  for (int t = 0; t < 4; ++t)
    for (int i = 0; i < 16; ++i)
      for (int row = 0; row < 4; ++row) to[t * 1024 + i * 4 + row] = rows[row * stride + column_of_word(t, i)];
}

inline void join_digit_columns(const std::int32_t* sums, float unit, int t, float* to) {
  for (int i = 0; i < 16; ++i) {
    float x = 0;
    for (int d = 0; d < 4; ++d)
      x = __builtin_fmaf(static_cast<float>(sums[d * 16 + i]), static_cast<float>(1 << 8 * d), x);
    to[column_of_word(t, i)] = x * unit;
  }
}

inline void put_query_digits(const float* numbers, int n, int exponent, std::int8_t* to) {
  for (int i = 0; i < 16; ++i) {
    auto rest = static_cast<std::int32_t>(i < n ? std::nearbyint(std::ldexp(numbers[i], -exponent)) : 0);
    for (int d = 3; d >= 0; --d) {
      const std::int32_t digit = d == 0 ? rest : ((rest + 64) & 127) - 64;
      to[i / 4 * 64 + d * 16 + i % 4] = static_cast<std::int8_t>(digit);
      rest = (rest - digit) >> 7;
    }
  }
}

inline void join_digits(const std::int32_t* products, const float* factors, const float* scales, float* to,
                        std::int64_t stride) {
  constexpr float kValues[] = {0x1p21F, 0x1p14F, 0x1p7F, 1};
  for (int key = 0; key < 16; ++key)
    for (int r = 0; r < 4; ++r) {
      float x[4];
      for (int d = 0; d < 4; ++d)
        x[d] = static_cast<float>(products[key * 16 + d * 4 + r]) * (factors[r] * kValues[d]);
      to[r * stride + key] = ((x[3] + x[2]) + (x[1] + x[0])) * scales[key];
    }
}

inline void put_int4_row(Int4Row row, std::int64_t tiles, std::int8_t* to) {
  for (std::int64_t d = 0; d < tiles * 64; ++d) {
    const bool upper = d >= row.half;
    const int nibble = d >= 2 * row.half ? 8 : row.bytes[d - (upper ? row.half : 0)] >> (upper ? 4 : 0) & 15;
    to[d] = d >= 2 * row.half
                ? std::int8_t{0}
                : kMultiples[static_cast<std::uint8_t>(row.multipliers[d / 16])][static_cast<std::size_t>(nibble)];
  }
}

// ---- e4m3 as bf16 (amx/bytes/float8.h)

inline std::uint16_t bf16_of_float8(std::int8_t x) {
  const auto byte = static_cast<std::uint8_t>(x), magnitude = static_cast<std::uint8_t>(byte & 127);
  return static_cast<std::uint16_t>(kPairsOfFloat8.lower[magnitude] |
                                    (kPairsOfFloat8.upper[magnitude] | (byte & 128)) << 8);
}

inline void put_float8_rows(const std::int8_t* rows, std::int64_t stride, std::int8_t* to) {
  for (int i = 0; i < 16; ++i)
    for (int d = 0; d < 64; ++d) {
      const std::uint16_t x = bf16_of_float8(rows[i * stride + d]);
      std::memcpy(to + d % 16 / 8 * 1024 + i * 64 + (d / 16 * 8 + d % 8) * 2, &x, 2);
    }
}

inline void interleave_float8(const std::int8_t* even, const std::int8_t* odd, std::int8_t* to) {
  for (int t = 0; t < 4; ++t)
    for (int i = 0; i < 16; ++i) {
      const int d = column_of_word(t, i);
      const std::uint16_t words[] = {bf16_of_float8(even[d]), bf16_of_float8(odd[d])};
      std::memcpy(to + t * 1024 + i * 4, words, 4);
    }
}

/// The leading bits of a number, which it loses.
inline std::uint16_t take_part(float& x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x) & 0xffff0000U;
  x -= std::bit_cast<float>(bits);
  return static_cast<std::uint16_t>(bits >> 16);
}

inline void put_query_parts(const float* numbers, int n, int exponent, std::int8_t* to) {
  for (int i = 0; i < 16; ++i) {
    float rest = i < n ? std::ldexp(numbers[i], -exponent) : 0;
    for (int part = 0; part < 3; ++part) {
      const std::uint16_t x = take_part(rest);
      std::memcpy(to + i / 8 * 1024 + i % 8 / 2 * 64 + part * 16 + i % 2 * 2, &x, 2);
    }
  }
}

inline void put_weight_parts(const float* weights, float reciprocal, std::int8_t* to, std::int64_t stride) {
  for (int i = 0; i < 32; ++i) {
    float rest = weights[i] * reciprocal;
    for (int part = 0; part < 3; ++part) {
      const std::uint16_t x = take_part(rest);
      std::memcpy(to + part * stride + i % 16 * 4 + i / 16 * 2, &x, 2);
    }
  }
}

inline void join_parts(const float* products, const float* factors, const float* scales, float* to,
                       std::int64_t stride) {
  for (int key = 0; key < 16; ++key)
    for (int r = 0; r < 4; ++r) {
      const float* const x = products + key * 16 + r;
      to[r * stride + key] = factors[r] * ((x[12] + x[8]) + (x[4] + x[0])) * scales[key];
    }
}

inline void join_part_columns(const float* sums, std::int64_t stride, float unit, int t, float* to) {
  for (int i = 0; i < 16; ++i)
    to[column_of_word(t, i)] = ((sums[2 * stride + i] + sums[stride + i]) + sums[i]) * unit;
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
