// Products of bytes on AMX tiles, and the functions around them (amx/bytes).
#pragma once

#include "cpu/amx/tables.h"
#include "cpu/checks/findings.h"
#include "cpu/checks/plain.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

using test::Findings;

struct alignas(64) TileBytes {
  std::uint8_t x[1024];
};

inline void draw_bytes(Findings& findings, TileBytes& tile) {
  for (std::uint8_t& byte : tile.x) byte = static_cast<std::uint8_t>(findings.word());
}

template <DType kType>
void check_tile_bytes(Findings& findings) {
  Tiles tiles;
  for (int round = 0; round < 20; ++round) {
    TileBytes a, b;
    draw_bytes(findings, a), draw_bytes(findings, b);
    alignas(64) std::int32_t before[256], found[256], expected[256];
    for (int i = 0; i < 256; ++i) before[i] = findings.below(1 << 20) - (1 << 19);
    for (int i = 0; i < 16; ++i)
      for (int j = 0; j < 16; ++j) {
        std::int32_t sum = before[i * 16 + j];
        for (int k = 0; k < 64; ++k) {
          const int x = kType == DType::i8 ? static_cast<std::int8_t>(a.x[i * 64 + k]) : a.x[i * 64 + k];
          sum += x * static_cast<std::int8_t>(b.x[k / 4 * 64 + j * 4 + k % 4]);
        }
        expected[i * 16 + j] = sum;
      }
    tiles.load<3>(before, 64), tiles.load<4>(a.x, 64), tiles.load<6>(b.x, 64);
    tiles.multiply<3, 4, 6, kType>();
    tiles.store<3>(found, 64);
    findings.same_bits(found, expected, 4, 256);
  }
}

inline void check_put_digits(Findings& findings) {
  alignas(64) float weights[64];
  alignas(64) std::uint8_t found[256];
  for (int round = 0; round < 50; ++round) {
    for (float& x : weights) x = std::ldexp(static_cast<float>(findings.word() >> 8), findings.below(24) - 46);
    weights[round] = 0x1.fffffep0F;
    std::uint8_t expected[256];
    for (int i = 0; i < 64; ++i) {
      const auto x = static_cast<std::uint32_t>(std::nearbyint(static_cast<double>(weights[i]) * 0x1p31));
      for (int d = 0; d < 4; ++d) expected[d * 64 + i] = static_cast<std::uint8_t>(x >> 8 * d);
    }
    put_digits(weights, 0x1p31F, found);
    findings.same_bits(found, expected, 1, 256);
  }
}

inline void check_put_query_digits(Findings& findings) {
  alignas(64) std::int8_t found[256] = {};
  for (int n = 1; n <= 16; ++n) {
    float numbers[16];
    for (float& x : numbers)
      x = std::ldexp(static_cast<float>(findings.word() >> 8), findings.below(12) - 35) - 0.25F;
    put_query_digits(numbers, n, -26, found);
    for (int i = 0; i < 16; ++i) {
      double sum = 0;
      for (int d = 0; d < 4; ++d) {
        const std::int8_t digit = found[i / 4 * 64 + d * 16 + i % 4];
        findings.equal(d == 0 || std::abs(digit) <= 64, true);
        sum += std::ldexp(static_cast<double>(digit), 7 * (3 - d));
      }
      findings.equal(sum, i < n ? std::nearbyint(0x1p26 * static_cast<double>(numbers[i])) : 0.0);
    }
  }
}

inline void check_join_digits(Findings& findings) {
  alignas(64) std::int32_t products[256];
  alignas(64) float found[4 * 16];
  for (int round = 0; round < 50; ++round) {
    for (std::int32_t& x : products) x = findings.below(1 << 22) - (1 << 21);
    const float factors[] = {0x1p-30F, 0x1p-20F, 1, 0x1p10F};
    float scales[16];
    for (float& x : scales) x = static_cast<float>(1 + findings.below(100)) * 0x1p-7F;
    join_digits(products, factors, scales, found, 16);
    for (int key = 0; key < 16; ++key)
      for (int r = 0; r < 4; ++r) {
        double sum = 0, most = 0;
        for (int d = 0; d < 4; ++d) {
          const double x = static_cast<double>(products[key * 16 + d * 4 + r]) * std::ldexp(1.0, 7 * (3 - d));
          sum += x, most = std::max(most, std::abs(x));
        }
        const double factor = static_cast<double>(factors[r]) * static_cast<double>(scales[key]);
        findings.equal(
            std::abs(static_cast<double>(found[r * 16 + key]) - sum * factor) <= most * factor * 0x1p-21, true);
      }
  }
}

