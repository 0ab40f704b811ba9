// Loops that only multiply-add or only read, as fast as the instruction set allows.
#pragma once

#include "cpu/attention/tile.h"
#include "cpu/policy/block_sizes.h"
#include "cpu/simd/math.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// Enough independent chains to cover the latency of a multiply-add (4 clocks, two a clock).
inline constexpr int kChains = 12;
inline constexpr std::int64_t kChainFlops = 2 * kChains * kWidth;

/// Whether a chain is the sum of its multiply-adds. NEON's instruction overwrites the number that it adds to, so a
/// chain of products would need a copy of the addend each time. In plain C++ the product would be computed only
/// once.
#ifdef SACCADE_ARM64
inline constexpr bool kChainsAreSums = kWidth > 1;
#else
inline constexpr bool kChainsAreSums = false;
#endif

/// `steps` multiply-adds on each of kChains vectors.
inline float multiply_add_chains(std::int64_t steps) {
  Vec chain[kChains];
  const Vec factor = broadcast(0.999f), term = broadcast(0.001f);
  SACCADE_UNROLL
  for (int i = 0; i < kChains; ++i) chain[i] = broadcast(static_cast<float>(i + 2));  // 1 stays 1: Clang sees it
  for (std::int64_t step = 0; step < steps; ++step) {
    SACCADE_UNROLL
    for (int i = 0; i < kChains; ++i)
      chain[i] = kChainsAreSums ? fma(factor, term, chain[i]) : fma(chain[i], factor, term);
  }
  Vec sum = zero();
  SACCADE_UNROLL
  for (int i = 0; i < kChains; ++i) sum = add(sum, chain[i]);
  return reduce_add(sum);
}

#ifdef SACCADE_BF16_PRODUCT
inline constexpr std::int64_t kBf16ChainFlops = 2 * kChainFlops;

/// The same with products of bf16 pairs.
inline float bf16_pair_chains(std::int64_t steps) {
  Vec chain[kChains];
  const Vec ones = round_to_pairs(broadcast(0.999f), broadcast(0.999f));
  SACCADE_UNROLL
  for (int i = 0; i < kChains; ++i) chain[i] = broadcast(static_cast<float>(i));
  for (std::int64_t step = 0; step < steps; ++step) {
    SACCADE_UNROLL
    for (int i = 0; i < kChains; ++i) chain[i] = pair_fma(ones, ones, chain[i]);
  }
  Vec sum = zero();
  SACCADE_UNROLL
  for (int i = 0; i < kChains; ++i) sum = add(sum, chain[i]);
  return reduce_add(sum);
}
#endif

/// Adds up `floats` floats, a multiple of 1024.
inline float read_all(const float* data, std::int64_t floats) {
  Vec sums[8];
  SACCADE_UNROLL
  for (int i = 0; i < 8; ++i) sums[i] = zero();
  for (std::int64_t j = 0; j < floats; j += 8 * kWidth) {
    SACCADE_UNROLL
    for (int i = 0; i < 8; ++i) sums[i] = add(sums[i], load(data + j + i * kWidth));
  }
  Vec sum = zero();
  SACCADE_UNROLL
  for (int i = 0; i < 8; ++i) sum = add(sum, sums[i]);
  return reduce_add(sum);
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
