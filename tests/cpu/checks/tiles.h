// AMX tiles, and the vector functions of their kernels: the processor's instructions or their twin.
#pragma once

#include "cpu/amx/tables.h"
#include "cpu/checks/findings.h"
#include "cpu/checks/plain.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

using test::Findings;

inline constexpr int kTileWords = 256;  // 16 rows of 64 bytes

struct alignas(64) TileWords {
  std::uint32_t x[kTileWords];
};

/// Words of two numbers of similar magnitude, whose products and sums are rounded; some are zeros or denormal.
template <class T>
void draw_tile(Findings& findings, TileWords& tile) {
  alignas(64) T numbers[2 * kTileWords];
  findings.draw_near_one(numbers, 2 * kTileWords);
  for (T& number : numbers)
    if (const int kind = findings.below(32); kind < 2) number = T::from_bits(kind == 0 ? 0x8000 : 0x0003);
  std::memcpy(tile.x, numbers, sizeof numbers);
}

/// Rows any number of bytes apart, through each register.
template <int kTile>
void compare_tile_moves(Findings& findings, Tiles& tiles) {
  constexpr std::int64_t kStride = 80;
  std::byte from[16 * kStride], to[16 * kStride];
  TileWords words, expected;
  for (int i = 0; i < 16; ++i)
    for (int word = 0; word < 16; ++word) expected.x[16 * i + word] = findings.word();
  for (int i = 0; i < 16; ++i) std::memcpy(from + i * kStride, expected.x + 16 * i, 64);
  tiles.load<kTile>(from, kStride);
  tiles.store<kTile>(to, kStride);
  for (int i = 0; i < 16; ++i) std::memcpy(words.x + 16 * i, to + i * kStride, 64);
  findings.same_bits(words.x, expected.x, 4, kTileWords);
  tiles.clear<kTile>();
  tiles.store<kTile>(words.x, 64);
  std::memset(expected.x, 0, sizeof expected);
  findings.same_bits(words.x, expected.x, 4, kTileWords);
}

inline void check_tile_moves(Findings& findings) {
  Tiles tiles;
  compare_tile_moves<0>(findings, tiles);
  compare_tile_moves<1>(findings, tiles);
  compare_tile_moves<2>(findings, tiles);
  compare_tile_moves<3>(findings, tiles);
  compare_tile_moves<4>(findings, tiles);
  compare_tile_moves<5>(findings, tiles);
  compare_tile_moves<6>(findings, tiles);
  compare_tile_moves<7>(findings, tiles);
}

template <class T>
void check_tile_product(Findings& findings) {
  Tiles tiles;
  TileWords a, b;
  alignas(64) float c[kTileWords], found[kTileWords], expected[kTileWords];
  for (int round = 0; round < 200; ++round) {
    draw_tile<T>(findings, a);
    draw_tile<T>(findings, b);
    findings.draw_near_one(c, kTileWords);
    tiles.load<0>(c, 64);
    tiles.load<4>(a.x, 64);
    tiles.load<6>(b.x, 64);
    tiles.multiply<0, 4, 6, dtype_of<T>>();
    tiles.store<0>(found, 64);
    std::memcpy(expected, c, sizeof c);
    test::add_tile_product(a.x, b.x, dtype_of<T>, expected);
    findings.equal(found, expected, kTileWords, c);
  }
}

/// Weights rounded to bf16, from scores that are in range, too low, too high or NaN.
inline void check_weights(Findings& findings) {
  alignas(64) float scores[32];
  alignas(64) std::uint32_t found[16];
  std::uint32_t expected[16];
  for (int round = 0; round < 2000; ++round) {
    const float factor = 369.0F, offset = kWeightBias - 256.0F * static_cast<float>(findings.below(20));
    findings.draw_near_one(scores, 32);
    for (int i = 0; i < 32; ++i) scores[i] *= static_cast<float>(1 << findings.below(8));
    if (round % 2 == 1) findings.draw(scores, 16);
    Weights weights(factor);
    weights.of_row(scores, offset, found);
    const bool overflowed = test::weights_of_row(scores, factor, offset, expected);
    findings.same_bits(found, expected, 4, 16);
    findings.equal(weights.overflowed(), overflowed);
    weights.reset();
    findings.equal(weights.overflowed(), false);
  }
}

