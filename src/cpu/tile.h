// Products of tiles: S = Q K^T on packed queries and keys, O += P V on values in place or packed.
#pragma once

#include "cpu/packing.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

// ---- Scores --------------------------------------------------------------------------------------------------

/// Pending work on the scores of an earlier tile. It is interleaved with the multiplications of the next tile,
/// because it uses other units of the processor. A type of pending work has from(column), the same work from a
/// column of the block on, and Row<kVectors>, which does one row of kVectors vectors in two halves.
struct NothingPending {
  NothingPending from(int) const { return {}; }
  template <int>
  struct Row {
    void begin(const NothingPending&, int) {}
    void end(const NothingPending&, int) {}
  };
};

/// Pending exponentials: row i of the columns at `scores` becomes exp2((score - maximum[i]) * factor). Without
/// kScaled the factor is 1 and left out.
template <bool kScaled>
struct PendingExp {
  const Scalar* scores = nullptr;   // [kTileRows][kBlockK]
  Scalar* probabilities = nullptr;  // [kTileRows][kBlockK], may be `scores`; bf16 pairs fill half of each row
  const Scalar* maximum = nullptr;  // [kTileRows]
  Scalar* row_sum = nullptr;        // [kTileRows][kWidth], added to
  const Scalar* factor = nullptr;

  SACCADE_INLINE PendingExp from(int column) const {
    return {scores + column, probabilities + column / kStepNumbers, maximum, row_sum, factor};
  }

  template <int kVectors>
  struct Row {
    Exp2 exp[kVectors];

    SACCADE_INLINE void begin(const PendingExp& work, int row) {
      SACCADE_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        Vec x = sub(load(work.scores + row * kBlockK + v * kWidth), broadcast_from(work.maximum + row));
        if constexpr (kScaled) x = mul(x, broadcast_from(work.factor));
        exp[v] = exp2_begin(x);
      }
    }
    SACCADE_INLINE void end(const PendingExp& work, int row) {
      Vec sum = load(work.row_sum + row * kWidth);
      Vec p[kVectors];
      SACCADE_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        p[v] = exp2_end(exp[v]);
        sum = add(sum, p[v]);
      }
      if constexpr (kPairs) {
        static_assert(kVectors % 2 == 0);
        SACCADE_UNROLL
        for (int v = 0; v < kVectors; v += 2)
          store(work.probabilities + row * kBlockK + v / 2 * kWidth, round_to_pairs(p[v], p[v + 1]));
      } else {
        SACCADE_UNROLL
        for (int v = 0; v < kVectors; ++v) store(work.probabilities + row * kBlockK + v * kWidth, p[v]);
      }
      store(work.row_sum + row * kWidth, sum);
    }
  };
};

/// Calls f(kScaled), where kScaled is a compile-time constant.
template <class F>
SACCADE_INLINE void with_scaling(Scalar factor, F f) {
  if (!kPairs && factor == 1) return f(std::false_type{});
  return f(std::true_type{});
}

/// Does the columns of a granule. Four vectors at a time, because each is a chain of dependent operations: 1.6% of
/// a forward (head_dim 64, AVX2, Zen 4).
template <class Pending>
void finish_granule(const Pending& work) {
  constexpr int kVectors = std::min(kGranule / kWidth, 4);
  for (int row = 0; row < kTileRows; ++row) {
    for (int column = 0; column < kGranule; column += kVectors * kWidth) {
      typename Pending::template Row<kVectors> pending;
      pending.begin(work.from(column), row);
      pending.end(work.from(column), row);
    }
  }
}

/// Whether score_tiles has enough registers to hide exponentials behind its multiplications.
inline constexpr bool kCanOverlap = kRegisters == 32;

/// Calls f(n), where the compile-time constant n is `rows` rounded up to a third, two thirds or all of kTileRows.
/// Only the last tile of a head has empty rows: at 128 rows they were 3% of the work, at one row nearly all of it.
template <class F>
SACCADE_INLINE void with_rows(int rows, F f) {
  constexpr int kFew = kTileRows / 3, kMost = 2 * kTileRows / 3;
  if (rows > kMost) return f(std::integral_constant<int, kTileRows>{});
  if (rows > kFew) return f(std::integral_constant<int, kMost>{});
  return f(std::integral_constant<int, kFew>{});
}

