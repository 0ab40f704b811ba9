// Matrix products c = a b, begun at a bias or at what stands in c: projections and their gradients. Each number of
// c is one chain of multiply-adds in order of the depth, however the work is cut up, so that its bits depend on
// its row of a and its column of b alone.
//
// A block of b, [kProductDepth][columns of a unit of work], is packed into panels of kTileColumns columns and
// stays in the second-level cache; kTileRows rows of a are packed for the first-level one and meet its panels one
// after the other.
#pragma once

#include "cpu/block_sizes.h"
#include "cpu/math.h"
#include "cpu/tile.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// How the numbers of a tile of a lie, packed as they lay: a row in a run, or a column.
struct TileOfRows {
  static constexpr std::int64_t kRow = kProductDepth + 16, kStep = 1;
};
struct TileOfColumns {
  static constexpr std::int64_t kRow = 1, kStep = kTileRows;
};
/// Numbers of a packed tile; a vector may be stored at its last step.
inline constexpr std::int64_t kPackedTile = kTileRows * TileOfRows::kRow + kWidth;

/// Steps [begin, begin + count) of a product's depth.
struct ProductSteps {
  std::int64_t begin = 0, count = 0;
};

/// The first n numbers of a vector, of which none or all may be there. (Masks of AVX2 cost 20 times a plain
/// access.)
SACCADE_INLINE Vec load_part(const float* p, int n) {
  return n >= kWidth ? loadu(p) : load_first(p, std::max(n, 0));
}
SACCADE_INLINE void store_part(float* p, int n, Vec x) {
  if (n >= kWidth)
    storeu(p, x);
  else
    store_first(p, std::max(n, 0), x);
}

/// Packs rows [row, row + rows) of a.
inline void pack_rows(const ProductParams& p, ProductSteps steps, std::int64_t row, int rows, float* tile) {
  const float* from = p.a + row * p.a_row_stride + steps.begin * p.a_depth_stride;
  if (p.a_depth_stride == 1) {
    for (int i = 0; i < rows; ++i, from += p.a_row_stride, tile += TileOfRows::kRow) {
      std::int64_t d = 0;
      for (; d + kWidth <= steps.count; d += kWidth) store(tile + d, loadu(from + d));
      if (d < steps.count) store(tile + d, load_first(from + d, static_cast<int>(steps.count - d)));
    }
    return;
  }
  for (std::int64_t d = 0; d < steps.count; ++d, from += p.a_depth_stride, tile += TileOfColumns::kStep) {
    SACCADE_UNROLL
    for (int i = 0; i < kTileRows; i += kWidth) storeu(tile + i, load_part(from + i, rows - i));
  }
}

/// Packs columns [column, column + columns) of b, at most kTileColumns, into a panel [steps][kTileColumns];
/// columns that are not there are zeros.
inline void pack_panel(const ProductParams& p, ProductSteps steps, std::int64_t column, std::int64_t columns,
                       float* panel) {
  const float* from = p.b + steps.begin * p.b_depth_stride + column * p.b_column_stride;
  for (int c = 0; c < kTileColumns; c += kWidth, from += kWidth * p.b_column_stride) {
    const int n = static_cast<int>(std::clamp<std::int64_t>(columns - c, 0, kWidth));
    if (p.b_column_stride == 1) {
      for (std::int64_t d = 0; d < steps.count; ++d)
        store(panel + d * kTileColumns + c, load_part(from + d * p.b_depth_stride, n));
      continue;
    }
    for (std::int64_t d = 0; d < steps.count; d += kWidth) {
      const int count = static_cast<int>(std::min<std::int64_t>(kWidth, steps.count - d));
      if (n == kWidth && count == kWidth) {
        transpose_tile(from + d, p.b_column_stride, panel + d * kTileColumns + c, kTileColumns);
        continue;
      }
      alignas(64) float rows[kWidth * kWidth], tile[kWidth * kWidth];
      for (int i = 0; i < kWidth; ++i)
        store(rows + i * kWidth, i < n ? load_first(from + i * p.b_column_stride + d, count) : zero());
      transpose_tile(rows, kWidth, tile, kWidth);
      for (int i = 0; i < count; ++i) store(panel + (d + i) * kTileColumns + c, load(tile + i * kWidth));
    }
  }
}

/// Rows of numbers in memory; all the same one where the stride is 0.
template <class T>
struct ProductRows {
  T* data;
  std::int64_t stride;
};

