// What amx/tiles.h does with AMX and AVX-512, in plain C++ and with the same bits, so that every machine can test
// the kernels that use it. See there for what each function means.
#pragma once

#include "cpu/amx/tables.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// Products of registers read and write no memory of a caller, and sanitizers make them many times slower.
#define SACCADE_UNWATCHED __attribute__((noinline, no_sanitize("address", "thread", "undefined")))

/// A thread has one set of registers, as on the processor: using an object after another one took or released them
/// ends the program.
class Tiles {
 public:
  Tiles() { configure(); }
  ~Tiles() { owner_ = nullptr; }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;

  void configure() {
    owner_ = this;
    std::memset(rows_, 0, sizeof rows_);
  }

  template <int kTile>
  void load(const void* from, std::int64_t stride) {
    check();
    for (int i = 0; i < 16; ++i)
      std::memcpy(rows_[kTile][i], static_cast<const std::byte*>(from) + i * stride, 64);
  }
  template <int kTile>
  void load_streamed(const void* from, std::int64_t stride) {
    load<kTile>(from, stride);
  }
  template <int kTile>
  void store(void* to, std::int64_t stride) const {
    check();
    for (int i = 0; i < 16; ++i) std::memcpy(static_cast<std::byte*>(to) + i * stride, rows_[kTile][i], 64);
  }
  template <int kTile>
  void clear() {
    check();
    std::memset(rows_[kTile], 0, sizeof rows_[kTile]);
  }

  /// Each number of c has a chain of multiply-adds over the even products and one over the odd ones, both from +0;
  /// then c + (even + odd). Denormal floats count as 0 and become 0, as do denormal bf16; denormal f16 count. Of
  /// bf16: Intel, Intrinsics Guide, _tile_dpbf16ps, and a comparison with a processor that has it. Of f16: Intel,
  /// Software Developer's Manual, volume 2, TDPFP16PS; not seen on a processor.
  template <int kC, int kA, int kB, DType kType = DType::bf16>
  SACCADE_UNWATCHED void multiply() {
    check();
    if constexpr (kType == DType::i8 || kType == DType::u8)
      return multiply_bytes<kC, kA, kB, kType == DType::i8>();
    const Numbers a = numbers_of<kType>(rows_[kA]), b = numbers_of<kType>(rows_[kB]);
    for (int i = 0; i < 16; ++i) {
      float even[16] = {}, odd[16] = {};
      for (int k = 0; k < 16; ++k) {
        for (int j = 0; j < 16; ++j) {
          even[j] = flushed(__builtin_fmaf(a.even[i][k], b.even[k][j], even[j]));
          odd[j] = flushed(__builtin_fmaf(a.odd[i][k], b.odd[k][j], odd[j]));
        }
      }
      for (int j = 0; j < 16; ++j) {
        const float c = flushed(__builtin_bit_cast(float, rows_[kC][i][j]));
        rows_[kC][i][j] = __builtin_bit_cast(std::uint32_t, flushed(c + flushed(even[j] + odd[j])));
      }
    }
  }

 private:
  template <int kC, int kA, int kB, bool kSigned>
  SACCADE_UNWATCHED void multiply_bytes() {
    for (int i = 0; i < 16; ++i)
      for (int j = 0; j < 16; ++j)
        for (int k = 0; k < 64; ++k) {
          const std::uint32_t x = rows_[kA][i][k / 4] >> k % 4 * 8 & 255U;
          const auto a = kSigned ? static_cast<std::int8_t>(x) : static_cast<std::int32_t>(x);
          const auto b = static_cast<std::int8_t>(rows_[kB][k / 4][j] >> k % 4 * 8 & 255U);
          rows_[kC][i][j] += static_cast<std::uint32_t>(a * b);
        }
  }

  void check() const {
    if (owner_ != this) __builtin_trap();
  }
  static inline __attribute__((always_inline)) float flushed(float x) {
    const auto bits = __builtin_bit_cast(std::uint32_t, x);
    return __builtin_bit_cast(float, (bits & 0x7f800000u) == 0 ? bits & 0x80000000u : bits);
  }

  /// The lower and the upper halves of a tile's words as floats.
  struct Numbers {
    float even[16][16], odd[16][16];
  };
  template <DType kType>
  SACCADE_UNWATCHED static Numbers numbers_of(const std::uint32_t (&words)[16][16]) {
    const auto number = [](std::uint32_t half) __attribute__((always_inline)) {
      if constexpr (kType == DType::f16)
        return static_cast<float>(float16::from_bits(static_cast<std::uint16_t>(half)));
      else
        return flushed(__builtin_bit_cast(float, half << 16));
    };
    Numbers numbers;
    for (int i = 0; i < 16; ++i)
      for (int k = 0; k < 16; ++k)
        numbers.even[i][k] = number(words[i][k]), numbers.odd[i][k] = number(words[i][k] >> 16);
    return numbers;
  }

  alignas(64) std::uint32_t rows_[8][16][16];
  inline static thread_local const Tiles* owner_ = nullptr;  // of the registers of this thread
};

struct NoKeyScales {
  static float score(int, float x) { return x; }
  static float offset(int, float x) { return x; }
};
class KeyScales {
 public:
  KeyScales() = default;
  KeyScales(const float* scales, const float* shifts) : scales_(scales), shifts_(shifts) {}
  float score(int j, float x) const { return x * scales_[j]; }
  float offset(int j, float x) const { return x + shifts_[j]; }