/// Weights of keys with scales have the bits of scaled scores, each with an offset of its own.
inline void check_scaled_weights(Findings& findings) {
  alignas(64) float scores[32], scales[32], shifts[32], sums[16], expected_sums[16];
  alignas(64) std::uint16_t found[32];
  for (int round = 0; round < 500; ++round) {
    const float factor = 369.0F, offset = kWeightBias - 256.0F * static_cast<float>(findings.below(20));
    findings.draw_near_one(scores, 32), findings.draw_near_one(scales, 32);
    for (int i = 0; i < 32; ++i) {
      scores[i] *= static_cast<float>(1 << findings.below(8));
      shifts[i] = -static_cast<float>(findings.below(25600)) / 100;
    }
    const KeyScales keys(scales, shifts);
    Weights weights(factor);
    weights.of_row(scores, offset, reinterpret_cast<std::uint32_t*>(found), keys);
    weights.sums_of_row(scores, 7.0F, sums, keys);
    for (int i = 0; i < 32; ++i) scores[i] *= scales[i];
    weights.sums_of_row(scores, 7.0F, expected_sums);
    findings.same_bits(sums, expected_sums, 4, 16);
    for (int w = 0; w < 32; ++w) {
      const int key = key_of_word(w);
      std::uint32_t of_key[16];
      test::weights_of_row(scores, factor, offset + shifts[key], of_key);
      const std::uint32_t expected = of_key[w / 2] >> w % 2 * 16 & 0xffffU;
      findings.equal(found[w], static_cast<std::int64_t>(expected));
    }
  }
}

/// The same with scores of hidden keys, which have the weights of -inf and do not overflow.
template <bool kScales>
void compare_visible_weights(Findings& findings) {
  alignas(64) float scores[32];
  alignas(64) std::uint32_t found[16];
  std::uint32_t expected[16];
  for (int round = 0; round < 500; ++round) {
    const float factor = 369.0F, scale = 0.3F,
                offset = kWeightBias - 256.0F * static_cast<float>(findings.below(20));
    findings.draw_near_one(scores, 32);
    std::uint32_t visible = 0;
    for (int i = 0; i < 32; ++i) {
      scores[i] *= static_cast<float>(1 << findings.below(8));
      visible |= static_cast<std::uint32_t>(findings.below(2)) << i;
    }
    Weights weights(factor);
    weights.of_visible<kScales>(scores, scale, visible, offset, found);
    for (int i = 0; i < 32; ++i) {
      if constexpr (kScales) scores[i] *= scale;
      if ((visible >> i & 1U) == 0) scores[i] = -kInfinity;
    }
    findings.equal(weights.overflowed(), test::weights_of_row(scores, factor, offset, expected));
    findings.same_bits(found, expected, 4, 16);
  }
}
inline void check_visible_weights(Findings& findings) {
  compare_visible_weights<false>(findings);
  compare_visible_weights<true>(findings);
}

/// The words of one part, [2][16] numbers, and what is left of them.
template <int kParts>
void expected_split(float (&low)[16], float (&high)[16], std::uint32_t* words) {
  for (int i = 0; i < 16; ++i)
    words[i] = test::take_part(low[i], kParts == 1) |
               static_cast<std::uint32_t>(test::take_part(high[i], kParts == 1)) << 16;
}

template <int kParts>
void compare_split(Findings& findings) {
  constexpr std::int64_t kStride = 512;
  alignas(64) float x[4][16];
  alignas(64) static std::uint32_t rows[kParts * kStride], pairs[kParts * kStride], words[kParts * kStride];
  for (int round = 0; round < 400; ++round) {
    for (auto& numbers : x) findings.draw_near_one(numbers, 16);
    x[round % 4][round % 16] = 0.0F;
    alignas(64) float even[32], odd[32];
    std::memcpy(even, x[0], 64), std::memcpy(even + 16, x[1], 64);
    std::memcpy(odd, x[2], 64), std::memcpy(odd + 16, x[3], 64);
    const Bf16Split<kParts> parts;
    parts.split(x[0], x[1], words, kStride);
    parts.split_rows(even, odd, rows, pairs, kStride);
    float of_rows[4][16], of_pairs[4][16];
    std::memcpy(of_rows, x, sizeof x), std::memcpy(of_pairs, x, sizeof x);
    for (int t = 0; t < kParts; ++t) {
      std::uint32_t expected[16];
      expected_split<kParts>(of_rows[0], of_rows[1], expected);
      findings.same_bits(words + t * kStride, expected, 4, 16);
      findings.same_bits(rows + t * kStride, expected, 4, 16);
      expected_split<kParts>(of_rows[2], of_rows[3], expected);
      findings.same_bits(rows + t * kStride + 16, expected, 4, 16);
      expected_split<kParts>(of_pairs[0], of_pairs[2], expected);
      findings.same_bits(pairs + t * kStride, expected, 4, 16);
      expected_split<kParts>(of_pairs[1], of_pairs[3], expected);
      findings.same_bits(pairs + t * kStride + 256, expected, 4, 16);
    }
    // Three parts of eight bits are a float.
    const float zeros[64] = {};
    if (kParts == 3) findings.equal(of_rows[0], zeros, 64);
  }
}