/// The column of a key block at which tile i of its `granules` begins.
inline constexpr int kTilesOfAGranule = kGranule / kTileColumns;
SACCADE_INLINE int column_of(const int* granules, int i) {
  return granules[i / kTilesOfAGranule] * kGranule + i % kTilesOfAGranule * kTileColumns;
}

/// The scores of a key block that a tile of query rows computes.
struct ScoreWork {
  const Scalar* queries = nullptr;  // packed
  const Scalar* keys = nullptr;     // packed, of the whole block
  std::int64_t steps = 0;
  const int* granules = nullptr;
  unsigned partial = 0;       // bit n: the scores of granules[n] change later, so row_max ignores them
  Scalar* scores = nullptr;   // [rows][kBlockK]
  Scalar* row_max = nullptr;  // [rows][kWidth], raised; may be null
  RowsAhead ahead = {};       // kTileRows rows; each tile prefetches one line of each
};

/// Raises row `row` of row_max to the scores of tile i.
SACCADE_INLINE void raise_row_max(const ScoreWork& work, int i, int row) {
  if (work.partial >> (i / kTilesOfAGranule) & 1u) return;
  const Scalar* scores = work.scores + row * kBlockK + column_of(work.granules, i);
  Vec largest = load(work.row_max + row * kWidth);
  SACCADE_UNROLL
  for (int v = 0; v < kTileVectors; ++v) largest = max(largest, load(scores + v * kWidth));
  store(work.row_max + row * kWidth, largest);
}

/// Scores of tiles [begin, end) of the granules: queries * keys, interleaved with the pending work of as many
/// tiles of `pending_granules`. Each score is one chain of multiply-adds in order of d, whatever else is in the
/// tile.
///
/// A store that reads its register late takes the port through which a multiply-add reads its third operand: the
/// 36 stores at the end of a tile cost 57 multiply-adds. So the last step of a tile, its stores and the first step
/// of the next tile (plain products, with two operands) alternate, and the row maxima follow during the next tile:
/// this way the scores of a block take 12900 clocks instead of 13600, of which 12290 are multiply-adds (Zen 4,
/// head_dim 64).
template <int kRows, class Pending>
__attribute__((noinline)) void score_tiles(const ScoreWork& work, int begin, int end, const Pending& pending,
                                           const int* pending_granules) {
  constexpr bool kOverlap = !std::is_same_v<Pending, NothingPending>;
  const std::int64_t last_step = std::max<std::int64_t>(work.steps, 2) - 1, padded = padded_steps(work.steps);
  const std::int64_t steps_of_a_row = (std::min<std::int64_t>(last_step, kQueryChunk - 1) - 1) / kTileRows;
  const Scalar* q = work.queries;
  const Scalar* k = work.keys + column_of(work.granules, begin) * padded;
  Vec acc[kRows][kTileVectors];
  SACCADE_UNROLL
  for (int i = 0; i < kRows; ++i) {
    SACCADE_UNROLL
    for (int v = 0; v < kTileVectors; ++v)
      acc[i][v] = multiply(broadcast_from(q + i * kQueryStride), load(k + v * kWidth));
  }
  const auto step = [&]() __attribute__((always_inline)) {
    ++q;
    k += kTileColumns;
    Vec key[kTileVectors];
    SACCADE_UNROLL
    for (int v = 0; v < kTileVectors; ++v) key[v] = load(k + v * kWidth);
    SACCADE_UNROLL
    for (int i = 0; i < kRows; ++i) multiply_add_row(q + i * kQueryStride, key, acc[i]);
  };

  for (int tile = begin; tile < end; ++tile) {
    const Pending earlier = kOverlap ? pending.from(column_of(pending_granules, tile)) : pending;
    for (int row = 0; row < kTileRows; ++row) {
      work.ahead.fetch(row, tile);
      typename Pending::template Row<kTileVectors> half;
      half.begin(earlier, row);
      for (std::int64_t i = 0; i < steps_of_a_row; ++i) step();
      half.end(earlier, row);
      if (tile > begin && row < kRows && work.row_max) raise_row_max(work, tile - 1, row);
    }
    std::int64_t d = 1 + steps_of_a_row * kTileRows;
    for (std::int64_t chunk_end = kQueryChunk;; chunk_end += kQueryChunk) {
      for (const std::int64_t stop = std::min(last_step, chunk_end); d < stop; ++d) step();
      if (last_step < chunk_end) break;
      q += kTileRows * kQueryStride - kQueryChunk;
    }
    ++q;
    k += kTileColumns;
    Scalar* const scores = work.scores + column_of(work.granules, tile);
    const Scalar* const next =
        work.keys + (tile + 1 < end ? column_of(work.granules, tile + 1) * padded : std::int64_t{0});
    Vec last_key[kTileVectors], next_key[kTileVectors];
    SACCADE_UNROLL
    for (int v = 0; v < kTileVectors; ++v) {
      last_key[v] = load(k + v * kWidth);
      next_key[v] = load(next + v * kWidth);
    }
    SACCADE_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const Vec last = broadcast_from(q + i * kQueryStride),
                first = broadcast_from(work.queries + i * kQueryStride);
      SACCADE_UNROLL
      for (int v = 0; v < kTileVectors; ++v) {
        store(scores + i * kBlockK + v * kWidth, multiply_add(last, last_key[v], acc[i][v]));
        keep_order();
        acc[i][v] = multiply(first, next_key[v]);
        keep_order();
      }
    }
    q = work.queries;
    k = next;
  }
  for (int row = 0; row < (work.row_max ? kRows : 0); ++row) raise_row_max(work, end - 1, row);
}