 private:
  const float *scales_ = nullptr, *shifts_ = nullptr;
};

class Weights {
 public:
  explicit Weights(float factor) : factor_(factor) {}

  bool overflowed() const { return (all_ & 0x8000u) != 0; }
  void reset() { all_ = 0; }

  template <class Keys = NoKeyScales>
  void of_row(const float* scores, float offset, std::uint32_t* to, const Keys& keys = {}) {
    std::uint16_t words[32];
    unsigned all = 0;
    for (int w = 0; w < 32; ++w) {
      const int key = key_of_word(w);
      const float y = __builtin_fmaf(keys.score(key, scores[key]), factor_, keys.offset(key, offset));
      // Like the conversion to integers: numbers out of range and NaN give the smallest integer, which saturates
      // to 0.
      const bool fits = y > 0.0F && y < 0x1p31F;
      const float bounded = fits ? (y < 65535.0F ? y : 65535.0F) : 0.0F;
      words[w] = static_cast<std::uint16_t>(std::nearbyintf(bounded));
      all |= words[w];
    }
    for (std::uint16_t& word : words) {
      const unsigned correction = kWeightTables.correction[word >> 2 & 63];
      word = static_cast<std::uint16_t>((word + correction + 1U) >> 1);
    }
    std::memcpy(to, words, sizeof words);
    all_ |= all;
  }

  template <bool kScales>
  void of_visible(const float* scores, float scale, std::uint32_t visible, float offset, std::uint32_t* to) {
    float shown[32];
    for (int j = 0; j < 32; ++j) {
      const float score = kScales ? scores[j] * scale : scores[j];
      shown[j] = (visible >> j & 1U) != 0 ? score : -std::numeric_limits<float>::infinity();
    }
    of_row(shown, offset, to);
  }

  template <class Keys = NoKeyScales>
  void sums_of_row(const float* scores, float exponent, float* sums, const Keys& keys = {}) const {
    const float factor = factor_ * (1.0F / 256);
    const auto power = [&](int j) {
      return power_of_2(__builtin_fmaf(keys.score(j, scores[j]), factor, exponent));
    };
    for (int j = 0; j < 16; ++j) sums[j] = power(j) + power(16 + j);
  }

 private:
  static float power_of_2(float x) {
    if (x == -std::numeric_limits<float>::infinity()) return 0;
    const float rounded = x + PowersOf32nds::kRound, n = rounded - PowersOf32nds::kRound, f = x - n;
    const float p = __builtin_fmaf(f, __builtin_fmaf(f, PowersOf32nds::kSquare, PowersOf32nds::kLinear), 1.0F);
    const float power = p * kPowersOf32nds.power[std::bit_cast<std::uint32_t>(rounded) % 32];
    return std::ldexp(power, static_cast<int>(std::floor(std::max(n, -1e6F))));
  }

  float factor_;
  unsigned all_ = 0;
};

template <int kParts>
class Bf16Split {
 public:
  void split(const float* low, const float* high, std::uint32_t* to, std::int64_t stride) const {
    for (int i = 0; i < 16; ++i) {
      float x = low[i], y = high[i];
      if constexpr (kParts == 1) x = rounded(x), y = rounded(y);
      for (int t = 0; t < kParts; ++t) {
        const std::uint32_t upper = std::bit_cast<std::uint32_t>(y) & kUpperHalf;
        to[t * stride + i] = upper | std::bit_cast<std::uint32_t>(x) >> 16;
        x -= std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & kUpperHalf), y -= std::bit_cast<float>(upper);
      }
    }
  }

  void split_rows(const float* even, const float* odd, std::uint32_t* rows, std::uint32_t* pairs,
                  std::int64_t stride) const {
    split(even, even + 16, rows, stride);
    split(odd, odd + 16, rows + 16, stride);
    split(even, odd, pairs, stride);
    split(even + 16, odd + 16, pairs + 256, stride);
  }

 private:
  static constexpr std::uint32_t kUpperHalf = 0xffff0000U;

  static float rounded(float x) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
    return std::bit_cast<float>(bits + 0x7fffU + (bits >> 16 & 1U));
  }
};

template <int kParts>
class SplitWeights {
 public:
  explicit SplitWeights(float factor) : factor_(factor) {}

  bool overflowed() const { return (all_ & kSplitOverflow) != 0; }
  void reset() { all_ = 0; }

  void of_row(const float* scores, float offset, std::uint32_t* to, std::int64_t stride, float* sums) {
    float weights[32];
    for (int j = 0; j < 32; ++j) {
      const float y = __builtin_fmaf(scores[j], factor_, offset);
      const float x = y < kSplitLowest ? kSplitLowest : y;
      const float rounded = x + kSplitMagic;
      const float f = x - (rounded - kSplitMagic);
      float p = Exp2Polynomial<float>::kCoefficients[0];
      for (int i = 1; i <= Exp2Polynomial<float>::kDegree; ++i)
        p = __builtin_fmaf(p, f, Exp2Polynomial<float>::kCoefficients[i]);
      const std::uint32_t exponent = std::bit_cast<std::uint32_t>(rounded);
      all_ |= exponent;
      weights[j] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(p) + (exponent << 23));
    }
    for (int i = 0; i < 16; ++i) sums[i] = weights[i] + weights[16 + i];
    parts_.split(weights, weights + 16, to, stride);
  }

 private:
  float factor_;
  Bf16Split<kParts> parts_;
  std::uint32_t all_ = 0;
};

#undef SACCADE_UNWATCHED

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
