// Products c = f(a b) with a b that was packed in advance: a model's weights, which do not change. The chains are
// those of gemm.h, and so are the bits.
//
// The packed b has the parts of the depth one after the other, each as panels [steps][kTileColumns] in the order
// of the columns, in b's own type: 16-bit numbers halve what is read, which decides the time of a product of few
// rows.
#pragma once

#include "cpu/elementwise/activations.h"
#include "cpu/elementwise/convert.h"
#include "cpu/gemm/gemm.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

template <class T>
void pack_product_of(const ProductParams& p, std::int64_t column, std::int64_t column_end, T* packed,
                     float* panels) {
  const std::int64_t padded = round_up(p.columns, kTileColumns), most = steps_of_a_part(p.depth);
  const std::int64_t width = round_up(column_end - column, kTileColumns);
  for (ProductSteps steps; steps.begin < p.depth; steps.begin += steps.count) {
    steps.count = std::min(most, p.depth - steps.begin);
    T* const to = packed + steps.begin * padded + column * steps.count;
    if constexpr (std::is_same_v<T, float>) {
      pack_panels<T>(p, steps, column, column_end, to);
    } else {
      pack_panels<T>(p, steps, column, column_end, panels);
      narrow_all<T>(panels, to, steps.count * width);
    }
  }
}

inline void pack_product(const ProductParams& p, std::int64_t column, std::int64_t column_end, void* packed,
                         float* scratch) {
  with_storage(p.dtype, [&](auto number) {
    pack_product_of(p, column, column_end, static_cast<decltype(number)*>(packed), scratch);
  });
}

template <class T>
void unpack_product_of(const ProductParams& p, float* to) {
  const std::int64_t padded = round_up(p.columns, kTileColumns), most = steps_of_a_part(p.depth);
  for (ProductSteps steps; steps.begin < p.depth; steps.begin += steps.count) {
    steps.count = std::min(most, p.depth - steps.begin);
    const T* panel = static_cast<const T*>(p.b) + steps.begin * padded;
    for (std::int64_t column = 0; column < p.columns; column += kTileColumns) {
      const std::int64_t left = std::min<std::int64_t>(kTileColumns, p.columns - column);
      for (std::int64_t d = 0; d < steps.count; ++d, panel += kTileColumns)
        for (std::int64_t i = 0; i < left; ++i)
          to[(steps.begin + d) * p.columns + column + i] = static_cast<float>(panel[i]);
    }
  }
}

/// The numbers of a packed b, [depth, columns].
inline void unpack_product(const ProductParams& p, float* to) {
  with_storage(p.dtype, [&](auto number) { unpack_product_of<decltype(number)>(p, to); });
}

/// A vector of a panel.
SACCADE_INLINE Vec load_panel(const float* p) { return load(p); }
template <class T>
SACCADE_INLINE Vec load_panel(const T* p) {
  return loadu(p);
}

/// Columns of kPanels panels of c's only row: more chains than a tile of one row has, because a multiply-add waits
/// for the previous one of its chain. joins: as kJoins of product_tile.
template <int kPanels, class T>
void packed_panels_of_row(const float* a, const T* panels, std::int64_t steps, const float* begin, bool joins,
                          float* c) {
  Vec acc[kPanels][kTileVectors];
  SACCADE_UNROLL
  for (int i = 0; i < kPanels; ++i) {
    SACCADE_UNROLL
    for (int v = 0; v < kTileVectors; ++v)
      acc[i][v] = joins ? zero() : loadu(begin + i * kTileColumns + v * kWidth);
  }
  for (std::int64_t d = 0; d < steps; ++d) {
    SACCADE_UNROLL
    for (int i = 0; i < kPanels; ++i) {
      SACCADE_UNROLL
      for (int v = 0; v < kTileVectors; ++v)
        acc[i][v] =
            fma_broadcast(a + d, load_panel(panels + (i * steps + d) * kTileColumns + v * kWidth), acc[i][v]);
    }
  }
  SACCADE_UNROLL
  for (int i = 0; i < kPanels; ++i) {
    SACCADE_UNROLL
    for (int v = 0; v < kTileVectors; ++v) {
      const std::int64_t at = i * kTileColumns + v * kWidth;
      storeu(c + at, joins ? add(loadu(begin + at), acc[i][v]) : acc[i][v]);
    }
  }
}

/// A part of the depth for c's only row.
template <class T>
void packed_product_of_row(const ProductParams& p, const ProductBlock& block, ProductSteps steps,
                           const T* panels) {
  constexpr int kPanels = kRowColumns / kTileColumns;
  const float* const a = static_cast<const float*>(p.a) + steps.begin;
  const bool joins = steps.begin > 0;
  float* const c = static_cast<float*>(p.c);
  std::int64_t column = block.column;
  for (; column + kRowColumns <= block.column_end; column += kRowColumns, panels += steps.count * kRowColumns) {
    poll_progress();
    packed_panels_of_row<kPanels>(a, panels, steps.count, chains_begin(p, 0, column, joins).data, joins,
                                  c + column);
  }
  alignas(64) float panel[kTileColumns];
  for (; column < block.column_end; column += kTileColumns, panels += steps.count * kTileColumns) {
    const float* const begin = chains_begin(p, 0, column, joins).data;
    const std::int64_t left = block.column_end - column;
    for (int v = 0; v < kTileColumns; v += kWidth) store(panel + v, load_part(begin + v, left - v));
    packed_panels_of_row<1>(a, panels, steps.count, panel, joins, panel);
    for (int v = 0; v < kTileColumns; v += kWidth) store_part(c + column + v, left - v, load(panel + v));
  }
}