/// score_tiles for the existing rows of a tile.
template <class Pending = NothingPending>
void score_tiles_of_rows(int rows, const ScoreWork& work, int begin, int end, const Pending& pending = {},
                         const int* pending_granules = nullptr) {
  with_rows(rows, [&](auto constant) {
    score_tiles<decltype(constant)::value, Pending>(work, begin, end, pending, pending_granules);
  });
}

/// Does `scores` score tiles and `pending_tiles` tiles of pending work, interleaved while there are both.
template <class Pending>
void score_tiles_beside(int rows, const ScoreWork& work, int scores, const Pending& pending,
                        const int* pending_granules, int pending_tiles) {
  const int both = kCanOverlap ? std::min(scores, pending_tiles) : 0;
  if constexpr (kCanOverlap) {
    if (both > 0) score_tiles_of_rows(rows, work, 0, both, pending, pending_granules);
  }
  for (int i = both; i < pending_tiles; i += kTilesOfAGranule)
    finish_granule(pending.from(column_of(pending_granules, i)));
  if (both < scores) score_tiles_of_rows(rows, work, both, scores);
}

// ---- Values --------------------------------------------------------------------------------------------------

/// The values of some keys: rows `stride` numbers apart, one per step (for pairs, one for two keys).
struct ValueRows {
  const Scalar* data = nullptr;
  std::int64_t stride = 0;
  std::int64_t steps = 0;
};

/// The index of a number in a tile's output: [column / kTileColumns][kTileRows][kTileColumns], so that
/// value_tile's rows are displacements of one pointer.
inline std::int64_t output_index(int row, std::int64_t column) {
  const std::int64_t within = column % kTileColumns;
  return (column - within) * kTileRows + row * kTileColumns + within;
}

/// The order of a product's factors: a row's factors are in a row of a tile or, transposed, in a column. kAdds:
/// the product is added to o, without alpha.
struct ScaledRows {
  static constexpr std::int64_t kRow = kBlockK, kStep = 1;
  static constexpr bool kAdds = false;
};
struct AddedRows {
  static constexpr std::int64_t kRow = kBlockK, kStep = 1;
  static constexpr bool kAdds = true;
};
struct AddedColumns {
  static constexpr std::int64_t kRow = 1, kStep = kBlockK;
  static constexpr bool kAdds = true;
};

