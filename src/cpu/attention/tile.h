// Products of tiles: S = Q K^T on packed queries and keys, O += P V on values in place or packed.
#pragma once

#include "cpu/attention/lane_sums.h"
#include "cpu/attention/packing.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

// ---- Scores --------------------------------------------------------------------------------------------------

/// Pending work on the scores of an earlier tile. It is interleaved with the multiplications of the next tile,
/// because it uses other units of the processor. A type of pending work has from(column), the same work starting
/// at a column of the block, and Row<kVectors>, which does one row of kVectors vectors in two halves.
struct NothingPending {
  NothingPending from(int) const { return {}; }
  template <int>
  struct Row {
    void begin(const NothingPending&, int) {}
    void end(const NothingPending&, int) {}
  };
};

/// Pending exponentials: row i of the columns at `scores` becomes exp2((score - maximum[i]) * factor). Without
/// kScaled the factor is 1 and left out. With kHasNaturalMaximum it becomes exp2(score + maximum[i] * factor).
template <bool kScaled, bool kHasNaturalMaximum = false>
struct PendingExp {
  const Scalar* scores = nullptr;   // [kTileRows][kBlockK]
  Scalar* probabilities = nullptr;  // [kTileRows][kBlockK], may be `scores`; bf16 pairs fill half of each row
  const Scalar* maximum = nullptr;  // [kTileRows]
  Scalar* row_sum = nullptr;        // [kTileRows][kSumLanes], added to
  const Scalar* factor = nullptr;
  const Scalar* scales = nullptr;  // [kBlockK], of values, for pairs only: multiply weights after they are summed

  SACCADE_INLINE PendingExp from(int column) const {
    PendingExp work{scores + column, probabilities + column / kStepNumbers, maximum, row_sum, factor};
    if (kPairs && scales) work.scales = scales + column;
    return work;
  }

  template <int kVectors>
  struct Row {
    Exp2 exp[kVectors];

    SACCADE_INLINE void begin(const PendingExp& work, int row) {
      SACCADE_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        Vec x = load(work.scores + row * kBlockK + v * kWidth);
        const Vec row_maximum = broadcast_from(work.maximum + row);
        x = kHasNaturalMaximum ? fma(row_maximum, broadcast_from(work.factor), x) : sub(x, row_maximum);
        if constexpr (kScaled) x = mul(x, broadcast_from(work.factor));
        exp[v] = exp2_begin(x);
      }
    }
    SACCADE_INLINE void end(const PendingExp& work, int row) {
      static_assert(kVectors % kSumVectors == 0);
      Scalar* const lanes = work.row_sum + row * kSumLanes;
      Vec sums[kSumVectors], p[kVectors];
      SACCADE_UNROLL
      for (int v = 0; v < kSumVectors; ++v) sums[v] = load(lanes + v * kWidth);
      SACCADE_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        p[v] = exp2_end(exp[v]);
        sums[v % kSumVectors] = add(sums[v % kSumVectors], p[v]);
      }
      if constexpr (kPairs) {
        static_assert(kVectors % 2 == 0);
        if (work.scales) {
          SACCADE_UNROLL
          for (int v = 0; v < kVectors; ++v) p[v] = mul(p[v], load(work.scales + v * kWidth));
        }
        SACCADE_UNROLL
        for (int v = 0; v < kVectors; v += 2)
          store(work.probabilities + row * kBlockK + v / 2 * kWidth, round_to_pairs(p[v], p[v + 1]));
      } else {
        SACCADE_UNROLL
        for (int v = 0; v < kVectors; ++v) store(work.probabilities + row * kBlockK + v * kWidth, p[v]);
      }
      SACCADE_UNROLL
      for (int v = 0; v < kSumVectors; ++v) store(lanes + v * kWidth, sums[v]);
    }
  };
};

