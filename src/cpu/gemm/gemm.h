// Matrix products c = a b, starting from a bias or from the values in c: projections and their gradients. Each
// number of c is a sum of chains of multiply-adds, one for each part of the depth (steps_of_a_part), however the
// work is split, so its bits depend only on its row of a and its column of b.
//
// A block of b, [kProductDepth][columns of a unit of work], is packed into panels of kTileColumns columns and
// stays in the L2 cache; kTileRows rows of a are packed for the L1 cache and multiplied by one panel after
// another.
#pragma once

#include "cpu/attention/tile.h"
#include "cpu/policy/block_sizes.h"
#include "cpu/simd/elements.h"
#include "cpu/simd/math.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// The order of the numbers in a packed tile of a, which is their order in memory: contiguous rows, or contiguous
/// columns.
struct TileOfRows {
  static constexpr std::int64_t kRow = kProductDepth + 16, kStep = 1;
};
struct TileOfColumns {
  static constexpr std::int64_t kRow = 1, kStep = (kTileRows + kWidth - 1) / kWidth * kWidth;
};
inline constexpr std::int64_t kPackedTile =
    std::max(kTileRows * TileOfRows::kRow, kProductDepth* TileOfColumns::kStep) + kWidth;
static_assert(kPackedTile % kWidth == 0);

/// Steps [begin, begin + count) of a product's depth.
struct ProductSteps {
  std::int64_t begin = 0, count = 0;
};

/// The depth is divided into parts of this many steps; the last may have fewer. They are packed one after another,
/// and each is a separate chain: one chain over a depth of 1536 has 2.7 times the error of eight of 192.
inline std::int64_t steps_of_a_part(std::int64_t depth) {
  const std::int64_t parts = std::max<std::int64_t>(1, (depth + kProductDepth - 1) / kProductDepth);
  return round_up((depth + parts - 1) / parts, kWidth);
}

/// Packs rows [row, row + rows) of a, at most kPackedRows, of type T, into consecutive tiles.
template <class T>
void pack_rows(const ProductParams& p, ProductSteps steps, std::int64_t row, int rows, float* tiles) {
  const T* from = static_cast<const T*>(p.a) + row * p.a_row_stride + steps.begin * p.a_depth_stride;
  if (p.a_depth_stride == 1) {
    for (int i = 0; i < rows; ++i, from += p.a_row_stride) {
      float* const to = tiles + i / kTileRows * kPackedTile + i % kTileRows * TileOfRows::kRow;
      for (std::int64_t d = 0; d < steps.count; d += kWidth)
        store(to + d, load_part(from + d, static_cast<int>(std::min<std::int64_t>(kWidth, steps.count - d))));
    }
    return;
  }
  for (std::int64_t d = 0; d < steps.count; ++d, from += p.a_depth_stride) {
    float* to = tiles + d * TileOfColumns::kStep;
    for (int i = 0; i < rows; i += kTileRows, to += kPackedTile) {
      SACCADE_UNROLL
      for (int v = 0; v < kTileRows; v += kWidth) store(to + v, load_part(from + i + v, rows - i - v));
    }
  }
}

/// Writes the transpose of `rows` rows of `columns` numbers, at most kWidth of each, to rows of `to`, padded with
/// zeros.
template <class T>
void transpose_part(const T* from, std::int64_t stride, int rows, int columns, float* to, std::int64_t to_stride) {
  if constexpr (std::is_same_v<T, float>)
    if (rows == kWidth && columns == kWidth) return transpose_tile(from, stride, to, to_stride);
  alignas(64) float whole[kWidth * kWidth], tile[kWidth * kWidth];
  for (int i = 0; i < kWidth; ++i)
    store(whole + i * kWidth, i < rows ? load_first(from + i * stride, columns) : zero());
  transpose_tile(whole, kWidth, tile, kWidth);
  for (int i = 0; i < columns; ++i) store(to + i * to_stride, load(tile + i * kWidth));
}