/// o[kRows][kVectors vectors] = alpha * o + p v; the last vector has `tail` columns of v (kWidth: all). Each
/// output is one chain of multiply-adds in order of the keys. Without alpha, o begins as 0. With kAdds, o may have
/// left the near caches, so the next tile in memory is prefetched (dq 0.91 -> 0.96 of the peak at seqlen 4096, Zen
/// 4).
template <class Order, int kRows, int kVectors, bool kTail>
__attribute__((noinline)) void value_tile(const Scalar* p, const ValueRows& rows, std::int64_t column, int tail,
                                          const Scalar* alpha, Scalar* o) {
  Vec acc[kRows][kVectors];
  SACCADE_UNROLL
  for (int i = 0; i < kRows; ++i) {
    SACCADE_UNROLL
    for (int c = 0; c < kVectors; ++c) {
      acc[i][c] = Order::kAdds ? load(o + i * kTileColumns + c * kWidth) : zero();
      if (Order::kAdds) __builtin_prefetch(o + (kTileRows + i) * kTileColumns + c * kWidth);
    }
  }
  if (!Order::kAdds && alpha) {
    SACCADE_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const Vec shrink = broadcast_from(alpha + i);
      SACCADE_UNROLL
      for (int c = 0; c < kVectors; ++c) acc[i][c] = mul(shrink, load(o + i * kTileColumns + c * kWidth));
    }
  }
  const Scalar* v = rows.data + column;
  const std::int64_t stride = rows.stride;
  for (std::int64_t j = 0; j < rows.steps; ++j) {
    Vec value[kVectors];
    SACCADE_UNROLL
    for (int c = 0; c < kVectors; ++c) {
      if constexpr (kTail)
        value[c] = c == kVectors - 1 ? load_first(v + c * kWidth, tail) : loadu(v + c * kWidth);
      else
        value[c] = loadu(v + c * kWidth);
    }
    SACCADE_UNROLL
    for (int i = 0; i < kRows; ++i) multiply_add_row(p + i * Order::kRow, value, acc[i]);
    p += Order::kStep;
    v += stride;
  }
  SACCADE_UNROLL
  for (int i = 0; i < kRows; ++i) {
    SACCADE_UNROLL
    for (int c = 0; c < kVectors; ++c) store(o + i * kTileColumns + c * kWidth, acc[i][c]);
  }
}

/// value_tile for the number of vectors that `columns` (at most kTileVectors * kWidth) needs.
template <class Order, int kRows, int kVectors = kTileVectors>
SACCADE_INLINE void value_columns(int columns, const Scalar* p, const ValueRows& rows, std::int64_t column,
                                  const Scalar* alpha, Scalar* o) {
  if constexpr (kVectors > 1) {
    if (columns <= (kVectors - 1) * kWidth)
      return value_columns<Order, kRows, kVectors - 1>(columns, p, rows, column, alpha, o);
  }
  const int tail = columns - (kVectors - 1) * kWidth;
  if (tail == kWidth)
    value_tile<Order, kRows, kVectors, false>(p, rows, column, kWidth, alpha, o);
  else
    value_tile<Order, kRows, kVectors, true>(p, rows, column, tail, alpha, o);
}

/// o = alpha * o + p v for all head_dim_v columns (see output_index); p points to the first step.
template <class Order, int kRows>
void value_product(const Scalar* p, const ValueRows& rows, std::int64_t head_dim_v, const Scalar* alpha,
                   Scalar* o) {
  for (std::int64_t column = 0; column < head_dim_v; column += kTileColumns)
    value_columns<Order, kRows>(static_cast<int>(std::min<std::int64_t>(kTileColumns, head_dim_v - column)), p,
                                rows, column, alpha, o + output_index(0, column));
}

/// The first row of the same product, leaving out keys whose score is -inf: a weight of 0 must not meet their
/// values, which may be NaN. Adding 0 * v with a finite v changes no bit of a sum, so neither does leaving it out.
inline void value_product_of_visible(const Scalar* scores, const Scalar* p, const ValueRows& rows,
                                     std::int64_t head_dim_v, Scalar alpha, Scalar* o) {
  for (std::int64_t column = 0; column < head_dim_v; column += kWidth) {
    const int n = static_cast<int>(std::min<std::int64_t>(kWidth, head_dim_v - column));
    Scalar* const to = o + output_index(0, column);
    Vec acc = mul(broadcast(alpha), load(to));
    for (std::int64_t j = 0; j < rows.steps; ++j) {
      const Scalar* v = rows.data + j * rows.stride + column;
      if constexpr (kPairs) {
        const bool even = scores[2 * j] != -kInfinity, odd = scores[2 * j + 1] != -kInfinity;
        if (even || odd) acc = pair_fma_broadcast(p + j, keep_of_pairs(load_first(v, n), even, odd), acc);
      } else {
        if (scores[j] != -kInfinity) acc = fma_broadcast(p + j, load_first(v, n), acc);
      }
    }
    store(to, acc);
  }
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
