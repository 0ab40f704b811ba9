// Folds the weights of a few rows into statistics of rows and keys while they are in registers; and finds the best
// keys of a row.
#pragma once

#include "cpu/attention/lane_sums.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

// ---- A few rows of a tile ------------------------------------------------------------------------------------

/// The statistics of one tile's rows so far; sums over keys have kSumLanes parts, with their
/// rounding errors.
struct RowStatistics {
  // w = exp2((s - maximum) * factor + shift).
  Scalar maximum[kTileRows], shift[kTileRows];
  alignas(64) Scalar entropy[kTileRows * kSumLanes], entropy_rest[kTileRows * kSumLanes];
  alignas(64) Scalar distance[kTileRows * kSumLanes], distance_rest[kTileRows * kSumLanes];
  alignas(64) Scalar largest[kTileRows * kWidth];  // of each lane
  Scalar worst[kTileRows];                         // a larger weight enters the best keys of the row
  unsigned is_nan;                                 // one bit per row

  void reset(bool gathers_best) {
    std::memset(this, 0, sizeof *this);
    for (Scalar& x : worst) x = gathers_best ? 0 : kInfinity;
  }

  void set_denominator(int row, Scalar m, Scalar log_l) {
    const bool is_finite = m - m == 0 && log_l - log_l == 0;
    if (!is_finite) is_nan |= 1u << row;
    maximum[row] = is_finite ? m : 0;
    shift[row] = is_finite ? -log_l : 0;
  }
};

/// Where a column's score of row 0 lies in [kFoldColumns / kBlockK][kTileRows][kBlockK].
constexpr int place_of_score(int column) {
  return kFoldColumns == kBlockK ? column : column / kBlockK * (kTileRows * kBlockK) + column % kBlockK;
}

/// Adjacent rows of a tile and columns [begin, end) of a step; every pointer is at the first row's numbers.
struct FoldStep {
  int begin, end;
  const Scalar* scores;    // [rows][kBlockK], from block to block as place_of_score()
  Scalar* weights;         // [rows][kFoldColumns], written
  const Scalar* position;  // [rows], minus the step's first key
  Scalar factor;           // from scores to base 2
  Scalar* column_sum;      // [kFoldColumns], added to
  Scalar* column_max;      // [kFoldColumns], raised
  RowStatistics& rows;
  int first_row;
};

/// sum += value, with the rounding error carried in `rest` (Kahan, doi:10.1145/363707.363723).
SACCADE_INLINE void add_compensated(Scalar* sum, Scalar* rest, const LaneSum& value) {
  SACCADE_UNROLL
  for (int v = 0; v < kSumVectors; ++v, sum += kWidth, rest += kWidth) {
    const Vec before = load(sum), wanted = sub(value.lanes(v), load(rest)), after = add(before, wanted);
    store(rest, sub(sub(after, before), wanted));
    store(sum, after);
  }
}