inline void check_bf16_split(Findings& findings) {
  findings.with("parts", 1);
  compare_split<1>(findings);
  findings.with("parts", 2);
  compare_split<2>(findings);
  findings.with("parts", 3);
  compare_split<3>(findings);
}

/// Three parts of a weight are the float 2^(x - kSplitHeadroom) within the bound of its polynomial; sums are of
/// keys i and 16 + i; a score that is too large is detected.
inline void check_split_weights(Findings& findings) {
  constexpr std::int64_t kStride = 512;
  alignas(64) float scores[32], sums[16];
  alignas(64) static std::uint32_t words[3 * kStride];
  float found[32], x[32], expected_sums[16];
  for (int round = 0; round < 2000; ++round) {
    const float offset = static_cast<float>(-findings.below(20));
    for (float& score : scores) score = -static_cast<float>(findings.below(1 << 19)) / (1 << 15);
    SplitWeights<3> weights(2.0F);
    weights.of_row(scores, offset, words, kStride, sums);
    for (int i = 0; i < 32; ++i) {
      x[i] = 2.0F * scores[i] + offset - kSplitHeadroom;
      found[i] = 0.0F;
      for (int t = 2; t >= 0; --t)
        found[i] += std::bit_cast<float>(i < 16 ? words[t * kStride + i] << 16
                                                : words[t * kStride + i - 16] & 0xffff0000u);
    }
    findings.near_exp2(found, x, 32, kExp2Error);
    for (int i = 0; i < 16; ++i) expected_sums[i] = found[i] + found[16 + i];
    findings.equal(sums, expected_sums, 16);
    findings.equal(weights.overflowed(), false);
    scores[round % 16] = -1e6F;
    weights.of_row(scores, offset, words, kStride, sums);
    std::uint32_t low = 0;
    for (int t = 0; t < 3; ++t) low |= words[t * kStride + round % 16] << 16;
    findings.equal(low, 0);
    scores[round % 32] = 40.0F;
    weights.of_row(scores, offset, words, kStride, sums);
    findings.equal(weights.overflowed(), 2.0F * 40.0F + offset > kSplitHeadroom);
    weights.reset();
    findings.equal(weights.overflowed(), false);
  }
}

inline void check_put_halves(Findings& findings) {
  alignas(64) float from[16];
  alignas(64) std::uint32_t found[32];
  for (int round = 0; round < 100; ++round) {
    findings.draw_near_one(from, 16);
    for (float& x : from) x = std::ldexp(x, findings.below(60) - 40);
    from[round % 16] = 1.0F + 0x1p-8F * static_cast<float>(round % 4);  // between two numbers: to the even one
    std::uint32_t expected[32];
    for (int i = 0; i < 16; ++i) {
      const std::uint32_t bits = bfloat16(from[i]).bits;
      expected[i] = bits, expected[16 + i] = bits << 16;
    }
    put_halves(from, found);
    findings.same_bits(found, expected, 4, 32);
  }
}

inline void check_transpose_words(Findings& findings) {
  TileWords from, found, expected;
  for (int i = 0; i < kTileWords; ++i) from.x[i] = findings.word();
  for (int i = 0; i < kTileWords; ++i) expected.x[i] = from.x[i % 16 * 16 + i / 16];
  transpose_words(from.x, found.x);
  findings.same_bits(found.x, expected.x, 4, kTileWords);
}

inline constexpr test::Check kTileChecks[] = {{"tile_moves", check_tile_moves},
                                              {"tile_product", check_tile_product<bfloat16>},
                                              {"weights", check_weights},
                                              {"visible_weights", check_visible_weights},
                                              {"scaled_weights", check_scaled_weights},
                                              {"bf16_split", check_bf16_split},
                                              {"split_weights", check_split_weights},
                                              {"put_halves", check_put_halves},
                                              {"transpose_words", check_transpose_words}};

/// Needs AMX-FP16, or the twin.
inline constexpr test::Check kTileF16Checks[] = {{"tile_product_f16", check_tile_product<float16>}};

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
