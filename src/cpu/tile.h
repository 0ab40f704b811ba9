// Products of tiles: S = Q K^T on packed queries and keys, O += P V on values in place or packed, and the packing.
#pragma once

#include "cpu/block_sizes.h"
#include "cpu/math.h"
#ifdef SACCADE_BF16_PRODUCT
#include "cpu/simd_bf16.h"
#endif

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

// ---- Arithmetics ---------------------------------------------------------------------------------------------

/// Queries carry scale * log2(e): scores are in base 2 and their exponential needs one subtraction only.
struct FoldedScale {
  static constexpr bool kPairs = false, kScaledExp = false;
  static constexpr const Polynomial& kExp = kExp2;
};
/// Queries carry the scale: scores are natural logits. In base 2 they would have up to twice the rounding error
/// where biases are added, and nobody could look at them.
struct NaturalScale {
  static constexpr bool kPairs = false, kScaledExp = true;
  static constexpr const Polynomial& kExp = kExp2;
};
/// Products of bf16 pairs: queries, keys and values as they are, weights rounded to bf16. A step is two
/// dimensions, or two keys in P V.
struct BfloatPairs {
  static constexpr bool kPairs = true, kScaledExp = true;
  static constexpr const Polynomial& kExp = kExp2;
};

#ifdef SACCADE_BF16_PRODUCT
inline constexpr bool kHasPairs = true;
#else
inline constexpr bool kHasPairs = false;
// Never called: the templates have to name them.
SACCADE_INLINE Vec pair_fma_broadcast(const Scalar*, Vec, Vec acc) { return acc; }
SACCADE_INLINE Vec pair_fma(Vec, Vec, Vec acc) { return acc; }
SACCADE_INLINE Vec round_to_pairs(Vec low, Vec) { return low; }
SACCADE_INLINE Vec interleave_low(Vec even, Vec) { return even; }
SACCADE_INLINE Vec interleave_high(Vec even, Vec) { return even; }
SACCADE_INLINE void order_columns(Vec&, Vec&) {}
SACCADE_INLINE Vec keep_of_pairs(Vec words, bool, bool) { return words; }
SACCADE_INLINE Vec negate_pairs(Vec words) { return words; }
#endif

/// Calls f(Arithmetic{}) with the arithmetic of a call.
template <class F>
decltype(auto) with_arithmetic(const AttentionParams& p, F f) {
  if constexpr (kHasPairs) {
    if (p.q.dtype == DType::bf16 && p.k.dtype == DType::bf16 && p.v.dtype == DType::bf16) return f(BfloatPairs{});
  }
  return p.changes_every_score() ? f(NaturalScale{}) : f(FoldedScale{});
}

/// Calls f(T{}) with the element type of a tensor.
template <class F>
decltype(auto) with_storage(DType dtype, F f) {
  if constexpr (kIsDouble) {
    return f(double{});
  } else {
    switch (dtype) {
      case DType::bf16:
        return f(bfloat16{});
      case DType::f16:
        return f(float16{});
      default:
        return f(float{});
    }
  }
}

/// What the numbers of scores mean: queries are multiplied by query_factor, scores by exp_factor to be in base 2,
/// by natural to be natural logits.
struct ScoreUnit {
  Scalar query_factor, exp_factor, natural;
};

template <class Arithmetic>
ScoreUnit score_unit(const AttentionParams& p) {
  const Scalar scale = static_cast<Scalar>(p.scale);
  if constexpr (Arithmetic::kPairs) {
    // The sign goes with the queries, so that a larger score is a larger logit; and so does 0, for a hidden key
    // times a factor of 0 would not stay hidden.
    const Scalar natural = p.changes_every_score() || scale == 0 ? Scalar{1} : std::abs(scale);
    return {scale, natural * kLog2E, natural};
  }
  if (Arithmetic::kScaledExp) return {scale, kLog2E, 1};
  return {static_cast<Scalar>(p.scale * 1.4426950408889634074), 1, kLn2};
}

