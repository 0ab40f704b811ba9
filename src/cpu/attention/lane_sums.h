// Sums over keys or columns, kept in the lanes of vectors until the sum is complete.
#pragma once

#include "cpu/policy/block_sizes.h"
#include "cpu/simd/math.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// The lanes of a sum, and its vectors. AMX has 16 lanes whatever the vector width, so that the instructions and
/// their twin have the same bits.
inline constexpr int kSumLanes = kAmx ? 16 : kWidth, kSumVectors = kSumLanes / kWidth;

/// A sum in registers.
class LaneSum {
 public:
  SACCADE_INLINE LaneSum() {
    SACCADE_UNROLL
    for (int v = 0; v < kSumVectors; ++v) sums_[v] = zero();
  }

  /// Adds the products of kWidth numbers from `index` on, a multiple of kWidth.
  SACCADE_INLINE void add(std::int64_t index, Vec a, Vec b) {
    Vec& sum = sums_[index / kWidth % kSumVectors];
    sum = fma(a, b, sum);
  }
  /// Lanes from kWidth * vector on.
  SACCADE_INLINE Vec lanes(int vector) const { return sums_[vector]; }

  SACCADE_INLINE Scalar total() const {
    Vec sum = sums_[0];
    for (int v = 1; v < kSumVectors; ++v) sum = SACCADE_ISA_NAMESPACE::add(sum, sums_[v]);
    return reduce_add(sum);
  }

 private:
  // reduce_add() begins by adding the halves of a vector, so two vectors give the bits of one that is twice as
  // long.
  static_assert(kSumVectors <= 2);

  Vec sums_[kSumVectors];
};

/// The total of a sum in memory, in the same order.
SACCADE_INLINE Scalar total_of_lanes(const Scalar* lanes) {
  Vec sum = load(lanes);
  for (int v = 1; v < kSumVectors; ++v) sum = add(sum, load(lanes + v * kWidth));
  return reduce_add(sum);
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