inline void check_interleave_rows(Findings& findings) {
  std::int8_t rows[4 * 100];
  alignas(64) std::int8_t found[4 * 1024];
  for (std::int8_t& x : rows) x = static_cast<std::int8_t>(findings.word());
  interleave_rows(rows, 100, found);
  for (int t = 0; t < 4; ++t)
    for (int i = 0; i < 16; ++i)
      for (int row = 0; row < 4; ++row)
        findings.equal(found[t * 1024 + i * 4 + row], rows[row * 100 + column_of_word(t, i)]);
}

inline void check_join_columns(Findings& findings) {
  alignas(64) std::int32_t sums[4][64];
  alignas(64) float found[64];
  for (auto& tile : sums)
    for (std::int32_t& x : tile) x = findings.below(1 << 20) - (1 << 19);
  for (int t = 0; t < 4; ++t) join_digit_columns(sums[t], 0x1p-31F, t, found);
  for (int t = 0; t < 4; ++t)
    for (int i = 0; i < 16; ++i) {
      double sum = 0, most = 0;
      for (int d = 0; d < 4; ++d) {
        const double x = std::ldexp(static_cast<double>(sums[t][d * 16 + i]), 8 * d - 31);
        sum += x, most = std::max(most, std::abs(x));
      }
      findings.equal(std::abs(static_cast<double>(found[column_of_word(t, i)]) - sum) <= most * 0x1p-21, true);
    }
}

inline void check_put_int4_row(Findings& findings) {
  for (const std::int64_t half : {16, 48, 64, 80, 128}) {
    std::uint8_t bytes[128];
    std::int8_t multipliers[16];
    for (std::uint8_t& x : bytes) x = static_cast<std::uint8_t>(findings.word());
    for (std::int8_t& x : multipliers) x = static_cast<std::int8_t>(findings.word());  // also beyond 15
    const std::int64_t tiles = (2 * half + 63) / 64;
    alignas(64) std::int8_t found[256], expected[256];
    for (std::int64_t d = 0; d < tiles * 64; ++d) {
      const int nibble = d < half ? bytes[d] & 15 : bytes[std::min(d - half, half - 1)] >> 4;
      expected[d] = static_cast<std::int8_t>(d < 2 * half ? multipliers[d / 16] * (nibble - 8) : 0);
    }
    put_int4_row({bytes, multipliers, half}, tiles, found);
    findings.with("half of the row", half);
    findings.same_bits(found, expected, 1, tiles * 64);
  }
}