template <class Arithmetic>
SACCADE_INLINE Vec multiply_add(const Scalar* a, Vec b, Vec acc) {
  if constexpr (Arithmetic::kPairs)
    return pair_fma_broadcast(a, b, acc);
  else
    return fma_broadcast(a, b, acc);
}

template <class Arithmetic>
SACCADE_INLINE Vec multiply_add(Vec a, Vec b, Vec acc) {
  if constexpr (Arithmetic::kPairs)
    return pair_fma(a, b, acc);
  else
    return fma(a, b, acc);
}

/// Multiply-add steps of n dimensions or keys.
template <class Arithmetic>
constexpr std::int64_t steps_of(std::int64_t n) {
  return Arithmetic::kPairs ? (n + 1) / 2 : n;
}

/// kWidth steps of a row of `length` numbers, from `step` on; zeros behind its end.
template <class Arithmetic, class T>
SACCADE_INLINE Vec load_steps(const T* row, std::int64_t step, std::int64_t length) {
  if constexpr (Arithmetic::kPairs)
    return load_first_pairs(row + 2 * step,
                            static_cast<int>(std::min<std::int64_t>(2 * kWidth, length - 2 * step)));
  else
    return load_first(row + step, static_cast<int>(std::min<std::int64_t>(kWidth, length - step)));
}

// ---- Packing -------------------------------------------------------------------------------------------------

/// Steps of a packed query row before the next chunk of the row begins. The stride is a constant, so that the
/// rows of a tile are displacements of one pointer, and no power of two, so that they fall into different cache
/// sets.
inline constexpr int kQueryChunk = 256;
inline constexpr int kQueryStride = kQueryChunk + 16;

inline std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

inline std::int64_t query_chunks(std::int64_t steps) { return (steps + kQueryChunk - 1) / kQueryChunk; }

/// Numbers of the packed queries of one tile: [chunk][kTileRows][kQueryStride].
inline std::int64_t packed_query_size(std::int64_t steps) {
  return query_chunks(steps) * kTileRows * kQueryStride;
}

/// Asks for one cache line of each of `kRows` rows. The packing loops read more rows at once than the processor's
/// own prefetchers follow: 1.5% of a forward at seqlen 1024 was spent waiting for them (Zen 4).
template <int kRows, class T>
SACCADE_INLINE void prefetch_rows(const T* p, std::int64_t row_stride) {
  SACCADE_UNROLL
  for (int i = 0; i < kRows; ++i) __builtin_prefetch(p + i * row_stride);
}

/// kWidth steps of a query row as the product wants them: times `factor`, of which pairs take the sign only.
template <class Arithmetic, class T>
SACCADE_INLINE Vec query_steps(const T* row, std::int64_t step, std::int64_t head_dim, Scalar factor) {
  const Vec x = load_steps<Arithmetic>(row, step, head_dim);
  if constexpr (!Arithmetic::kPairs) return canonical_nan(mul(x, broadcast(factor)));
  if (factor > 0) return x;
  return factor < 0 ? negate_pairs(x) : zero();
}

/// One row of q, zeros up to a whole vector.
template <class Arithmetic, class T>
void pack_query(const T* row, std::int64_t head_dim, Scalar factor, Scalar* packed) {
  for (std::int64_t step = 0; step < steps_of<Arithmetic>(head_dim); step += kWidth)
    store(packed + step, query_steps<Arithmetic>(row, step, head_dim, factor));
}