/// A panel times the packed rows [row, row_end) of a. kPrefetches: prefetches the next panel.
template <bool kPrefetches>
void packed_panel_of_rows(const ProductParams& p, const ProductBlock& part, ProductSteps steps, const float* panel,
                          const float* tile) {
  for (std::int64_t row = part.row; row < part.row_end; row += kTileRows, tile += kPackedTile) {
    const int rows = static_cast<int>(std::min<std::int64_t>(kTileRows, part.row_end - row));
    if (kPrefetches && row == part.row)
      product_of_rows<TileOfRows, true>(p, part, steps, row, rows, panel, tile);
    else
      product_of_rows<TileOfRows>(p, part, steps, row, rows, panel, tile);
  }
}

/// A part of the depth for rows of c. Each panel is multiplied by all packed rows before the next: it stays in the
/// L1 cache, and weights that come from memory are read once for kPackedRows rows.
template <class T>
void packed_product_of_rows(const ProductParams& p, const ProductBlock& block, ProductSteps steps, const T* panels,
                            float* tiles) {
  float* const wide = tiles + kPackedRows / kTileRows * kPackedTile;
  for (std::int64_t row = block.row; row < block.row_end; row += kPackedRows) {
    const std::int64_t row_end = std::min(row + kPackedRows, block.row_end);
    pack_rows<float>(p, steps, row, static_cast<int>(row_end - row), tiles);
    const T* panel = panels;
    for (std::int64_t column = block.column; column < block.column_end; column += kTileColumns) {
      poll_progress();
      const ProductBlock part{row, row_end, column,
                              std::min<std::int64_t>(column + kTileColumns, block.column_end)};
      if constexpr (std::is_same_v<T, float>) {
        packed_panel_of_rows<true>(p, part, steps, panel, tiles);
      } else {
        widen_all<T>(panel, wide, steps.count * kTileColumns);
        packed_panel_of_rows<false>(p, part, steps, wide, tiles);
      }
      panel += steps.count * kTileColumns;
    }
  }
}

template <class T>
void packed_product_of(const ProductParams& p, const ProductBlock& block, float* scratch) {
  const std::int64_t padded = round_up(p.columns, kTileColumns), most = steps_of_a_part(p.depth);
  for (ProductSteps steps; steps.begin < p.depth; steps.begin += steps.count) {
    steps.count = std::min(most, p.depth - steps.begin);
    const T* const panels = static_cast<const T*>(p.b) + steps.begin * padded + block.column * steps.count;
    if (p.rows == 1)
      packed_product_of_row(p, block, steps, panels);
    else
      packed_product_of_rows(p, block, steps, panels, scratch);
  }
  if (p.activation == Activation::none) return;
  for (std::int64_t row = block.row; row < block.row_end; ++row) {
    float* const c = static_cast<float*>(p.c) + row * p.c_stride + block.column;
    activate(p.activation, c, nullptr, c, block.column_end - block.column);
  }
}

/// A block of c += a b. The product is complete before it is added: where c is a residual stream with a few large
/// numbers, a chain that began or ended there would round to their units in the last place. `sums` holds
/// kPackedRows rows of it.
template <class T>
void add_packed_product_of(const ProductParams& p, const ProductBlock& block, float* scratch, float* sums) {
  const std::int64_t columns = block.column_end - block.column;
  for (std::int64_t row = block.row; row < block.row_end; row += kPackedRows) {
    const std::int64_t row_end = std::min(row + kPackedRows, block.row_end);
    ProductParams product = p;
    product.adds = false;
    product.c_stride = round_up(columns, kTileColumns);
    product.c = sums - row * product.c_stride - block.column;
    packed_product_of<T>(product, {row, row_end, block.column, block.column_end}, scratch);
    for (std::int64_t i = row; i < row_end; ++i)
      add_to(sums + (i - row) * product.c_stride, static_cast<float*>(p.c) + i * p.c_stride + block.column,
             columns);
  }
}

/// A block of c. Its column is a multiple of a tile's; the scratch holds kProductScratch floats and, if p adds,
/// kPackedRows rows of the block.
inline void packed_product(const ProductParams& p, const ProductBlock& block, float* scratch) {
  with_storage(p.dtype, [&](auto number) {
    if (p.adds)
      add_packed_product_of<decltype(number)>(p, block, scratch, scratch + kProductScratch);
    else
      packed_product_of<decltype(number)>(p, block, scratch);
  });
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