/// Turns scores into weights and folds them into all statistics over keys or rows, requested or not: seven
/// instructions, compared with head_dim multiplications for each score. Returns a bit for each row with a weight
/// above `worst`. A vector is a dependency chain of some 50 clocks, so each step is done for all rows before the
/// next: 0.96 of the time (Zen 5).
template <int kRows, bool kColumnMax>
__attribute__((noinline)) unsigned fold_rows(const FoldStep& step) {
  const Scalar* const maximum = step.rows.maximum + step.first_row;
  const Scalar* const shift = step.rows.shift + step.first_row;
  const Vec factor = broadcast(step.factor);
  LaneSum entropy[kRows], distance[kRows];
  Vec largest[kRows];
  SACCADE_UNROLL
  for (int i = 0; i < kRows; ++i) largest[i] = zero();
  for (int j = step.begin; j < step.end; j += kWidth) {
    const Vec key = add(lane_index(), broadcast(static_cast<Scalar>(j)));
    Vec sum = load(step.column_sum + j), top = zero();
    Vec log_w[kRows], w[kRows];
    Exp2 exp[kRows];
    SACCADE_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const Vec below = sub(load(step.scores + i * kBlockK + place_of_score(j)), broadcast_from(maximum + i));
      // Bounded, so that a weight of 0 is not multiplied by an infinite logarithm. This order of operands passes a
      // NaN.
      log_w[i] = max(broadcast(kExp2Lowest), fma(below, factor, broadcast_from(shift + i)));
      exp[i] = exp2_begin_bounded(log_w[i]);
    }
    SACCADE_UNROLL
    for (int i = 0; i < kRows; ++i) w[i] = exp2_end(exp[i]);
    SACCADE_UNROLL
    for (int i = 0; i < kRows; ++i) {
      store(step.weights + i * kFoldColumns + j, w[i]);
      entropy[i].add(j, w[i], log_w[i]);
      distance[i].add(j, w[i], abs(sub(broadcast_from(step.position + i), key)));
      largest[i] = max(largest[i], w[i]);
      sum = add(sum, w[i]);
      if constexpr (kColumnMax) top = max(top, w[i]);
    }
    store(step.column_sum + j, sum);
    if constexpr (kColumnMax) store(step.column_max + j, max(load(step.column_max + j), top));
  }
  unsigned better = 0;
  SACCADE_UNROLL
  for (int i = 0; i < kRows; ++i) {
    const int row = step.first_row + i, sum = row * kSumLanes;
    add_compensated(step.rows.entropy + sum, step.rows.entropy_rest + sum, entropy[i]);
    add_compensated(step.rows.distance + sum, step.rows.distance_rest + sum, distance[i]);
    Scalar* const lanes = step.rows.largest + row * kWidth;
    store(lanes, max(load(lanes), largest[i]));
    if (any(less(broadcast(step.rows.worst[row]), largest[i]))) better |= 1u << row;
  }
  return better;
}

/// Rows that fold_rows handles together: their accumulators leave registers for the exponentials.
inline constexpr int kFoldRows = kRegisters == 32 ? 4 : 2;

template <bool kColumnMax, int kRows = kFoldRows>
SACCADE_INLINE unsigned fold_some_rows(int rows, const FoldStep& step) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return fold_some_rows<kColumnMax, kRows - 1>(rows, step);
  }
  return fold_rows<kRows, kColumnMax>(step);
}

// ---- The best keys of a row ----------------------------------------------------------------------------------

/// A key of a row and its weight as one number; better keys have larger numbers. Of equal weights the lower key is
/// better. With a weight of 32 bits, keys have 32 bits: with 128 bits for both, all statistics took 6% longer for
/// the best eight of 4096 keys (Zen 5).
using RankedKey = std::conditional_t<kIsDouble, unsigned __int128, std::uint64_t>;
using HalfOfRank = std::conditional_t<kIsDouble, std::uint64_t, std::uint32_t>;
inline constexpr int kRankBits = 8 * sizeof(HalfOfRank);

inline RankedKey ranked(Scalar weight, std::int64_t key) {
  return RankedKey{std::bit_cast<HalfOfRank>(weight)} << kRankBits | static_cast<HalfOfRank>(~key);
}
inline Scalar weight_of(RankedKey ranked) {
  return std::bit_cast<Scalar>(static_cast<HalfOfRank>(ranked >> kRankBits));
}
inline std::int64_t key_of(RankedKey ranked) {
  return static_cast<std::int64_t>(static_cast<HalfOfRank>(~ranked));
}

/// The best kCount keys, best first, with zeros where there are fewer: a copy that stays in registers while keys
/// are added.
template <int kCount>
struct SortedKeys {
  RankedKey keys[kCount];

  /// Inserts without a branch that depends on weights.
  SACCADE_INLINE void insert(RankedKey key) {
    SACCADE_UNROLL
    for (int i = kCount - 1; i > 0; --i) {
      const RankedKey smaller = keys[i - 1] < key ? keys[i - 1] : key;
      keys[i] = keys[i] < smaller ? smaller : keys[i];
    }
    keys[0] = keys[0] < key ? key : keys[0];
  }
};

/// The columns of a key block with a weight above `bound`, in ascending order. All are found before the first is
/// added to the best keys, and without a branch for each: such branches cannot be predicted. They took 4% of all
/// statistics, more than the few keys that a rising bound would have left out (Zen 5).
class ColumnsAbove {
 public:
  ColumnsAbove(const Scalar* weights, int begin, int end, Scalar bound) {
    for (int first = begin / kWord * kWord; first < end; first += kWord) {
      std::uint64_t above = 0;
      SACCADE_UNROLL
      for (int j = 0; j < kWord; j += kWidth)
        above |= std::uint64_t{bits(less(broadcast(bound), load(weights + first + j)))} << j;
      if (first < begin) above &= ~std::uint64_t{0} << (begin - first);
      if (end < first + kWord) above &= ~(~std::uint64_t{0} << (end - first));
      words_[first / kWord] = above;
      some_ |= unsigned{above != 0} << first / kWord;
    }
  }