/// Packs `rows` rows of q into one tile;
/// missing rows are zeros.
template <class Arithmetic, class T>
void pack_queries(const T* q, std::int64_t row_stride, int rows, std::int64_t head_dim, Scalar factor,
                  Scalar* packed) {
  const std::int64_t steps = steps_of<Arithmetic>(head_dim);
  for (std::int64_t chunk = 0; chunk < query_chunks(steps); ++chunk) {
    const std::int64_t begin = chunk * kQueryChunk, end = std::min<std::int64_t>(begin + kQueryChunk, steps);
    for (int row = 0; row < kTileRows; ++row) {
      Scalar* out = packed + (chunk * kTileRows + row) * kQueryStride;
      for (std::int64_t step = begin; step < end; step += kWidth) {
        Vec x = zero();
        if (row < rows) {
          const T* from = q + row * row_stride;
          __builtin_prefetch(from + kTileRows * row_stride + step);
          x = query_steps<Arithmetic>(from, step, head_dim, factor);
        }
        store(out + (step - begin), x);
      }
    }
  }
}

/// Numbers of a packed block's keys: [steps, rounded up to the vector width][kBlockK].
template <class Arithmetic>
std::int64_t packed_key_size(std::int64_t head_dim) {
  return round_up(steps_of<Arithmetic>(head_dim), kWidth) * kBlockK;
}

/// Packs kWidth keys from `key` on, transposed: packed[step][key]. Keys outside `readable` are zeros.
template <class Arithmetic, class T>
void pack_keys(const KeyRows<T>& k, std::int64_t key, KeyRange readable, std::int64_t head_dim, Scalar* packed) {
  constexpr bool kAsStored = Arithmetic::kPairs || std::is_same_v<T, Scalar>;
  constexpr int kElements = Arithmetic::kPairs ? 2 : 1;  // of a step
  const std::int64_t steps = steps_of<Arithmetic>(head_dim);
  const bool all = key >= readable.begin && key + kWidth <= readable.end && k.run(key) >= kWidth;
  const bool direct = kAsStored && all && k.row_stride % kElements == 0;
  const bool prefetches = direct && key + 2 * kWidth <= readable.end && k.run(key) >= 2 * kWidth;
  alignas(64) Scalar edge[kWidth * kWidth];
  for (std::int64_t step = 0; step < steps; step += kWidth) {
    Scalar* to = packed + step * kBlockK;
    if (direct && (step + kWidth) * kElements <= head_dim) {
      const T* from = k[key] + step * kElements;
      if (prefetches) prefetch_rows<kWidth>(from + kWidth * k.row_stride, k.row_stride);
      transpose_tile(reinterpret_cast<const Scalar*>(from), k.row_stride / kElements, to, kBlockK);
    } else {
      for (int i = 0; i < kWidth; ++i) {
        const bool is_there = key + i >= readable.begin && key + i < readable.end;
        store(edge + i * kWidth, is_there ? load_steps<Arithmetic>(k[key + i], step, head_dim) : zero());
      }
      transpose_tile(edge, kWidth, to, kBlockK);
    }
    if constexpr (!Arithmetic::kPairs) {
      for (int i = 0; i < kWidth; ++i)
        if (any(is_nan(load(to + i * kBlockK)))) store(to + i * kBlockK, canonical_nan(load(to + i * kBlockK)));
    }
  }
}

/// Columns of a packed block's values, and its numbers: [steps of kBlockK][columns].
inline std::int64_t packed_value_columns(std::int64_t head_dim_v) { return round_up(head_dim_v, kWidth); }
template <class Arithmetic>
std::int64_t packed_value_size(std::int64_t head_dim_v) {
  return steps_of<Arithmetic>(kBlockK) * packed_value_columns(head_dim_v);
}