/// Packs columns [column, column_end) of b, of type T, into panels [steps][kTileColumns]; missing columns are
/// zeros.
template <class T>
void pack_panels(const ProductParams& p, ProductSteps steps, std::int64_t column, std::int64_t column_end,
                 float* panels) {
  const std::int64_t panel_size = steps.count * kTileColumns;
  const T* from = static_cast<const T*>(p.b) + steps.begin * p.b_depth_stride + column * p.b_column_stride;
  const std::int64_t columns = column_end - column;
  if (p.b_column_stride == 1) {
    for (std::int64_t begin = 0; begin < columns; begin += kPackedColumns) {
      const std::int64_t end = std::min<std::int64_t>(columns, begin + kPackedColumns);
      for (std::int64_t d = 0; d < steps.count; ++d) {
        float* to = panels + begin / kTileColumns * panel_size + d * kTileColumns;
        for (std::int64_t c = begin; c < end; c += kTileColumns, to += panel_size) {
          SACCADE_UNROLL
          for (int v = 0; v < kTileColumns; v += kWidth)
            store(to + v, load_part(from + d * p.b_depth_stride + c + v, static_cast<int>(end - c) - v));
        }
      }
    }
    return;
  }
  for (std::int64_t c = 0; c < round_up(columns, kTileColumns); c += kWidth) {
    const int n = static_cast<int>(std::clamp<std::int64_t>(columns - c, 0, kWidth));
    float* const panel = panels + c / kTileColumns * panel_size + c % kTileColumns;
    const T* const rows_of_b = from + c * p.b_column_stride;
    for (std::int64_t d = 0; d < steps.count; d += kWidth)
      transpose_part(rows_of_b + d, p.b_column_stride, n,
                     static_cast<int>(std::min<std::int64_t>(kWidth, steps.count - d)), panel + d * kTileColumns,
                     kTileColumns);
  }
}

/// Rows of numbers in memory; with a stride of 0 all rows are the same one.
template <class T>
struct ProductRows {
  T* data;
  std::int64_t stride;
};

/// c = begin + a b for a packed tile of a and a panel of b: as one chain that starts at begin or, if kJoins, as a
/// separate chain that is added. kPrefetches: also prefetches the panel that follows b.
template <class Order, int kRows, bool kJoins, bool kPrefetches>
__attribute__((noinline)) void product_tile(const float* a, const float* b, std::int64_t steps,
                                            ProductRows<const float> begin, ProductRows<float> c) {
  Vec acc[kRows][kTileVectors];
  SACCADE_UNROLL
  for (int i = 0; i < kRows; ++i) {
    SACCADE_UNROLL
    for (int v = 0; v < kTileVectors; ++v)
      acc[i][v] = kJoins ? zero() : loadu(begin.data + i * begin.stride + v * kWidth);
  }
  for (std::int64_t d = 0; d < steps; ++d, a += Order::kStep, b += kTileColumns) {
    Vec column[kTileVectors];
    SACCADE_UNROLL
    for (int v = 0; v < kTileVectors; ++v) column[v] = load(b + v * kWidth);
    SACCADE_UNROLL
    for (int i = 0; i < kRows; ++i) multiply_add_row(a + i * Order::kRow, column, acc[i]);
    if constexpr (kPrefetches) {
      SACCADE_UNROLL
      for (int line = 0; line < kTileColumns; line += 16) __builtin_prefetch(b + steps * kTileColumns + line);
    }
  }
  SACCADE_UNROLL
  for (int i = 0; i < kRows; ++i) {
    SACCADE_UNROLL
    for (int v = 0; v < kTileVectors; ++v) {
      if constexpr (kJoins) acc[i][v] = add(loadu(begin.data + i * begin.stride + v * kWidth), acc[i][v]);
      storeu(c.data + i * c.stride + v * kWidth, acc[i][v]);
    }
  }
}