  bool empty() const { return some_ == 0; }

  int take() {
    const int i = std::countr_zero(some_);
    const std::uint64_t word = std::exchange(words_[i], words_[i] & (words_[i] - 1));
    some_ &= ~(unsigned{words_[i] == 0} << i);
    return i * kWord + std::countr_zero(word);
  }

 private:
  static constexpr int kWord = std::min(64, kFoldColumns), kWords = kFoldColumns / kWord;
  std::uint64_t words_[kWords] = {};
  unsigned some_ = 0;  // a bit for each word that is not 0
};

/// The best k keys of a row, with zeros where there are fewer. A small k is kept sorted, best first, in slots for
/// 8 or 16; a large k is a heap with the worst key first. (Does not use the standard library's algorithms:
/// functions of this instruction set cannot be inlined into them.)
struct BestKeys {
  RankedKey* keys;  // [slots(k)]
  std::int64_t k;

  static std::int64_t slots(std::int64_t k) { return k == 0 || k > 16 ? k : k > 8 ? 16 : 8; }

  bool are_sorted() const { return k <= 16; }
  Scalar worst() const { return weight_of(keys[are_sorted() ? k - 1 : 0]); }

  /// Adds the keys of some columns of the block at `first_key`.
  void merge(ColumnsAbove& columns, const Scalar* weights, std::int64_t first_key) {
    if (k <= 8) return merge_into<8>(columns, weights, first_key);
    if (are_sorted()) return merge_into<16>(columns, weights, first_key);
    while (!columns.empty()) {
      const int column = columns.take();
      if (weights[column] > worst()) sift_down(ranked(weights[column], first_key + column), k);
    }
  }

  /// Replaces the first of `n` keys of a heap by `key`.
  void sift_down(RankedKey key, std::int64_t n) {
    std::int64_t place = 0;
    for (std::int64_t child; (child = 2 * place + 1) < n; place = child) {
      child += child + 1 < n && keys[child + 1] < keys[child] ? 1 : 0;
      if (key <= keys[child]) break;
      keys[place] = keys[child];
    }
    keys[place] = key;
  }

  /// Sorts the keys, best first.
  void sort() {
    for (std::int64_t n = are_sorted() ? 0 : k - 1; n > 0; --n) {
      const RankedKey last = keys[n];
      keys[n] = keys[0];
      sift_down(last, n);
    }
  }

  /// A weight must be larger than this to be among the best k of a row, where `largest` holds the largest weight
  /// of each lane.
  static Scalar bound(const Scalar* largest, std::int64_t k) {
    if (k > kWidth) return 0;
    const Vec lanes = load(largest);
    Vec larger = zero();  // how many lanes are larger than this one
    SACCADE_UNROLL
    for (int lane = 0; lane < kWidth; ++lane)
      larger = add(larger, select(less(lanes, broadcast_from(largest + lane)), broadcast(1), zero()));
    // The k-th largest is the smallest weight that has fewer than k larger ones.
    const Vec among = select(less(larger, broadcast(static_cast<Scalar>(k))), lanes, broadcast(kInfinity));
    const Scalar bound = -reduce_max(sub(zero(), among));
    return bound * (1 - std::numeric_limits<Scalar>::epsilon());  // the bound itself may be among the best
  }

 private:
  template <int kCount>
  void merge_into(ColumnsAbove& columns, const Scalar* weights, std::int64_t first_key) {
    SortedKeys<kCount> best;
    SACCADE_UNROLL
    for (int i = 0; i < kCount; ++i) best.keys[i] = keys[i];
    while (!columns.empty()) {
      const int column = columns.take();
      best.insert(ranked(weights[column], first_key + column));
    }
    SACCADE_UNROLL
    for (int i = 0; i < kCount; ++i) keys[i] = best.keys[i];
  }
};

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
