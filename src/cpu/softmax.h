// Online softmax (Milakov and Gimelshein, arXiv:1805.02867) in base 2: per row the running maximum m and the
// sum l of 2^(s - m), and what each new block of keys does to them.
#pragma once

#include "cpu/block_sizes.h"
#include "cpu/math.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// m before a row has seen a key: finite, so that no difference of maxima is NaN.
inline constexpr float kNoMaximum = std::numeric_limits<float>::lowest();

/// Rows of a tile as whole vectors.
inline constexpr int kTileRowsPadded = (kTileRows + kWidth - 1) / kWidth * kWidth;

/// The state of one tile's rows. l is kept a sum for each lane, added up when the row ends.
struct RowState {
  alignas(64) float m[kTileRowsPadded];
  alignas(64) float l[kTileRows * kWidth];

  void reset() {
    for (float& x : m) x = kNoMaximum;
    for (float& x : l) x = 0.0f;
  }

  /// Raises m to the row maxima of a block ([kTileRows][kWidth], a maximum a lane), scales l down to it, and
  /// leaves in alpha[kTileRowsPadded] the factor by which whatever was accumulated before shrinks.
  void raise(const float* row_max, float* alpha) {
    alignas(64) float largest[kTileRowsPadded] = {};
    SACCADE_UNROLL
    for (int i = 0; i < kTileRows; ++i) largest[i] = reduce_max(load(row_max + i * kWidth));
    for (int i = 0; i < kTileRowsPadded; i += kWidth) {
      const Vec before = load(m + i), after = max(before, load(largest + i));
      store(alpha + i, exp2(sub(before, after)));
      store(m + i, after);
    }
    SACCADE_UNROLL
    for (int i = 0; i < kTileRows; ++i) store(l + i * kWidth, mul(broadcast(alpha[i]), load(l + i * kWidth)));
  }

  float sum(int row) const { return reduce_add(load(l + row * kWidth)); }
};

/// A finished row: what its accumulated output is multiplied by, and its log-sum-exp (natural logarithm).
struct RowResult {
  float scale, lse;
};

/// `sink` is one more logit in the denominator, -inf for none.
inline RowResult finish_row(float m, float l, float sink) {
  if (l == 0.0f) return {0.0f, sink};
  if (sink == -kInfinity) return {1.0f / l, m * kLn2 + std::log(l)};
  const float sink2 = sink * kLog2E, top = std::max(m, sink2);
  const float shrink = std::exp2(m - top), total = l * shrink + std::exp2(sink2 - top);
  return {shrink / total, top * kLn2 + std::log(total)};
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
