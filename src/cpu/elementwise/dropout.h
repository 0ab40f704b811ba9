// Dropout by position: Philox4x32-10 (Salmon et al., SC'11). One counter serves four columns, 16 apart.
#pragma once

#include "cpu/policy/block_sizes.h"
#include "cpu/simd/math.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// Vectors of counters drawn together, to hide the latency of a round's products. 64 columns take 72 clocks with
/// AVX-512 instead of 87 with two vectors, 106 instead of 114 with AVX2 (Zen 4).
inline constexpr int kDrawnVectors = 4;

/// Philox for the counters of one row of weights, which differ only in the last of their four words. Most of the
/// first three rounds is the same for all counters and done once. The four words after a round are numbered 0 to
/// 3.
class PhiloxOfRow {
 public:
  PhiloxOfRow(std::uint64_t seed, std::uint32_t word0, std::uint32_t word1, std::uint32_t word2)
      : key_{lower(seed), upper(seed)} {
    const std::uint64_t a = kMultiplier0 * word0, b = kMultiplier1 * word2;
    const std::uint64_t c = kMultiplier0 * (upper(b) ^ word1 ^ key0(0));
    const std::uint64_t d = kMultiplier1 * (upper(c) ^ lower(a) ^ key1(1));
    before_second_ = {lower(b) ^ key0(1), upper(a) ^ key1(0)};
    before_third_ = {upper(d) ^ key0(2), lower(d), lower(c) ^ key1(2)};
  }

  /// words[i][0] holds the last words of counters; words[i] receives the four words drawn for each.
  SACCADE_INLINE void draw(Words (&words)[kDrawnVectors][4]) const {
    const Words multiplier0 = broadcast_word(kMultiplier0), multiplier1 = broadcast_word(kMultiplier1);
    SACCADE_UNROLL
    for (int i = 0; i < kDrawnVectors; ++i) {
      Words(&w)[4] = words[i];
      const Words second = multiply_words(multiplier1, exclusive_or(w[0], broadcast_word(before_second_[1])));
      w[3] = multiply_words(multiplier0, exclusive_or(upper_halves(second), broadcast_word(before_second_[0])));
      w[0] = exclusive_or(second, broadcast_word(before_third_[0]));
      w[1] = broadcast_word(before_third_[1]);
      w[2] = exclusive_or(upper_halves(w[3]), broadcast_word(before_third_[2]));
    }
    SACCADE_UNROLL
    for (int round = 3; round < 10; ++round) {
      SACCADE_UNROLL
      for (int i = 0; i < kDrawnVectors; ++i) {
        Words(&w)[4] = words[i];
        const Words product0 = multiply_words(multiplier0, w[0]), product1 = multiply_words(multiplier1, w[2]);
        w[0] = exclusive_or(upper_halves(product1), w[1], broadcast_word(key0(round)));
        w[2] = exclusive_or(upper_halves(product0), w[3], broadcast_word(key1(round)));
        w[1] = product1;
        w[3] = product0;
      }
    }
  }

 private:
  static constexpr std::uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;

  static std::uint32_t upper(std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); }
  static std::uint32_t lower(std::uint64_t x) { return static_cast<std::uint32_t>(x); }
  SACCADE_INLINE std::uint32_t key0(int round) const {
    return key_[0] + static_cast<std::uint32_t>(round) * 0x9E3779B9u;
  }
  SACCADE_INLINE std::uint32_t key1(int round) const {
    return key_[1] + static_cast<std::uint32_t>(round) * 0xBB67AE85u;
  }

  std::array<std::uint32_t, 2> key_, before_second_;
  std::array<std::uint32_t, 3> before_third_;
};

/// Which weights of a call are kept; the same numbers as dropout_keeps in random.h.
struct Dropout {
  std::uint64_t seed;
  std::uint32_t offset;
  std::uint32_t most;           // a word up to it drops the weight; unused if p is 0
  std::int64_t key_origin = 0;  // the number of column 0, a multiple of 64

  Dropout(double p, std::uint64_t seed_of_call, std::uint32_t offset_of_call)
      : seed(seed_of_call),
        offset(offset_of_call),
        most(static_cast<std::uint32_t>(static_cast<std::uint64_t>(std::ceil(p * 4294967296.0)) - 1)) {}
  explicit Dropout(const AttentionParams& params)
      : Dropout(params.dropout_p, params.dropout_seed, params.dropout_offset) {
    key_origin = params.origin.key;
  }

  /// Sets the dropped ones of values[begin, end) to 0; these are the columns from `first_key` + begin on, with
  /// first_key a multiple of 64. The memory must begin and end at multiples of 128, because dropout also applies
  /// to the numbers around the values.
  template <class T>
  void apply(T* values, int begin, int end, std::uint32_t batch_head, std::uint32_t row,
             std::int64_t first_key) const {
    const PhiloxOfRow philox(seed, offset, batch_head, row);
    for (int column = begin / 128 * 128; column < end; column += 128) {
      const auto counter = static_cast<std::uint32_t>((key_origin + first_key + column) / 64 * 16);
      for (int drawn = 0; drawn < 32; drawn += kDrawnVectors * kWords) {
        Words words[kDrawnVectors][4];
        SACCADE_UNROLL
        for (int i = 0; i < kDrawnVectors; i += 2) {
          const std::uint32_t first = counter + static_cast<std::uint32_t>(drawn + i * kWords);
          words[i][0] = every_second_word(first);
          words[i + 1][0] = every_second_word(first + 1);
        }
        philox.draw(words);
        SACCADE_UNROLL
        for (int i = 0; i < kDrawnVectors; i += 2) {
          const int first = drawn + i * kWords;
          T* const to = values + column + first / 16 * 64 + first % 16;
          SACCADE_UNROLL
          for (int w = 0; w < 4; ++w) keep_above(to + 16 * w, words[i][w], words[i + 1][w], most);
        }
      }
    }
  }
};

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
