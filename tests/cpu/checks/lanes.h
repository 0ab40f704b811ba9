// Sums of 128-bit lanes, for vectors that have several.
#pragma once

#include "cpu/checks/moves.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// Sums of adjacent lanes, first those of a, then those of b.
inline void check_add_lanes(Findings& findings) {
  constexpr int kLanes = kWidth / kLaneNumbers;
  Lanes a, b, found, expected;
  for (int round = 0; round < kRounds; ++round) {
    findings.draw(a.x, kWidth);
    findings.draw(b.x, kWidth);
    for (int i = 0; i < kWidth; ++i) {
      const int lane = i / kLaneNumbers, at = lane % (kLanes / 2) * 2 * kLaneNumbers + i % kLaneNumbers;
      const Scalar* const from = lane < kLanes / 2 ? a.x : b.x;
      expected.x[i] = Lane::add(from[at], from[at + kLaneNumbers]);
    }
    store(found.x, add_lanes(load(a.x), load(b.x)));
    findings.equal(found.x, expected.x, kWidth);
  }
}

inline constexpr test::Check kLaneChecks[] = {{"add_lanes", check_add_lanes}};

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