/// Calls f(kScaled), where kScaled is a compile-time constant.
template <class F>
SACCADE_INLINE void with_scaling(Scalar factor, F f) {
  if (!kPairs && factor == 1) return f(std::false_type{});
  return f(std::true_type{});
}

/// Does the columns of a subtile, four vectors at a time, because each is a chain of dependent operations: saves
/// 1.6% of a forward (head_dim 64, AVX2, Zen 4).
template <class Pending>
void finish_subtile(const Pending& work) {
  constexpr int kVectors = std::min(kKeySubtile / kWidth, 4);
  for (int row = 0; row < kTileRows; ++row) {
    for (int column = 0; column < kKeySubtile; column += kVectors * kWidth) {
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

/// The column of a key block at which tile i of its `subtiles` begins.
inline constexpr int kTilesOfASubtile = kKeySubtile / kTileColumns;
SACCADE_INLINE int column_of(const int* subtiles, int i) {
  return subtiles[i / kTilesOfASubtile] * kKeySubtile + i % kTilesOfASubtile * kTileColumns;
}

/// The scores of a key block to compute for a tile of query rows.
struct ScoreWork {
  const Scalar* queries = nullptr;  // packed
  const Scalar* keys = nullptr;     // packed, of the whole block
  std::int64_t steps = 0;
  const int* subtiles = nullptr;
  unsigned partial = 0;            // bit n: the scores of subtiles[n] change later, so row_max ignores them
  Scalar* scores = nullptr;        // [rows][kBlockK]
  Scalar* row_max = nullptr;       // [rows][kWidth], raised; may be null
  const Scalar* scales = nullptr;  // [kBlockK], of keys, for pairs and with row_max only
  PrefetchRows ahead = {};         // kTileRows rows; each tile prefetches one line of each
};

/// Multiplies row `row` of the scores of tile i by the scales of keys, if there are any.
SACCADE_INLINE void apply_key_scales(const ScoreWork& work, int i, int row) {
  if (!kPairs || !work.scales) return;
  const int column = column_of(work.subtiles, i);
  Scalar* const scores = work.scores + row * kBlockK + column;
  SACCADE_UNROLL
  for (int v = 0; v < kTileVectors; ++v)
    store(scores + v * kWidth, mul(load(scores + v * kWidth), load(work.scales + column + v * kWidth)));
}

/// Raises row `row` of row_max to the scores of tile i.
SACCADE_INLINE void raise_row_max(const ScoreWork& work, int i, int row) {
  apply_key_scales(work, i, row);
  if (work.partial >> (i / kTilesOfASubtile) & 1u) return;
  const Scalar* scores = work.scores + row * kBlockK + column_of(work.subtiles, i);
  Vec largest = load(work.row_max + row * kWidth);
  SACCADE_UNROLL
  for (int v = 0; v < kTileVectors; ++v) largest = max(largest, load(scores + v * kWidth));
  store(work.row_max + row * kWidth, largest);
}

/// The rows (bit n: row n) of score_tiles' first loop before which chains end.
constexpr unsigned chain_ends(std::int64_t steps) {
  const std::int64_t dims = std::min<std::int64_t>(steps, kQueryChunk) * kStepNumbers;
  if (dims <= kOneScoreChain) return 0;
  const std::int64_t chains = std::min<std::int64_t>((dims + kScoreChain - 1) / kScoreChain, kTileRows);
  unsigned rows = 0;
  for (std::int64_t n = 1; n < chains; ++n) rows |= 1u << n * kTileRows / chains;
  return rows;
}

/// Scores of tiles [begin, end) of the subtiles: queries * keys, interleaved with the pending work of as many
/// tiles of `pending_subtiles`. Each score is the sum of some chains of multiply-adds in order of d, whatever else
/// is in the tile. Each step of a chain rounds in proportion to its sum, so the error of one chain grows with the
/// root of its length. At its end, a chain's sums are added to those in `scores`.
///
/// A store that reads its register late takes the port through which a multiply-add reads its third operand: the
/// 36 stores at the end of a tile cost 57 multiply-adds. So the last step of a tile, its stores and the first step
/// of the next tile (plain products, with two operands) alternate, and the row maxima follow during the next tile:
/// the scores of a block then take 12900 clocks instead of 13600, of which 12290 are multiply-adds (Zen 4,
/// head_dim 64).
template <int kRows, class Pending>
__attribute__((noinline)) void score_tiles(const ScoreWork& work, int begin, int end, const Pending& pending,
                                           const int* pending_subtiles) {
  constexpr bool kOverlap = !std::is_same_v<Pending, NothingPending>;
  const std::int64_t last_step = std::max<std::int64_t>(work.steps, 2) - 1, padded = padded_steps(work.steps);
  const std::int64_t steps_of_a_row = (std::min<std::int64_t>(last_step, kQueryChunk - 1) - 1) / kTileRows;
  const unsigned ends = chain_ends(work.steps);
  const Scalar* q = work.queries;
  const Scalar* k = work.keys + column_of(work.subtiles, begin) * padded;
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

  // With this and the end of a tile in one function, a backward took 7% longer (GCC 12, Zen 5).
  Scalar* scores = nullptr;
  const auto begin_chains = [&](bool is_first) __attribute__((always_inline)) {
    ++q;
    k += kTileColumns;
    Vec key[kTileVectors];
    SACCADE_UNROLL
    for (int v = 0; v < kTileVectors; ++v) key[v] = load(k + v * kWidth);
    const auto alternate = [&](auto first) __attribute__((always_inline)) {
      SACCADE_UNROLL
      for (int i = 0; i < kRows; ++i) {
        const Vec query = broadcast_from(q + i * kQueryStride);
        SACCADE_UNROLL
        for (int v = 0; v < kTileVectors; ++v) {
          Scalar* const to = scores + i * kBlockK + v * kWidth;
          store(to, decltype(first)::value ? acc[i][v] : add(load(to), acc[i][v]));
          keep_order();
          acc[i][v] = multiply(query, key[v]);
          keep_order();
        }
      }
    };
    if (is_first)
      alternate(std::true_type{});
    else
      alternate(std::false_type{});
  };

  for (int tile = begin; tile < end; ++tile) {
    const Pending earlier = kOverlap ? pending.from(column_of(pending_subtiles, tile)) : pending;
    scores = work.scores + column_of(work.subtiles, tile);
    bool is_first = true;  // of the score's chains
    for (int row = 0; row < kTileRows; ++row) {
      const bool ends_chains = ends >> row & 1u;
      if (ends_chains) begin_chains(std::exchange(is_first, false));
      work.ahead.fetch(row, tile);
      typename Pending::template Row<kTileVectors> half;
      half.begin(earlier, row);
      for (std::int64_t i = ends_chains; i < steps_of_a_row; ++i) step();
      half.end(earlier, row);
      if (tile > begin && row < kRows && work.row_max) raise_row_max(work, tile - 1, row);
    }
    std::int64_t d = 1 + steps_of_a_row * kTileRows;
    for (std::int64_t chunk_end = kQueryChunk;; chunk_end += kQueryChunk) {
      for (const std::int64_t stop = std::min(last_step, chunk_end); d < stop; ++d) step();
      if (last_step < chunk_end) break;
      q += kTileRows * kQueryStride - kQueryChunk;
      if (d == last_step) break;
      begin_chains(std::exchange(is_first, false));
      ++d;
    }
    ++q;
    k += kTileColumns;
    const Scalar* const next =
        work.keys + (tile + 1 < end ? column_of(work.subtiles, tile + 1) * padded : std::int64_t{0});
    Vec last_key[kTileVectors], next_key[kTileVectors];
    SACCADE_UNROLL
    for (int v = 0; v < kTileVectors; ++v) {
      last_key[v] = load(k + v * kWidth);
      next_key[v] = load(next + v * kWidth);
    }
    const auto finish = [&](auto only) __attribute__((always_inline)) {
      SACCADE_UNROLL
      for (int i = 0; i < kRows; ++i) {
        const Vec last = broadcast_from(q + i * kQueryStride),
                  first = broadcast_from(work.queries + i * kQueryStride);
        SACCADE_UNROLL
        for (int v = 0; v < kTileVectors; ++v) {
          Scalar* const to = scores + i * kBlockK + v * kWidth;
          Vec sum = multiply_add(last, last_key[v], acc[i][v]);
          if constexpr (!decltype(only)::value) sum = add(load(to), sum);
          store(to, sum);
          keep_order();
          acc[i][v] = multiply(first, next_key[v]);
          keep_order();
        }
      }
    };
    if (is_first)
      finish(std::true_type{});
    else
      finish(std::false_type{});
    q = work.queries;
    k = next;
  }
  for (int row = 0; row < (work.row_max ? kRows : 0); ++row) raise_row_max(work, end - 1, row);
}

/// score_tiles for the existing rows of a tile.
template <class Pending = NothingPending>
void score_tiles_of_rows(int rows, const ScoreWork& work, int begin, int end, const Pending& pending = {},
                         const int* pending_subtiles = nullptr) {
  with_rows(rows, [&](auto constant) {
    score_tiles<decltype(constant)::value, Pending>(work, begin, end, pending, pending_subtiles);
  });
}

/// Computes `scores` score tiles and `pending_tiles` tiles of pending work, interleaved while both last.
template <class Pending>
void score_tiles_beside(int rows, const ScoreWork& work, int scores, const Pending& pending,
                        const int* pending_subtiles, int pending_tiles) {
  const int both = kCanOverlap ? std::min(scores, pending_tiles) : 0;
  if constexpr (kCanOverlap) {
    if (both > 0) score_tiles_of_rows(rows, work, 0, both, pending, pending_subtiles);
  }
  for (int i = both; i < pending_tiles; i += kTilesOfASubtile)
    finish_subtile(pending.from(column_of(pending_subtiles, i)));
  if (both < scores) score_tiles_of_rows(rows, work, both, scores);
}

// ---- Values --------------------------------------------------------------------------------------------------

/// The values of some keys: rows `stride` numbers apart, one per step (for pairs, one for two keys).
struct ValueRows {
  const Scalar* data = nullptr;
  std::int64_t stride = 0;
  std::int64_t steps = 0;
  std::int64_t first_chain = 0;  // the step at which a second chain begins; up to 0: there is only one
  std::int64_t chain = 0;        // steps of each chain after the first
};

/// The index of a number in a tile's output: [column / kTileColumns][kTileRows][kTileColumns], so that
/// value_tile's rows are at fixed offsets from one pointer.
inline std::int64_t output_index(int row, std::int64_t column) {
  const std::int64_t within = column % kTileColumns;
  return (column - within) * kTileRows + row * kTileColumns + within;
}

/// The order of a product's factors: a row's factors are in a row of a tile or, transposed, in a column.
struct FactorRows {
  static constexpr std::int64_t kRow = kBlockK, kStep = 1;
};
struct FactorColumns {
  static constexpr std::int64_t kRow = 1, kStep = kBlockK;
};

/// How the sums of a product are accumulated into o. They are separate chains, because each step of a chain rounds
/// in proportion to its sum: one chain over all rows made the error of dv 1.4 times as large at seqlen 512.
enum class AccumulateMode {
  replace,         // o = p v
  add,             // o = o + p v
  scale,           // o = alpha o + p v
  scale_first,     // the same with alpha o rounded, as if earlier chains had added 0 to it
  continue_chains  // o's chains go on: for products with gaps
};

/// Accumulates the sums of a row into the vector at `o`. (A compiler would fuse a plain product with the sum.)
template <AccumulateMode kHow>
SACCADE_INLINE void join(Vec sum, const Scalar* alpha, Scalar* o) {
  if constexpr (kHow == AccumulateMode::scale) sum = fma(broadcast_from(alpha), load(o), sum);
  if constexpr (kHow == AccumulateMode::scale_first) sum = add(fma(broadcast_from(alpha), load(o), zero()), sum);
  if constexpr (kHow == AccumulateMode::add) sum = add(load(o), sum);
  store(o, sum);
}

/// Calls f(how), where `how` is a compile-time constant.
template <class F>
SACCADE_INLINE void with_accumulate_mode(AccumulateMode how, const F& f) {
  if (how == AccumulateMode::add) return f(std::integral_constant<AccumulateMode, AccumulateMode::add>{});
  if (how == AccumulateMode::scale) return f(std::integral_constant<AccumulateMode, AccumulateMode::scale>{});
  if (how == AccumulateMode::scale_first)
    return f(std::integral_constant<AccumulateMode, AccumulateMode::scale_first>{});
  f(std::integral_constant<AccumulateMode, AccumulateMode::replace>{});
}

/// Accumulates p v into o[kRows][kVectors vectors]; the last vector has `tail` columns of v (kWidth: all). Each
/// output is the sum of o and some chains of multiply-adds in order of the keys; where one begins, stores
/// alternate with plain products, as in score_tiles. o may have left the near caches, so it is prefetched.
template <class Order, int kRows, int kVectors, bool kTail>
__attribute__((noinline)) void value_tile(const Scalar* p, const ValueRows& rows, std::int64_t column, int tail,
                                          AccumulateMode how, const Scalar* alpha, Scalar* o) {
  Vec acc[kRows][kVectors];
  SACCADE_UNROLL
  for (int i = 0; i < kRows; ++i) {
    SACCADE_UNROLL
    for (int c = 0; c < kVectors; ++c) {
      acc[i][c] = zero();
      __builtin_prefetch(o + i * kTileColumns + c * kWidth);
    }
  }
  if (how == AccumulateMode::continue_chains) {
    SACCADE_UNROLL
    for (int i = 0; i < kRows; ++i) {
      SACCADE_UNROLL
      for (int c = 0; c < kVectors; ++c) acc[i][c] = load(o + i * kTileColumns + c * kWidth);
    }
  }
  const Scalar* v = rows.data + column;
  const std::int64_t stride = rows.stride;
  const auto load_values = [&](Vec(&value)[kVectors]) __attribute__((always_inline)) {
    SACCADE_UNROLL
    for (int c = 0; c < kVectors; ++c) {
      if constexpr (kTail)
        value[c] = c == kVectors - 1 ? load_first(v + c * kWidth, tail) : loadu(v + c * kWidth);
      else
        value[c] = loadu(v + c * kWidth);
    }
    v += stride;
  };
  const auto steps = [&](std::int64_t count) __attribute__((always_inline)) {
    for (std::int64_t j = 0; j < count; ++j) {
      Vec value[kVectors];
      load_values(value);
      SACCADE_UNROLL
      for (int i = 0; i < kRows; ++i) multiply_add_row(p + i * Order::kRow, value, acc[i]);
      p += Order::kStep;
    }
  };
  std::int64_t rest = rows.steps;
  for (std::int64_t count = rows.first_chain; count > 0 && count < rest; count = rows.chain - 1) {
    steps(count);
    Vec value[kVectors];
    load_values(value);
    with_accumulate_mode(
        how, [&](auto constant) __attribute__((always_inline)) {
          SACCADE_UNROLL
          for (int i = 0; i < kRows; ++i) {
            const Vec factor = broadcast_from(p + i * Order::kRow);
            SACCADE_UNROLL
            for (int c = 0; c < kVectors; ++c) {
              join<decltype(constant)::value>(acc[i][c], alpha + i, o + i * kTileColumns + c * kWidth);
              keep_order();
              acc[i][c] = multiply(factor, value[c]);
              keep_order();
            }
          }
        });
    p += Order::kStep;
    rest -= count + 1;
    how = AccumulateMode::add;
  }
  steps(rest);
  with_accumulate_mode(
      how, [&](auto constant) __attribute__((always_inline)) {
        SACCADE_UNROLL
        for (int i = 0; i < kRows; ++i) {
          SACCADE_UNROLL
          for (int c = 0; c < kVectors; ++c)
            join<decltype(constant)::value>(acc[i][c], alpha + i, o + i * kTileColumns + c * kWidth);
        }
      });
}

/// value_tile for the number of vectors that `columns` (at most kTileVectors * kWidth) needs.
template <class Order, int kRows, int kVectors = kTileVectors>
SACCADE_INLINE void value_columns(int columns, const Scalar* p, const ValueRows& rows, std::int64_t column,
                                  AccumulateMode how, const Scalar* alpha, Scalar* o) {
  if constexpr (kVectors > 1) {
    if (columns <= (kVectors - 1) * kWidth)
      return value_columns<Order, kRows, kVectors - 1>(columns, p, rows, column, how, alpha, o);
  }
  const int tail = columns - (kVectors - 1) * kWidth;
  if (tail == kWidth)
    value_tile<Order, kRows, kVectors, false>(p, rows, column, kWidth, how, alpha, o);
  else
    value_tile<Order, kRows, kVectors, true>(p, rows, column, tail, how, alpha, o);
}

/// Accumulates p v into o (see output_index) for all head_dim_v columns; p points to the first step. `alpha`: a
/// factor of each row, for the modes that scale.
template <class Order, int kRows>
void value_product(const Scalar* p, const ValueRows& rows, std::int64_t head_dim_v, AccumulateMode how,
                   const Scalar* alpha, Scalar* o) {
  for (std::int64_t column = 0; column < head_dim_v; column += kTileColumns)
    value_columns<Order, kRows>(static_cast<int>(std::min<std::int64_t>(kTileColumns, head_dim_v - column)), p,
                                rows, column, how, alpha, o + output_index(0, column));
}

/// Continues the chains of `sums` with the first row of the same product, without keys whose score is -inf: a
/// weight of 0 must not meet their values, which may be NaN. Adding 0 * v with a finite v changes no bit of a sum,
/// so neither does skipping it.
inline void value_product_of_visible(const Scalar* scores, const Scalar* p, const ValueRows& rows,
                                     std::int64_t head_dim_v, Scalar* sums) {
  for (std::int64_t column = 0; column < head_dim_v; column += kWidth) {
    const int n = static_cast<int>(std::min<std::int64_t>(kWidth, head_dim_v - column));
    Scalar* const to = sums + output_index(0, column);
    Vec acc = load(to);
    for (std::int64_t j = 0; j < rows.steps; ++j) {
      const Scalar* v = rows.data + j * rows.stride + column;
      if constexpr (kPairs) {
        const bool even = scores[2 * j] != -kInfinity, odd = scores[2 * j + 1] != -kInfinity;
        if (!even && !odd) continue;
        alignas(64) Scalar weights[kWidth];  // one of a hidden key is NaN if its value's scale is
        store(weights, keep_of_pairs(broadcast(p[j]), even, odd));
        acc = pair_fma_broadcast(weights, keep_of_pairs(load_first(v, n), even, odd), acc);
      } else {
        if (scores[j] != -kInfinity) acc = fma_broadcast(p + j, load_first(v, n), acc);
      }
    }
    store(to, acc);
  }
}

/// Accumulates finished sums into a tile of o, `size` numbers in the same order.
inline void accumulate_tile(const Scalar* sums, std::int64_t size, AccumulateMode how, const Scalar* alpha,
                            Scalar* o) {
  with_accumulate_mode(how, [&](auto constant) {
    for (std::int64_t at = 0; at < size; at += kWidth)
      join<decltype(constant)::value>(load(sums + at), alpha + at / kTileColumns % kTileRows, o + at);
  });
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