/// Packs the value rows of the block at `first_key`; those next to `readable`, and columns beyond head_dim_v, are
/// zeros.
template <class Arithmetic, class T>
void pack_values(const KeyRows<T>& v, std::int64_t first_key, KeyRange readable, std::int64_t head_dim_v,
                 Scalar* packed) {
  const std::int64_t columns = packed_value_columns(head_dim_v);
  const std::int64_t begin = std::max(first_key, readable.begin);
  const std::int64_t end = std::min<std::int64_t>(first_key + kBlockK, readable.end);
  const auto load_row = [&](std::int64_t key, std::int64_t d) {
    const int n = static_cast<int>(std::min<std::int64_t>(kWidth, head_dim_v - d));
    return load_first(v[key] + d, n);
  };
  if constexpr (Arithmetic::kPairs) {
    for (std::int64_t key = begin / 2 * 2; key < end; key += 2) {
      const bool has_even = key >= begin, has_odd = key + 1 < end;
      const T* even = v[has_even ? key : key + 1];
      const T* odd = v[has_odd ? key + 1 : key];
      for (std::int64_t d = 0; d < columns; d += kWidth) {
        const int n = static_cast<int>(std::min<std::int64_t>(kWidth, head_dim_v - d));
        const Vec words = interleave_first(even + d, odd + d, n);
        store(packed + (key - first_key) / 2 * columns + d, keep_of_pairs(words, has_even, has_odd));
      }
    }
  } else {
    for (std::int64_t key = begin; key < end; ++key)
      for (std::int64_t d = 0; d < columns; d += kWidth)
        store(packed + (key - first_key) * columns + d, load_row(key, d));
  }
}

// ---- Scores --------------------------------------------------------------------------------------------------

/// The exponentials of an earlier tile, which score_tile spreads over its own multiplications: they use
/// other units of the processor. Row i of the columns at `scores` becomes exp2((score - maximum[i]) * factor).
struct PendingExp {
  const Scalar* scores = nullptr;   // [kTileRows][kBlockK]
  Scalar* probabilities = nullptr;  // [kTileRows][kBlockK]; bf16 pairs fill half of each row
  const Scalar* maximum = nullptr;  // [kTileRows]
  Scalar* row_sum = nullptr;        // [kTileRows][kWidth], added to
  const Scalar* factor = nullptr;
};

/// One row of kTileVectors vectors of a PendingExp.
template <class Arithmetic>
struct PendingRow {
  static constexpr const Polynomial& kExp = Arithmetic::kExp;
  Exp2 exp[kTileVectors];

  SACCADE_INLINE void begin(const PendingExp& work, int row) {
    SACCADE_UNROLL
    for (int v = 0; v < kTileVectors; ++v) {
      Vec x = sub(load(work.scores + row * kBlockK + v * kWidth), broadcast_from(work.maximum + row));
      if constexpr (Arithmetic::kScaledExp) x = mul(x, broadcast_from(work.factor));
      exp[v] = exp2_begin(x, kExp);
    }
  }
  SACCADE_INLINE void step(int i) {
    SACCADE_UNROLL
    for (int v = 0; v < kTileVectors; ++v) exp2_step(exp[v], i, kExp);
  }
  SACCADE_INLINE void end(const PendingExp& work, int row) {
    Vec sum = load(work.row_sum + row * kWidth);
    Vec p[kTileVectors];
    SACCADE_UNROLL
    for (int v = 0; v < kTileVectors; ++v) {
      p[v] = exp2_end(exp[v]);
      sum = add(sum, p[v]);
    }
    if constexpr (Arithmetic::kPairs) {
      store(work.probabilities + row * kBlockK, round_to_pairs(p[0], p[1]));
    } else {
      SACCADE_UNROLL
      for (int v = 0; v < kTileVectors; ++v) store(work.probabilities + row * kBlockK + v * kWidth, p[v]);
    }
    store(work.row_sum + row * kWidth, sum);
  }
};

template <class Arithmetic>
void exp_tile(const PendingExp& work) {
  for (int row = 0; row < kTileRows; ++row) {
    PendingRow<Arithmetic> pending;
    pending.begin(work, row);
    SACCADE_UNROLL
    for (int i = 0; i < Arithmetic::kExp.degree; ++i) pending.step(i);
    pending.end(work, row);
  }
}

