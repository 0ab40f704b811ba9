// Products of tiles: S = Q K^T on packed queries and keys, O += P V on values in place, and the packing.
#pragma once

#include "cpu/block_sizes.h"
#include "cpu/math.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// Dimensions of a packed query row before the next chunk of the row begins. The stride is a constant, so that the
/// rows of a tile are displacements of one pointer, and no power of two, so that they fall into different cache
/// sets.
inline constexpr int kQueryChunk = 256;
inline constexpr int kQueryStride = kQueryChunk + 16;

inline std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

inline std::int64_t query_chunks(std::int64_t head_dim) { return (head_dim + kQueryChunk - 1) / kQueryChunk; }

/// Floats of the packed queries of one tile: [chunk][kTileRows][kQueryStride].
inline std::int64_t packed_query_floats(std::int64_t head_dim) {
  return query_chunks(head_dim) * kTileRows * kQueryStride;
}

/// Asks for one cache line of each of `kRows` rows. The packing loops read more rows at once than the processor's
/// own prefetchers follow: 1.5% of a forward at seqlen 1024 was spent waiting for them (Zen 4).
template <int kRows>
SACCADE_INLINE void prefetch_rows(const float* p, std::int64_t row_stride) {
  SACCADE_UNROLL
  for (int i = 0; i < kRows; ++i) __builtin_prefetch(p + i * row_stride);
}

/// Packs `rows` rows of q, times `factor`, into one tile; missing rows are zeros.
inline void pack_queries(const float* q, std::int64_t row_stride, int rows, std::int64_t head_dim, float factor,
                         float* packed) {
  const Vec scale = broadcast(factor);
  for (std::int64_t chunk = 0; chunk < query_chunks(head_dim); ++chunk) {
    const std::int64_t begin = chunk * kQueryChunk, length = std::min<std::int64_t>(kQueryChunk, head_dim - begin);
    for (int row = 0; row < kTileRows; ++row) {
      float* out = packed + (chunk * kTileRows + row) * kQueryStride;
      for (std::int64_t d = 0; d < length; d += kWidth) {
        const int n = static_cast<int>(std::min<std::int64_t>(kWidth, length - d));
        Vec x = zero();
        if (row < rows) {
          const float* from = q + row * row_stride + begin + d;
          __builtin_prefetch(from + kTileRows * row_stride);
          x = load_first(from, n);
        }
        store(out + d, canonical_nan(mul(x, scale)));
      }
    }
  }
}

/// Floats of one packed key block: [head_dim, rounded up to the vector width][kBlockK].
inline std::int64_t packed_key_floats(std::int64_t head_dim) { return round_up(head_dim, kWidth) * kBlockK; }

/// Packs `rows` <= kBlockK rows of k, transposed: packed[d][key]. Keys missing from the last tile are zeros, tiles
/// beyond it are left as they are.
inline void pack_key_block(const float* k, std::int64_t row_stride, std::int64_t rows, std::int64_t head_dim,
                           float* packed) {
  alignas(64) float edge[kWidth * kWidth];
  for (std::int64_t j = 0; j < round_up(rows, kTileColumns); j += kWidth) {
    const std::int64_t keys = std::clamp<std::int64_t>(rows - j, 0, kWidth);
    for (std::int64_t d = 0; d < head_dim; d += kWidth) {
      const int dims = static_cast<int>(std::min<std::int64_t>(kWidth, head_dim - d));
      const float* from = k + j * row_stride + d;
      if (j + 2 * kWidth <= rows) prefetch_rows<kWidth>(from + kWidth * row_stride, row_stride);
      std::int64_t from_stride = row_stride;
      if (keys < kWidth || dims < kWidth) {
        for (int i = 0; i < kWidth; ++i)
          store(edge + i * kWidth, i < keys ? load_first(from + i * row_stride, dims) : zero());
        from = edge;
        from_stride = kWidth;
      }
      float* to = packed + d * kBlockK + j;
      transpose_tile(from, from_stride, to, kBlockK);
      for (int i = 0; i < kWidth; ++i)
        if (any(is_nan(load(to + i * kBlockK)))) store(to + i * kBlockK, canonical_nan(load(to + i * kBlockK)));
    }
  }
}

