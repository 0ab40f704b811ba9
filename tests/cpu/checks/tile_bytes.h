// Products of bytes on AMX tiles, and the functions around them (amx/integers/decode.h).
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
    put_query_digits(numbers, n, -2, -25, found);
    for (int i = 0; i < 16; ++i) {
      double sum = 0;
      for (int d = 0; d < 4; ++d) {
        const std::int8_t digit = found[i / 4 * 64 + d * 16 + i % 4];
        findings.equal(d == 0 || std::abs(digit) <= 64, true);
        sum += std::ldexp(static_cast<double>(digit), 7 * (3 - d));
      }
      findings.equal(sum, i < n ? std::nearbyint(-0x1p26 * static_cast<double>(numbers[i])) : 0.0);
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
  for (int t = 0; t < 4; ++t) join_columns(sums[t], 0x1p-31F, t, found);
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

inline constexpr test::Check kTileByteChecks[] = {{"tile_signed_bytes", check_tile_bytes<DType::i8>},
                                                  {"tile_unsigned_bytes", check_tile_bytes<DType::u8>},
                                                  {"put_digits", check_put_digits},
                                                  {"put_query_digits", check_put_query_digits},
                                                  {"join_digits", check_join_digits},
                                                  {"interleave_rows", check_interleave_rows},
                                                  {"join_columns", check_join_columns},
                                                  {"put_int4_row", check_put_int4_row}};

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
