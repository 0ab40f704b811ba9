// Dropout by position: Philox4x32-10 (Salmon et al., SC'11), one evaluation for four vectors of sixteen columns.
#pragma once

#include "cpu/block_sizes.h"
#include "cpu/math.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// Which weights of a call are kept; the same numbers as dropout_keeps in random.h.
struct Dropout {
  std::uint64_t seed;
  std::uint32_t offset;
  std::uint64_t threshold;  // a word below it drops

  explicit Dropout(const AttentionParams& params)
      : seed(params.dropout_seed),
        offset(params.dropout_offset),
        threshold(static_cast<std::uint64_t>(std::ceil(params.dropout_p * 4294967296.0))) {}

  /// Sets the dropped ones of values[begin, end) to 0: columns `first_key` + begin and on; first_key is a multiple
  /// of 64.
  template <class T>
  void apply(T* values, int begin, int end, std::uint32_t batch_head, std::uint32_t row,
             std::int64_t first_key) const {
    alignas(64) std::uint32_t words[4][16];
    for (int group = begin / 64 * 64; group < end; group += 64) {
      draw(batch_head, row, static_cast<std::uint32_t>((first_key + group) / 64 * 16), words);
      for (int j = std::max(group, begin); j < std::min(group + 64, end); ++j)
        if (words[(j - group) / 16][j % 16] < threshold) values[j] = T{};
    }
  }

 private:
  /// words[w][lane]: word w of the counter (offset, batch_head, row, first + lane).
  void draw(std::uint32_t batch_head, std::uint32_t row, std::uint32_t first,
            std::uint32_t (&words)[4][16]) const {
    for (int lane = 0; lane < 16; ++lane) {
      words[0][lane] = offset;
      words[1][lane] = batch_head;
      words[2][lane] = row;
      words[3][lane] = first + static_cast<std::uint32_t>(lane);
    }
    std::uint32_t key0 = static_cast<std::uint32_t>(seed), key1 = static_cast<std::uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round, key0 += 0x9E3779B9u, key1 += 0xBB67AE85u) {
      for (int lane = 0; lane < 16; ++lane) {
        const std::uint64_t a = std::uint64_t{0xD2511F53u} * words[0][lane];
        const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * words[2][lane];
        words[0][lane] = static_cast<std::uint32_t>(b >> 32) ^ words[1][lane] ^ key0;
        words[2][lane] = static_cast<std::uint32_t>(a >> 32) ^ words[3][lane] ^ key1;
        words[1][lane] = static_cast<std::uint32_t>(b);
        words[3][lane] = static_cast<std::uint32_t>(a);
      }
    }
  }
};

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