/// The exponentials of an earlier tile, which score_tile spreads over its own multiplications: they use
/// other units of the processor. Row i of the columns at `scores` becomes exp2(score - maximum[i]).
struct PendingExp {
  const float* scores = nullptr;   // [kTileRows][kBlockK]
  float* probabilities = nullptr;  // [kTileRows][kBlockK]
  const float* maximum = nullptr;  // [kTileRows]
  float* row_sum = nullptr;        // [kTileRows][kWidth], added to
};

/// One row of kTileVectors vectors of a PendingExp.
struct PendingRow {
  Exp2 exp[kTileVectors];

  SACCADE_INLINE void begin(const PendingExp& work, int row) {
    SACCADE_UNROLL
    for (int v = 0; v < kTileVectors; ++v)
      exp[v] = exp2_begin(sub(load(work.scores + row * kBlockK + v * kWidth), broadcast_from(work.maximum + row)));
  }
  SACCADE_INLINE void step(int i) {
    SACCADE_UNROLL
    for (int v = 0; v < kTileVectors; ++v) exp2_step(exp[v], i);
  }
  SACCADE_INLINE void end(const PendingExp& work, int row) {
    Vec sum = load(work.row_sum + row * kWidth);
    SACCADE_UNROLL
    for (int v = 0; v < kTileVectors; ++v) {
      const Vec p = exp2_end(exp[v]);
      store(work.probabilities + row * kBlockK + v * kWidth, p);
      sum = add(sum, p);
    }
    store(work.row_sum + row * kWidth, sum);
  }
};

inline void exp_tile(const PendingExp& work) {
  for (int row = 0; row < kTileRows; ++row) {
    PendingRow pending;
    pending.begin(work, row);
    SACCADE_UNROLL
    for (int i = 0; i < kExp2Degree; ++i) pending.step(i);
    pending.end(work, row);
  }
}

/// Whether score_tile has registers and multiplications enough to hide exponentials behind.
inline constexpr bool kCanOverlap = kRegisters == 32;
inline constexpr std::int64_t kOverlapMinHeadDim = kTileRows * kExp2Degree;

