// The vector functions of the kernels on AMX tiles that turn scores into weights and results into bf16.
#pragma once

#include "cpu/amx/tables.h"
#include "cpu/checks/tile_words.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

inline void check_ceil(Findings& findings) {
  alignas(64) float x[kWidth], found[kWidth], expected[kWidth];
  for (int round = 0; round < 1000; ++round) {
    findings.draw(x, kWidth);
    for (float& number : x)  // halves, and numbers of a few digits
      if (const int kind = findings.below(4); kind < 2)
        number = static_cast<float>(findings.below(4000) - 2000) / (kind == 0 ? 2.0F : 100.0F);
    for (int i = 0; i < kWidth; ++i) {
      expected[i] = x[i];
      if (!(PlainFloat::abs(x[i]) < 0x1p23F)) continue;  // whole, infinite or NaN
      const auto toward_zero = static_cast<float>(static_cast<int>(x[i]));
      const float up = PlainFloat::less(toward_zero, x[i]) ? toward_zero + 1.0F : toward_zero;
      expected[i] = up == 0.0F ? PlainFloat::copysign(0.0F, x[i]) : up;
    }
    store(found, ceil(load(x)));
    findings.equal(found, expected, kWidth, x);
  }
}

/// Whatever its place, the largest is found. Zeros may have either sign.
inline void check_maxima_of_32_rows(Findings& findings) {
  alignas(64) static float rows[1024];
  alignas(64) float found[32];
  float expected[32];
  const auto compare = [&] {
    maxima_of_32_rows(rows, found);
    for (int row = 0; row < 32; ++row) {
      expected[row] = rows[row * 32];
      for (int i = 1; i < 32; ++i) expected[row] = PlainFloat::max(expected[row], rows[row * 32 + i]);
      expected[row] = PlainFloat::add(expected[row], 0.0F), found[row] = PlainFloat::add(found[row], 0.0F);
    }
    findings.equal(found, expected, 32);
  };
  for (int round = 0; round < 100; ++round) {
    findings.draw_numbers(rows, 1024);
    compare();
    findings.draw_near_one(rows, 1024);
    compare();
  }
  for (const float other : {-kInfinity, -2.0F}) {
    for (float& number : rows) number = other;
    compare();
    for (int place = 0; place < 1024; ++place) {
      findings.with("place", place);
      rows[place] = -1.0F;
      compare();
      rows[place] = other;
    }
  }
}

/// Of a weight, relative: 5.3e-8 of the polynomial, and three roundings. Denormal weights are also rounded to
/// whole denormals.
inline constexpr double kSumsError = 2.5e-7;

/// The sums of rows in which only one half of the scores count, against 2^x.
inline void compare_sums_of_half(Findings& findings, float factor, float exponent, const float* scores, int half,
                                 float* sums) {
  alignas(64) float some[32];
  float x[16];
  for (float& score : some) score = -kInfinity;
  for (int i = 0; i < 16; ++i) {
    some[16 * half + i] = scores[16 * half + i];
    x[i] = PlainFloat::fma(scores[16 * half + i], factor / 256, exponent, true);
  }
  Weights(factor).sums_of_row(some, exponent, sums);
  for (int i = 0; i < 16; ++i) {
    const float expected_zero = 0.0F;
    if (x[i] < -160.0F)
      findings.equal(sums + i, &expected_zero, 1);
    else
      findings.near_exp2(sums + i, x + i, 1, kSumsError + (x[i] < -126.0F ? std::exp2(-150.0 - x[i]) : 0.0));
  }
}