/// product_tile where c has only `rows` rows and `columns` columns.
template <class Order, int kRows, bool kJoins, bool kPrefetches>
void product_edge(const float* a, const float* b, std::int64_t steps, ProductRows<const float> begin,
                  ProductRows<float> c, int rows, int columns) {
  alignas(64) float whole[kRows][kTileColumns];
  for (int i = 0; i < kRows; ++i)
    for (int v = 0; v < kTileColumns; v += kWidth)
      store(whole[i] + v, load_part(begin.data + std::min(i, rows - 1) * begin.stride + v, columns - v));
  product_tile<Order, kRows, kJoins, kPrefetches>(a, b, steps, {whole[0], kTileColumns}, {whole[0], kTileColumns});
  for (int i = 0; i < rows; ++i)
    for (int v = 0; v < kTileColumns; v += kWidth)
      store_part(c.data + i * c.stride + v, columns - v, load(whole[i] + v));
}

/// The start values of rows of c, from `column` on: the values in c, the bias, or zeros.
inline ProductRows<const float> chains_begin(const ProductParams& p, std::int64_t row, std::int64_t column,
                                             bool adds) {
  alignas(64) static constexpr float kZeros[kRowColumns] = {};
  if (adds) return {static_cast<const float*>(p.c) + row * p.c_stride + column, p.c_stride};
  return {p.bias ? p.bias + column : kZeros, 0};
}

/// Columns of c's only row where the rows of b are contiguous: kVectors whole vectors, or n numbers of one.
template <int kVectors>
void product_of_row(const ProductParams& p, std::int64_t column, int n) {
  const float* const begin = chains_begin(p, 0, column, p.adds).data;
  const float* const a = static_cast<const float*>(p.a);
  const float* b = static_cast<const float*>(p.b) + column;
  Vec sum[kVectors];
  SACCADE_UNROLL
  for (int v = 0; v < kVectors; ++v) sum[v] = kVectors == 1 ? load_first(begin, n) : loadu(begin + v * kWidth);
  for (std::int64_t d = 0, part = steps_of_a_part(p.depth); d < p.depth;) {
    const bool is_first = d == 0;
    Vec acc[kVectors];
    SACCADE_UNROLL
    for (int v = 0; v < kVectors; ++v) acc[v] = is_first ? sum[v] : zero();
    for (const std::int64_t end = std::min(p.depth, d + part); d < end; ++d, b += p.b_depth_stride) {
      SACCADE_UNROLL
      for (int v = 0; v < kVectors; ++v)
        acc[v] = fma_broadcast(a + d * p.a_depth_stride, kVectors == 1 ? load_first(b, n) : loadu(b + v * kWidth),
                               acc[v]);
    }
    SACCADE_UNROLL
    for (int v = 0; v < kVectors; ++v) sum[v] = is_first ? acc[v] : add(sum[v], acc[v]);
  }
  SACCADE_UNROLL
  for (int v = 0; v < kVectors; ++v) store_part(static_cast<float*>(p.c) + column + v * kWidth, n, sum[v]);
}

/// n <= kWidth columns of c's only row where the columns of b are contiguous.
inline void product_of_row_and_columns(const ProductParams& p, std::int64_t column, int n) {
  alignas(64) float tile[kWidth * kWidth];
  const float* const a = static_cast<const float*>(p.a);
  const float* const b = static_cast<const float*>(p.b) + column * p.b_column_stride;
  Vec sum = load_first(chains_begin(p, 0, column, p.adds).data, n);
  for (std::int64_t d = 0, part = steps_of_a_part(p.depth); d < p.depth;) {
    const bool is_first = d == 0;
    Vec acc = is_first ? sum : zero();
    for (const std::int64_t end = std::min(p.depth, d + part); d < end; d += kWidth) {
      const int count = static_cast<int>(std::min<std::int64_t>(kWidth, end - d));
      transpose_part(b + d, p.b_column_stride, n, count, tile, kWidth);
      for (int i = 0; i < count; ++i)
        acc = fma_broadcast(a + (d + i) * p.a_depth_stride, load(tile + i * kWidth), acc);
    }
    sum = is_first ? acc : add(sum, acc);
  }
  store_first(static_cast<float*>(p.c) + column, n, sum);
}