/// Over how many multiply-add steps score_tile spreads the exponential of a row: 0 where there are not registers
/// or steps enough to hide any behind.
template <class Arithmetic>
int exp_spread(std::int64_t steps) {
  if (kRegisters < 32) return 0;
  const std::int64_t steps_of_a_row = std::min<std::int64_t>(steps, kQueryChunk) / kTileRows;
  return steps_of_a_row >= Arithmetic::kExp.degree ? Arithmetic::kExp.degree : steps_of_a_row >= 2 ? 2 : 0;
}

/// scores[kTileRows][kTileColumns] (rows kBlockK apart) = queries * keys, and row_max[kTileRows][kWidth] raised to
/// them. Each score is one chain of multiply-adds in order of d, whatever else shares the tile. kSpread is
/// exp_spread(), 0 without work.
template <class Arithmetic, int kSpread>
__attribute__((noinline)) void score_tile(const Scalar* queries, const Scalar* keys, std::int64_t steps,
                                          Scalar* scores, Scalar* row_max, const PendingExp& work) {
  Vec acc[kTileRows][kTileVectors];
  SACCADE_UNROLL
  for (int i = 0; i < kTileRows; ++i) {
    SACCADE_UNROLL
    for (int v = 0; v < kTileVectors; ++v) acc[i][v] = zero();
  }

  const Scalar* q = queries;
  const Scalar* k = keys;
  const auto step = [&]() __attribute__((always_inline)) {
    Vec key[kTileVectors];
    SACCADE_UNROLL
    for (int v = 0; v < kTileVectors; ++v) key[v] = load(k + v * kWidth);
    SACCADE_UNROLL
    for (int i = 0; i < kTileRows; ++i) {
      SACCADE_UNROLL
      for (int v = 0; v < kTileVectors; ++v)
        acc[i][v] = multiply_add<Arithmetic>(q + i * kQueryStride, key[v], acc[i][v]);
    }
    ++q;
    k += kBlockK;
  };

  std::int64_t d = 0;
  if constexpr (kSpread > 0) {
    constexpr int kDegree = Arithmetic::kExp.degree;
    const std::int64_t steps_of_a_row = std::min<std::int64_t>(steps, kQueryChunk) / kTileRows;
    for (int row = 0; row < kTileRows; ++row) {
      PendingRow<Arithmetic> pending;
      pending.begin(work, row);
      SACCADE_UNROLL
      for (int i = 0; i < kSpread; ++i) {
        step();
        SACCADE_UNROLL
        for (int h = i * kDegree / kSpread; h < (i + 1) * kDegree / kSpread; ++h) pending.step(h);
      }
      for (std::int64_t extra = kSpread; extra < steps_of_a_row; ++extra) step();
      pending.end(work, row);
    }
    d = steps_of_a_row * kTileRows;
  }
  for (std::int64_t chunk_end = kQueryChunk; d < steps; chunk_end += kQueryChunk) {
    for (const std::int64_t end = std::min(steps, chunk_end); d < end; ++d) step();
    q += kTileRows * kQueryStride - kQueryChunk;
  }

  SACCADE_UNROLL
  for (int i = 0; i < kTileRows; ++i) {
    Vec largest = load(row_max + i * kWidth);
    SACCADE_UNROLL
    for (int v = 0; v < kTileVectors; ++v) {
      store(scores + i * kBlockK + v * kWidth, acc[i][v]);
      largest = max(largest, acc[i][v]);
    }
    store(row_max + i * kWidth, largest);
  }
}

// ---- Values --------------------------------------------------------------------------------------------------

/// Where the values of some keys lie: rows of `stride` numbers, one a step (so for pairs one for two keys).
struct ValueRows {
  const Scalar* data = nullptr;
  std::int64_t stride = 0;
  std::int64_t steps = 0;
};