/// Weights of every magnitude: of scores in one half of a row, whose other half adds exactly 0; then sums of both.
inline void check_sums_of_row(Findings& findings) {
  alignas(64) float scores[32], low[16], high[16], found[16];
  float expected[16];
  const auto compare = [&](float factor, float exponent) {
    compare_sums_of_half(findings, factor, exponent, scores, 0, low);
    compare_sums_of_half(findings, factor, exponent, scores, 1, high);
    Weights(factor).sums_of_row(scores, exponent, found);
    for (int i = 0; i < 16; ++i) expected[i] = PlainFloat::add(low[i], high[i]);
    findings.equal(found, expected, 16);
  };
  for (int round = 0; round < 2000; ++round) {
    findings.draw_near_one(scores, 32);
    for (float& score : scores) score *= static_cast<float>(1 << findings.below(6));  // up to 64
    const auto exponent = static_cast<float>(findings.below(200) - 140);
    compare(256 * 0.9F, exponent);
    compare(256 * 1e-3F, exponent);
    scores[round % 32] = -kInfinity, scores[findings.below(32)] = -1e30F, scores[findings.below(32)] = -1e6F;
    compare(256 * 0.9F, exponent);
  }
  for (int step = -150 * 64; step <= 127 * 64; step += 16) {  // between and at multiples of 1/32
    for (int i = 0; i < 32; ++i) scores[i] = static_cast<float>(step + i) / 64;
    compare(256.0F, 0.0F);
  }
  for (float& score : scores) score = -kInfinity;
  for (float& sum : expected) sum = 0.0F;
  Weights(300.0F).sums_of_row(scores, 7.0F, found);
  findings.equal(found, expected, 16);
  findings.draw_near_one(scores, 32);
  Weights(300.0F).sums_of_row(scores, -kInfinity, found);
  findings.equal(found, expected, 16);
}

/// Numbers of 32 columns, at any address: bf16 unless one is not finite, which is reported.
inline void compare_write_32(Findings& findings, const float* from, float factor) {
  bfloat16 found[40], expected[40];
  const int offset = findings.below(8);
  bool all_finite = true;
  findings.draw(found, 40);
  std::memcpy(expected, found, sizeof found);
  for (int i = 0; i < 32; ++i) {
    const float x = PlainFloat::fma(factor, from[i], 0.0F, true);
    all_finite = all_finite && PlainFloat::abs(x) < kInfinity;
    expected[offset + i] = bfloat16(x);
  }
  alignas(64) float finite[kWidth];
  const float zeros[kWidth] = {};
  store(finite, write_32(from, broadcast(factor), found + offset, zero()));
  if (all_finite) {
    findings.same_bits(found, expected, sizeof(bfloat16), 40);
    for (float& number : finite) number = PlainFloat::add(number, 0.0F);  // zeros may have either sign
    findings.equal(finite, zeros, kWidth);
    store(finite, broadcast(std::numeric_limits<float>::quiet_NaN()));
    findings.equal(any(is_nan(write_32(from, broadcast(factor), found, load(finite)))), true);
  } else {
    findings.equal(any(is_nan(load(finite))), true);
  }
}

inline void check_write_32(Findings& findings) {
  alignas(64) float from[32];
  for (int round = 0; round < 2000; ++round) {
    findings.with("round", round);
    findings.draw(from, 32);
    for (float& number : from) {
      if (const int kind = findings.below(3); kind == 0 || !(PlainFloat::abs(number) < kInfinity))
        findings.draw_near_one(&number, 1);
      else if (kind == 1)  // halfway between two numbers of bf16, or next to it
        number = std::bit_cast<float>(((std::bit_cast<std::uint32_t>(number) & 0xffff0000U) | 0x8000U) +
                                      static_cast<std::uint32_t>(findings.below(3)) - 1U);
    }
    compare_write_32(findings, from, 1.0F);
    compare_write_32(findings, from, -0.3F);
    compare_write_32(findings, from, 7.0F);  // may be infinite
  }
  findings.draw_near_one(from, 32);
  for (int place = 0; place < 32; ++place) {
    const float number = from[place];
    for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN(), 3e38F}) {
      findings.with("place", place);
      from[place] = bad;
      compare_write_32(findings, from, 2.0F);
    }
    from[place] = number;
  }
}

inline constexpr test::Check kTileVectorChecks[] = {{"ceil", check_ceil},
                                                    {"maxima_of_32_rows", check_maxima_of_32_rows},
                                                    {"sums_of_row", check_sums_of_row},
                                                    {"write_32", check_write_32}};

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
