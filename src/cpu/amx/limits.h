// The peak of products on AMX tiles.
#pragma once

#include "cpu/policy/block_sizes.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

inline constexpr std::int64_t kTileChainFlops = 4 * 2 * 16 * 16 * 32;

/// Four chains of products: a product has a latency of 52 clocks, and one starts every 16 (Sapphire Rapids).
inline float tile_chains(std::int64_t steps) {
  Tiles tiles;
  for (std::int64_t step = 0; step < steps; ++step) {
    tiles.multiply<0, 4, 6>();
    tiles.multiply<1, 4, 7>();
    tiles.multiply<2, 5, 6>();
    tiles.multiply<3, 5, 7>();
  }
  alignas(64) float sums[256];
  tiles.store<0>(sums, 64);
  return sums[0];
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