/// Columns of c's only row, of f32: each number of b is used only once, so nothing is packed. 768 x 768 weights
/// take 49 and 28 us in the two layouts instead of 92 (Zen 4). All parts of the depth of some columns come before
/// the next columns: part by part, b would be read in pieces, which takes a sixth longer for 768 x 3072 weights
/// (Zen 4).
inline void product_of_single_row(const ProductParams& p, std::int64_t column, std::int64_t end) {
  const auto rest = [&] { return static_cast<int>(std::min<std::int64_t>(kWidth, end - column)); };
  if (p.b_column_stride != 1) {
    for (; column < end; column += kWidth) {
      poll_progress();
      product_of_row_and_columns(p, column, rest());
    }
    return;
  }
  for (; column + kRowColumns <= end; column += kRowColumns) {
    poll_progress();
    product_of_row<kRowColumns / kWidth>(p, column, kWidth);
  }
  for (; column < end; column += kWidth) product_of_row<1>(p, column, rest());
}

/// Multiplies kTileRows rows of a block by the packed panels of its columns, for a part of the depth.
template <class Order, bool kPrefetches = false>
void product_of_rows(const ProductParams& p, const ProductBlock& block, ProductSteps steps, std::int64_t row,
                     int rows, const float* panel, const float* packed) {
  for (std::int64_t column = block.column; column < block.column_end; column += kTileColumns) {
    const int columns = static_cast<int>(std::min<std::int64_t>(kTileColumns, block.column_end - column));
    const ProductRows<float> c{static_cast<float*>(p.c) + row * p.c_stride + column, p.c_stride};
    const ProductRows<const float> begin = chains_begin(p, row, column, p.adds || steps.begin > 0);
    with_rows(rows, [&](auto constant) {
      constexpr int kRows = decltype(constant)::value;
      const bool is_whole = rows == kRows && columns == kTileColumns;
      if (steps.begin > 0 && is_whole)
        product_tile<Order, kRows, true, kPrefetches>(packed, panel, steps.count, begin, c);
      else if (steps.begin > 0)
        product_edge<Order, kRows, true, kPrefetches>(packed, panel, steps.count, begin, c, rows, columns);
      else if (is_whole)
        product_tile<Order, kRows, false, kPrefetches>(packed, panel, steps.count, begin, c);
      else
        product_edge<Order, kRows, false, kPrefetches>(packed, panel, steps.count, begin, c, rows, columns);
    });
    panel += steps.count * kTileColumns;
  }
}

/// A block of c, where a and b have type T.
template <class T>
void product_of(const ProductParams& p, const ProductBlock& block, float* scratch) {
  if (std::is_same_v<T, float> && p.rows == 1) return product_of_single_row(p, block.column, block.column_end);
  float* const panels = scratch + kPackedRows / kTileRows * kPackedTile;
  const std::int64_t most = steps_of_a_part(p.depth);
  ProductSteps steps;
  do {
    steps.count = std::min(most, p.depth - steps.begin);
    pack_panels<T>(p, steps, block.column, block.column_end, panels);
    for (std::int64_t row = block.row; row < block.row_end; row += kTileRows) {
      poll_progress();
      const std::int64_t tile = (row - block.row) / kTileRows % (kPackedRows / kTileRows);
      if (tile == 0)
        pack_rows<T>(p, steps, row, static_cast<int>(std::min<std::int64_t>(kPackedRows, block.row_end - row)),
                     scratch);
      const int rows = static_cast<int>(std::min<std::int64_t>(kTileRows, block.row_end - row));
      const float* const packed = scratch + tile * kPackedTile;
      if (p.a_depth_stride == 1)
        product_of_rows<TileOfRows>(p, block, steps, row, rows, panels, packed);
      else
        product_of_rows<TileOfColumns>(p, block, steps, row, rows, panels, packed);
    }
  } while ((steps.begin += steps.count) < p.depth);
}

/// A block of c. The scratch holds kProductScratch floats.
inline void product(const ProductParams& p, const ProductBlock& block, float* scratch) {
  with_storage(p.dtype, [&](auto number) { product_of<decltype(number)>(p, block, scratch); });
}

inline constexpr std::int64_t kProductScratch =
    kPackedRows / kTileRows * kPackedTile + kProductDepth * kProductColumns;

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