/// scores[kTileRows][kTileColumns] (rows kBlockK apart) = queries * keys, and row_max[kTileRows][kWidth] raised to
/// them. Each score is one chain of multiply-adds in order of d, whatever else shares the tile.
template <bool kOverlap>
__attribute__((noinline)) void score_tile(const float* queries, const float* keys, std::int64_t head_dim,
                                          float* scores, float* row_max, const PendingExp& work) {
  Vec acc[kTileRows][kTileVectors];
  SACCADE_UNROLL
  for (int i = 0; i < kTileRows; ++i) {
    SACCADE_UNROLL
    for (int v = 0; v < kTileVectors; ++v) acc[i][v] = zero();
  }

  const float* q = queries;
  const float* k = keys;
  const auto step = [&]() __attribute__((always_inline)) {
    Vec key[kTileVectors];
    SACCADE_UNROLL
    for (int v = 0; v < kTileVectors; ++v) key[v] = load(k + v * kWidth);
    SACCADE_UNROLL
    for (int i = 0; i < kTileRows; ++i) {
      SACCADE_UNROLL
      for (int v = 0; v < kTileVectors; ++v) acc[i][v] = fma_broadcast(q + i * kQueryStride, key[v], acc[i][v]);
    }
    ++q;
    k += kBlockK;
  };

  std::int64_t d = 0;
  if constexpr (kOverlap) {
    const std::int64_t steps_per_row = std::min<std::int64_t>(head_dim, kQueryChunk) / kTileRows;
    for (int row = 0; row < kTileRows; ++row) {
      PendingRow pending;
      pending.begin(work, row);
      SACCADE_UNROLL
      for (int i = 0; i < kExp2Degree; ++i) {
        step();
        pending.step(i);
      }
      for (std::int64_t extra = kExp2Degree; extra < steps_per_row; ++extra) step();
      pending.end(work, row);
    }
    d = steps_per_row * kTileRows;
  }
  for (std::int64_t chunk_end = kQueryChunk; d < head_dim; chunk_end += kQueryChunk) {
    for (const std::int64_t end = std::min(head_dim, chunk_end); d < end; ++d) step();
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

/// o[kTileRows][kVectors vectors] = alpha * o + p v over `keys` keys; the last vector has `tail` columns of v
/// (kWidth: all). Each output is one chain of multiply-adds in order of the keys.
template <int kVectors, bool kTail>
__attribute__((noinline)) void value_tile(const float* p, const float* v, std::int64_t v_stride, std::int64_t keys,
                                          int tail, const float* alpha, float* o, std::int64_t o_stride) {
  Vec acc[kTileRows][kVectors];
  SACCADE_UNROLL
  for (int i = 0; i < kTileRows; ++i) {
    SACCADE_UNROLL
    for (int c = 0; c < kVectors; ++c) acc[i][c] = mul(broadcast(alpha[i]), load(o + i * o_stride + c * kWidth));
  }
  for (std::int64_t j = 0; j < keys; ++j) {
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
      for (int c = 0; c < kVectors; ++c) acc[i][c] = fma_broadcast(p + i * kBlockK, value[c], acc[i][c]);
    }
    ++p;
    v += v_stride;
  }
  SACCADE_UNROLL
  for (int i = 0; i < kTileRows; ++i) {
    SACCADE_UNROLL
    for (int c = 0; c < kVectors; ++c) store(o + i * o_stride + c * kWidth, acc[i][c]);
  }
}

/// value_tile for as many column vectors as `columns` (at most kTileVectors * kWidth) needs.
template <int kVectors = kTileVectors>
SACCADE_INLINE void value_columns(int columns, const float* p, const float* v, std::int64_t v_stride,
                                  std::int64_t keys, const float* alpha, float* o, std::int64_t o_stride) {
  if constexpr (kVectors > 1) {
    if (columns <= (kVectors - 1) * kWidth)
      return value_columns<kVectors - 1>(columns, p, v, v_stride, keys, alpha, o, o_stride);
  }
  const int tail = columns - (kVectors - 1) * kWidth;
  if (tail == kWidth)
    value_tile<kVectors, false>(p, v, v_stride, keys, kWidth, alpha, o, o_stride);
  else
    value_tile<kVectors, true>(p, v, v_stride, keys, tail, alpha, o, o_stride);
}

/// o[kTileRows][head_dim_v] = alpha * o + p v: p [kTileRows][kBlockK], v [keys, head_dim_v] in place.
inline void value_product(const float* p, const float* v, std::int64_t v_stride, std::int64_t keys,
                          std::int64_t head_dim_v, const float* alpha, float* o, std::int64_t o_stride) {
  for (std::int64_t column = 0; column < head_dim_v; column += kTileColumns)
    value_columns(static_cast<int>(std::min<std::int64_t>(kTileColumns, head_dim_v - column)), p, v + column,
                  v_stride, keys, alpha, o + column, o_stride);
}

/// The first row of the same product, leaving out keys whose score is -inf: a weight of 0 must not meet their
/// values, which may be NaN. Adding 0 * v changes no bit of a sum, so leaving it out does not either.
inline void value_product_of_visible(const float* scores, const float* p, const float* v, std::int64_t v_stride,
                                     std::int64_t keys, std::int64_t head_dim_v, float alpha, float* o) {
  for (std::int64_t column = 0; column < head_dim_v; column += kWidth) {
    const int n = static_cast<int>(std::min<std::int64_t>(kWidth, head_dim_v - column));
    Vec acc = mul(broadcast(alpha), load(o + column));
    for (std::int64_t j = 0; j < keys; ++j)
      if (scores[j] != -kInfinity) acc = fma(broadcast(p[j]), load_first(v + j * v_stride + column, n), acc);
    store(o + column, acc);
  }
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