/// o[kTileRows][kVectors vectors] = alpha * o + p v; the last vector has `tail` columns of v (kWidth: all). Each
/// output is one chain of multiply-adds in order of the keys.
template <class Arithmetic, int kVectors, bool kTail>
__attribute__((noinline)) void value_tile(const Scalar* p, const ValueRows& rows, std::int64_t column, int tail,
                                          const Scalar* alpha, Scalar* o, std::int64_t o_stride) {
  Vec acc[kTileRows][kVectors];
  SACCADE_UNROLL
  for (int i = 0; i < kTileRows; ++i) {
    SACCADE_UNROLL
    for (int c = 0; c < kVectors; ++c) acc[i][c] = mul(broadcast(alpha[i]), load(o + i * o_stride + c * kWidth));
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
    for (int i = 0; i < kTileRows; ++i) {
      SACCADE_UNROLL
      for (int c = 0; c < kVectors; ++c)
        acc[i][c] = multiply_add<Arithmetic>(p + i * kBlockK, value[c], acc[i][c]);
    }
    ++p;
    v += stride;
  }
  SACCADE_UNROLL
  for (int i = 0; i < kTileRows; ++i) {
    SACCADE_UNROLL
    for (int c = 0; c < kVectors; ++c) store(o + i * o_stride + c * kWidth, acc[i][c]);
  }
}

/// value_tile for as many column vectors as `columns` (at most kTileVectors * kWidth) needs.
template <class Arithmetic, int kVectors = kTileVectors>
SACCADE_INLINE void value_columns(int columns, const Scalar* p, const ValueRows& rows, std::int64_t column,
                                  const Scalar* alpha, Scalar* o, std::int64_t o_stride) {
  if constexpr (kVectors > 1) {
    if (columns <= (kVectors - 1) * kWidth)
      return value_columns<Arithmetic, kVectors - 1>(columns, p, rows, column, alpha, o, o_stride);
  }
  const int tail = columns - (kVectors - 1) * kWidth;
  if (tail == kWidth)
    value_tile<Arithmetic, kVectors, false>(p, rows, column, kWidth, alpha, o, o_stride);
  else
    value_tile<Arithmetic, kVectors, true>(p, rows, column, tail, alpha, o, o_stride);
}

/// o[kTileRows][head_dim_v] = alpha * o + p v: p [kTileRows][kBlockK] from its first step.
template <class Arithmetic>
void value_product(const Scalar* p, const ValueRows& rows, std::int64_t head_dim_v, const Scalar* alpha, Scalar* o,
                   std::int64_t o_stride) {
  for (std::int64_t column = 0; column < head_dim_v; column += kTileColumns)
    value_columns<Arithmetic>(static_cast<int>(std::min<std::int64_t>(kTileColumns, head_dim_v - column)), p, rows,
                              column, alpha, o + column, o_stride);
}

/// The first row of the same product, leaving out keys whose score is -inf: a weight of 0 must not meet their
/// values, which may be NaN. Adding 0 * v changes no bit of a sum, so leaving it out does not either.
template <class Arithmetic>
void value_product_of_visible(const Scalar* scores, const Scalar* p, const ValueRows& rows,
                              std::int64_t head_dim_v, Scalar alpha, Scalar* o) {
  for (std::int64_t column = 0; column < head_dim_v; column += kWidth) {
    const int n = static_cast<int>(std::min<std::int64_t>(kWidth, head_dim_v - column));
    Vec acc = mul(broadcast(alpha), load(o + column));
    for (std::int64_t j = 0; j < rows.steps; ++j) {
      const Scalar* v = rows.data + j * rows.stride + column;
      if constexpr (Arithmetic::kPairs) {
        const bool even = scores[2 * j] != -kInfinity, odd = scores[2 * j + 1] != -kInfinity;
        if (even || odd) acc = pair_fma_broadcast(p + j, keep_of_pairs(load_first(v, n), even, odd), acc);
      } else {
        if (scores[j] != -kInfinity) acc = fma_broadcast(p + j, load_first(v, n), acc);
      }
    }
    store(o + column, acc);
  }
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