inline float number_of_bf16(const std::int8_t* word) {
  std::uint16_t bits;
  std::memcpy(&bits, word, 2);
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

/// By the definition of the format (OCP 8-bit floating point, E4M3).
inline float number_of_float8(std::int8_t byte) {
  const int exponent = byte >> 3 & 15, fraction = byte & 7;
  const float magnitude = (byte & 127) == 127 ? std::numeric_limits<float>::quiet_NaN()
                          : exponent == 0     ? std::ldexp(static_cast<float>(fraction), -9)
                                              : std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
  return byte < 0 ? -magnitude : magnitude;
}

inline void check_put_float8_rows(Findings& findings) {
  std::int8_t rows[16 * 70];
  for (std::size_t i = 0; i < std::size(rows); ++i) rows[i] = static_cast<std::int8_t>(i);
  alignas(64) std::int8_t found[2048];
  put_float8_rows(rows, 70, found);
  for (int i = 0; i < 16; ++i)
    for (int d = 0; d < 64; ++d) {
      const float x = number_of_bf16(found + d % 16 / 8 * 1024 + i * 64 + (d / 16 * 8 + d % 8) * 2);
      const float wanted = number_of_float8(rows[i * 70 + d]);
      findings.equal(std::isnan(wanted) ? std::isnan(x)
                                        : std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(wanted),
                     true);
    }
}

inline void check_interleave_float8(Findings& findings) {
  std::int8_t rows[2][64];
  for (auto& row : rows)
    for (std::int8_t& x : row) x = static_cast<std::int8_t>(findings.below(126));
  alignas(64) std::int8_t found[4096];
  interleave_float8(rows[0], rows[1], found);
  for (int t = 0; t < 4; ++t)
    for (int i = 0; i < 16; ++i)
      for (int row = 0; row < 2; ++row)
        findings.equal(number_of_bf16(found + t * 1024 + i * 4 + row * 2),
                       number_of_float8(rows[row][column_of_word(t, i)]));
}

inline void check_put_query_parts(Findings& findings) {
  alignas(64) std::int8_t found[2048] = {};
  for (int n = 1; n <= 16; ++n) {
    float numbers[16];
    for (float& x : numbers)
      x = std::ldexp(static_cast<float>(findings.word() >> 8), findings.below(40) - 60) - 0.25F;
    put_query_parts(numbers, n, -6, found);
    for (int i = 0; i < 16; ++i) {
      float sum = 0;
      for (int part = 2; part >= 0; --part)
        sum += number_of_bf16(found + i / 8 * 1024 + i % 8 / 2 * 64 + part * 16 + i % 2 * 2);
      findings.equal(sum, i < n ? numbers[i] * 64 : 0.0F);
    }
  }
}

inline void check_put_weight_parts(Findings& findings) {
  alignas(64) float weights[32];
  alignas(64) std::int8_t found[3 * 256];
  for (float& x : weights) x = std::ldexp(static_cast<float>(findings.word() >> 8), findings.below(40) - 60);
  put_weight_parts(weights, 4, found, 256);
  for (int i = 0; i < 32; ++i) {
    float sum = 0;
    for (int part = 2; part >= 0; --part) sum += number_of_bf16(found + part * 256 + i % 16 * 4 + i / 16 * 2);
    findings.equal(sum, weights[i] * 4);
  }
}

inline void check_join_parts(Findings& findings) {
  alignas(64) float products[256], found[64], sums[48], columns[64];
  for (float& x : products) x = static_cast<float>(findings.below(1000));
  for (float& x : sums) x = static_cast<float>(findings.below(1000));
  const float factors[] = {0.5F, 1, 2, 4};
  float scales[16];
  for (float& x : scales) x = static_cast<float>(findings.below(8));
  join_parts(products, factors, scales, found, 16);
  for (int key = 0; key < 16; ++key)
    for (int r = 0; r < 4; ++r) {
      const float* const x = products + key * 16 + r;
      findings.equal(found[r * 16 + key], (x[0] + x[4] + x[8] + x[12]) * factors[r] * scales[key]);
    }
  for (int t = 0; t < 4; ++t) {
    join_part_columns(sums, 16, 0.5F, t, columns);
    for (int i = 0; i < 16; ++i)
      findings.equal(columns[column_of_word(t, i)], (sums[i] + sums[16 + i] + sums[32 + i]) * 0.5F);
  }
}

inline constexpr test::Check kTileByteChecks[] = {{"tile_signed_bytes", check_tile_bytes<DType::i8>},
                                                  {"tile_unsigned_bytes", check_tile_bytes<DType::u8>},
                                                  {"put_digits", check_put_digits},
                                                  {"put_query_digits", check_put_query_digits},
                                                  {"join_digits", check_join_digits},
                                                  {"interleave_rows", check_interleave_rows},
                                                  {"join_columns", check_join_columns},
                                                  {"put_int4_row", check_put_int4_row},
                                                  {"put_float8_rows", check_put_float8_rows},
                                                  {"interleave_float8", check_interleave_float8},
                                                  {"put_query_parts", check_put_query_parts},
                                                  {"put_weight_parts", check_put_weight_parts},
                                                  {"join_parts", check_join_parts}};

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
