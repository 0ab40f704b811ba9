// The constants of the exponentials that AMX kernels round to bf16, and the order of keys in their words.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "cpu/simd/exp2/coefficients.h"

namespace saccade::cpu {

/// A weight rounded to bf16 is computed in 16-bit fixed point: y = 256 (log2 of the weight + 127). Half of y has
/// the bits of the bf16 number except for the curvature of 2^f, which a table over the upper 6 bits of the
/// fraction f corrects: weight = (y + correction + 1) / 2. kWeightShift keeps corrections above 0; a y far below
/// becomes 0, and the weight a denormal, which a product counts as 0.
inline constexpr int kWeightShift = 22;
/// Binades between the largest weight of a row's first keys and the largest bf16 weight: later keys may be larger
/// by this much before the row's weights must be scaled down.
inline constexpr int kWeightHeadroom = 30;
/// y of a row's score s is s * factor + offset, with offset = kWeightBias - 256 * (a whole exponent).
inline constexpr float kWeightBias = (127 - kWeightHeadroom) * 256.0F - kWeightShift;

struct WeightTables {
  alignas(64) std::uint8_t correction[64];
  alignas(64) std::uint8_t fraction[64];  // of each word, the position of its upper 6 bits of fraction in 8 bytes

  constexpr WeightTables() : correction(), fraction() {
    for (int t = 0; t < 64; ++t) {
      double f = (4 * t + 1.5 + kWeightShift) / 256;
      if (f >= 1) f -= 1;
      double power = 1, term = 1;  // 2^f by its series
      for (int n = 1; n < 30; ++n) power += (term *= f * 0.69314718055994530942 / n);
      correction[t] = static_cast<std::uint8_t>(256 * (power - 1 - f) + kWeightShift + 0.5);
      fraction[t] = static_cast<std::uint8_t>(t % 8 / 2 * 16 + 2);
    }
  }
};
inline constexpr WeightTables kWeightTables;

/// Weights that are split into several parts are computed as floats: weight = 2^(x - kSplitHeadroom) with x =
/// score * factor + offset, where the offset makes x of a row's first keys at most 0. Later keys may have an x up
/// to kSplitHeadroom. The headroom is part of kSplitMagic, which rounds to whole numbers: as part of x it would
/// cost bits. An x of kSplitLowest gives exactly 0. A sum with kSplitMagic has one of the bits of kSplitOverflow
/// set if x is too large.
inline constexpr int kSplitHeadroom = 32;
inline constexpr float kSplitMagic = Exp2Polynomial<float>::kRoundToInteger - kSplitHeadroom;
inline constexpr float kSplitLowest = -127.0F + kSplitHeadroom;
inline constexpr std::uint32_t kSplitOverflow = 0x34c00000U;

/// 2^x = 2^n * power[j] * (1 + f (kLinear + kSquare f)), where n + j / 32 is the multiple of 1/32 nearest to x and
/// f the rest: minimax with 1 at f = 0, a relative error of 5.3e-8 besides rounding.
struct PowersOf32nds {
  static constexpr float kLinear = 0.6931573438F, kSquare = 0.2402265070F;
  /// 1.5 * 2^18: added to x, it puts j into the low bits of the sum.
  static constexpr float kRound = 0x1.8p18F;
  alignas(64) float power[32];

  constexpr PowersOf32nds() : power() {
    double x = 1;
    for (float& p : power) {
      p = static_cast<float>(x);
      x *= 0x1.059b0d3158574p+0;  // 2^(1/32)
    }
  }
};
inline constexpr PowersOf32nds kPowersOf32nds;

/// The bits of 1 / x are about these less the bits of x.
inline constexpr std::int32_t kReciprocalBits = 0x7ef31000;

/// A tile of bf16 numbers whose first column has ones and whose other columns are 0.
struct OnesTile {
  alignas(64) std::uint32_t words[256];

  constexpr OnesTile() : words() {
    for (int pair = 0; pair < 16; ++pair) words[pair * 16] = 0x3f803f80;
  }
};
inline constexpr OnesTile kOnesTile;

/// The column, of 64, of word i of tile t of interleaved rows of bytes: the order in which AVX-512 unpacks
/// vectors.
constexpr int column_of_word(int t, int i) { return i / 4 * 16 + t * 4 + i % 4; }

/// The key, of the 32 of a row, whose weight is in word w: the order in which AVX-512 packs two vectors.
constexpr int key_of_word(int w) { return w % 8 < 4 ? w / 8 * 4 + w % 8 : 16 + w / 8 * 4 + w % 8 - 4; }

}  // namespace saccade::cpu