/// c = begin + a b for a packed tile of a and a panel of b.
template <class Order, int kRows>
__attribute__((noinline)) void product_tile(const float* a, const float* b, std::int64_t steps,
                                            ProductRows<const float> begin, ProductRows<float> c) {
  Vec acc[kRows][kTileVectors];
  SACCADE_UNROLL
  for (int i = 0; i < kRows; ++i) {
    SACCADE_UNROLL
    for (int v = 0; v < kTileVectors; ++v) acc[i][v] = loadu(begin.data + i * begin.stride + v * kWidth);
  }
  for (std::int64_t d = 0; d < steps; ++d, a += Order::kStep, b += kTileColumns) {
    Vec column[kTileVectors];
    SACCADE_UNROLL
    for (int v = 0; v < kTileVectors; ++v) column[v] = load(b + v * kWidth);
    SACCADE_UNROLL
    for (int i = 0; i < kRows; ++i) {
      SACCADE_UNROLL
      for (int v = 0; v < kTileVectors; ++v) acc[i][v] = fma_broadcast(a + i * Order::kRow, column[v], acc[i][v]);
    }
  }
  SACCADE_UNROLL
  for (int i = 0; i < kRows; ++i) {
    SACCADE_UNROLL
    for (int v = 0; v < kTileVectors; ++v) storeu(c.data + i * c.stride + v * kWidth, acc[i][v]);
  }
}

/// product_tile where only `rows` rows and `columns` columns of c are there.
template <class Order, int kRows>
void product_edge(const float* a, const float* b, std::int64_t steps, ProductRows<const float> begin,
                  ProductRows<float> c, int rows, int columns) {
  alignas(64) float whole[kRows][kTileColumns];
  for (int i = 0; i < kRows; ++i)
    for (int v = 0; v < kTileColumns; v += kWidth)
      store(whole[i] + v, load_part(begin.data + std::min(i, rows - 1) * begin.stride + v, columns - v));
  product_tile<Order, kRows>(a, b, steps, {whole[0], kTileColumns}, {whole[0], kTileColumns});
  for (int i = 0; i < rows; ++i)
    for (int v = 0; v < kTileColumns; v += kWidth)
      store_part(c.data + i * c.stride + v, columns - v, load(whole[i] + v));
}

/// Meets kTileRows rows of a block with the packed panels of its columns.
template <class Order>
void product_of_rows(const ProductParams& p, const ProductBlock& block, ProductSteps steps, std::int64_t row,
                     int rows, const float* panel, const float* packed) {
  alignas(64) static constexpr float kZeros[kTileColumns] = {};
  for (std::int64_t column = block.column; column < block.column_end; column += kTileColumns) {
    const int columns = static_cast<int>(std::min<std::int64_t>(kTileColumns, block.column_end - column));
    const ProductRows<float> c{p.c + row * p.c_stride + column, p.c_stride};
    ProductRows<const float> begin{c.data, c.stride};
    if (!p.adds && steps.begin == 0) begin = {p.bias ? p.bias + column : kZeros, 0};
    with_rows(rows, [&](auto constant) {
      constexpr int kRows = decltype(constant)::value;
      if (rows == kRows && columns == kTileColumns)
        product_tile<Order, kRows>(packed, panel, steps.count, begin, c);
      else
        product_edge<Order, kRows>(packed, panel, steps.count, begin, c, rows, columns);
    });
    panel += steps.count * kTileColumns;
  }
}

/// A block of c. The scratch holds kProductScratch floats.
inline void product(const ProductParams& p, const ProductBlock& block, float* scratch) {
  float* const panels = scratch + round_up(kPackedTile, kWidth);
  const std::int64_t parts = std::max<std::int64_t>(1, (p.depth + kProductDepth - 1) / kProductDepth);
  const std::int64_t most = round_up((p.depth + parts - 1) / parts, kWidth);
  ProductSteps steps;
  do {
    steps.count = std::min(most, p.depth - steps.begin);
    float* panel = panels;
    for (std::int64_t column = block.column; column < block.column_end; column += kTileColumns) {
      pack_panel(p, steps, column, std::min<std::int64_t>(kTileColumns, block.column_end - column), panel);
      panel += steps.count * kTileColumns;
    }
    for (std::int64_t row = block.row; row < block.row_end; row += kTileRows) {
      const int rows = static_cast<int>(std::min<std::int64_t>(kTileRows, block.row_end - row));
      pack_rows(p, steps, row, rows, scratch);
      if (p.a_depth_stride == 1)
        product_of_rows<TileOfRows>(p, block, steps, row, rows, panels, scratch);
      else
        product_of_rows<TileOfColumns>(p, block, steps, row, rows, panels, scratch);
    }
    steps.begin += steps.count;
  } while (steps.begin < p.depth);
}

inline constexpr std::int64_t kProductScratch =
    (kPackedTile + kWidth - 1) / kWidth * kWidth + kProductDepth * kProductColumns;

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
