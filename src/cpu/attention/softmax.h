// Online softmax (Milakov and Gimelshein, arXiv:1805.02867): per row the running maximum m and the sum l of 2^((s
// - m) * factor), and their update for each new block of keys. The factor converts scores from their unit to base
// 2.
#pragma once

#include "cpu/attention/lane_sums.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// m before a row has seen a key: finite, so that no difference of maxima is NaN.
inline constexpr Scalar kNoMaximum = std::numeric_limits<Scalar>::lowest();

/// Rows of a tile as whole vectors.
inline constexpr int kTileRowsPadded = (kTileRows + kWidth - 1) / kWidth * kWidth;

/// Whether the chain of additions of a sum ends with a block of keys. The chains of several lanes are short
/// enough; a single one, as long as the row, made lse wrong by 1.6e-3 for 262,144 keys with close scores.
inline constexpr bool kEndsSumChains = kSumLanes == 1;

/// The state of one tile's rows. l has kSumLanes sums of each, added up when the row ends; with kEndsSumChains
/// those of one block, and `earlier` what came before it.
struct RowState {
  alignas(Vec) Scalar m[kTileRowsPadded];
  alignas(Vec) Scalar l[kTileRows * kSumLanes];
  Scalar earlier[kEndsSumChains ? kTileRows : 1];

  void reset() {
    for (Scalar& x : m) x = kNoMaximum;
    for (Scalar& x : l) x = 0;
    for (Scalar& x : earlier) x = 0;
  }

  /// Raises m to the row maxima of a block ([kTileRows][kWidth], one maximum per lane), scales l to the new m, and
  /// writes the factor for earlier accumulated output to alpha[kTileRowsPadded].
  void raise(const Scalar* row_max, Scalar factor, Scalar* alpha) {
    alignas(64) Scalar largest[kTileRowsPadded] = {};
    row_maxima<kTileRows>(row_max, largest);
    for (int i = 0; i < kTileRowsPadded; i += kWidth) {
      const Vec before = load(m + i), after = max(before, load(largest + i));
      store(alpha + i, exp2(mul(sub(before, after), broadcast(factor))));
      store(m + i, after);
    }
    if constexpr (kEndsSumChains) {
      for (int i = 0; i < kTileRows; ++i) {
        earlier[i] = alpha[i] * sum(i);
        l[i] = 0;
      }
    } else {
      SACCADE_UNROLL
      for (int i = 0; i < kTileRows * kSumVectors; ++i)
        store(l + i * kWidth, mul(broadcast_from(alpha + i / kSumVectors), load(l + i * kWidth)));
    }
  }

  Scalar sum(int row) const {
    if constexpr (kEndsSumChains) return earlier[row] + l[row];
    return total_of_lanes(l + row * kSumLanes);
  }
  /// sum() of every row, in sums[kTileRowsPadded].
  void sums_of_rows(Scalar* sums) const {
    if constexpr (!kEndsSumChains && kSumVectors == 1) return row_sums<kTileRows>(l, sums);
    for (int i = 0; i < kTileRows; ++i) sums[i] = sum(i);
  }

  /// Copies what the sum of a row will be continued with, to lanes[kSumLanes].
  void keep_sum(int row, Scalar* lanes) const {
    if constexpr (kEndsSumChains)
      *lanes = sum(row);
    else
      std::copy_n(l + row * kSumLanes, kSumLanes, lanes);
  }
  /// Continues the sum of a row, of which `lanes` was kept.
  void continue_sum(int row, const Scalar* lanes) {
    if constexpr (kEndsSumChains) earlier[row] = 0;
    std::copy_n(lanes, kSumLanes, l + row * kSumLanes);
  }
};

/// A finished row: the factor of its accumulated output, and its log-sum-exp (natural logarithm) as a maximum and
/// a sum, because most calls do not need the logarithm.
struct RowResult {
  Scalar scale, maximum, sum;

  /// Rounded once.
  Scalar lse() const {
    return static_cast<Scalar>(static_cast<double>(maximum) + std::log(static_cast<double>(sum)));
  }
};

/// m is in natural units. `sink` is one more logit in the denominator, -inf for none.
inline RowResult finish_row(Scalar m, Scalar l, Scalar sink) {
  if (l == 0) return {0, sink, 1};
  if (sink == -kInfinity) return {1 / l, m, l};
  const Scalar top = std::max(m, sink);
  const Scalar shrink = std::exp(m - top), total = l * shrink + std::exp(sink - top);
  return {shrink / total, top, total};
}

/// The scale of finish_row() for an m that is not rounded.
inline Scalar scale_of_row(double m, double l, double sink) {
  if (l == 0.0) return 0;
  if (sink == -std::numeric_limits<double>::infinity()) return static_cast<Scalar>(1.0 / l);
  const double top = std::max(m, sink), shrink = std::exp(m - top);
  return static_cast<Scalar>(shrink / (l * shrink + std::exp(sink - top)));
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
