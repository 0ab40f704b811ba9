// Products c = f(a b) where b was packed before: the weights of a model, which do not change. The chains are those
// of gemm.h, and so are the bits.
//
// The packed b has the parts of the depth one after the other, each as panels [steps][kTileColumns] in the order
// of the columns, in b's own type: 16-bit numbers are half as much to read, which is the time of a product of few
// rows.
#pragma once

#include "cpu/activations.h"
#include "cpu/convert.h"
#include "cpu/gemm.h"

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

/// Columns of kPanels panels of c's only row: more chains than a tile of one row has, for a multiply-add waits for
/// the previous one on its chain.
template <int kPanels, class T>
void packed_panels_of_row(const float* a, const T* panels, std::int64_t steps, const float* begin, float* c) {
  Vec acc[kPanels][kTileVectors];
  SACCADE_UNROLL
  for (int i = 0; i < kPanels; ++i) {
    SACCADE_UNROLL
    for (int v = 0; v < kTileVectors; ++v) acc[i][v] = loadu(begin + i * kTileColumns + v * kWidth);
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
    for (int v = 0; v < kTileVectors; ++v) storeu(c + i * kTileColumns + v * kWidth, acc[i][v]);
  }
}

/// A part of the depth for c's only row.
template <class T>
void packed_product_of_row(const ProductParams& p, const ProductBlock& block, ProductSteps steps,
                           const T* panels) {
  constexpr int kPanels = kRowColumns / kTileColumns;
  const float* const a = static_cast<const float*>(p.a) + steps.begin;
  const bool adds = p.adds || steps.begin > 0;
  float* const c = static_cast<float*>(p.c);
  std::int64_t column = block.column;
  for (; column + kRowColumns <= block.column_end; column += kRowColumns, panels += steps.count * kRowColumns) {
    poll_progress();
    packed_panels_of_row<kPanels>(a, panels, steps.count, chains_begin(p, 0, column, adds).data, c + column);
  }
  alignas(64) float panel[kTileColumns];
  for (; column < block.column_end; column += kTileColumns, panels += steps.count * kTileColumns) {
    const float* const begin = chains_begin(p, 0, column, adds).data;
    const std::int64_t left = block.column_end - column;
    for (int v = 0; v < kTileColumns; v += kWidth) store(panel + v, load_part(begin + v, left - v));
    packed_panels_of_row<1>(a, panels, steps.count, panel, panel);
    for (int v = 0; v < kTileColumns; v += kWidth) store_part(c + column + v, left - v, load(panel + v));
  }
}

/// A part of the depth for rows of c.
template <class T>
void packed_product_of_rows(const ProductParams& p, const ProductBlock& block, ProductSteps steps, const T* panels,
                            float* tiles) {
  for (std::int64_t row = block.row; row < block.row_end; row += kTileRows) {
    poll_progress();
    const std::int64_t tile = (row - block.row) / kTileRows % (kPackedRows / kTileRows);
    if (tile == 0)
      pack_rows<float>(p, steps, row, static_cast<int>(std::min<std::int64_t>(kPackedRows, block.row_end - row)),
                       tiles);
    product_of_rows<TileOfRows>(p, block, steps, row,
                                static_cast<int>(std::min<std::int64_t>(kTileRows, block.row_end - row)), panels,
                                tiles + tile * kPackedTile);
  }
}

template <class T>
void packed_product_of(const ProductParams& p, const ProductBlock& block, float* scratch) {
  const std::int64_t padded = round_up(p.columns, kTileColumns), most = steps_of_a_part(p.depth);
  const std::int64_t rows = block.row_end - block.row, columns = block.column_end - block.column;
  float* const wide = scratch + kPackedRows / kTileRows * kPackedTile;
  for (ProductSteps steps; steps.begin < p.depth; steps.begin += steps.count) {
    steps.count = std::min(most, p.depth - steps.begin);
    const T* const panels = static_cast<const T*>(p.b) + steps.begin * padded + block.column * steps.count;
    if (p.rows == 1) {
      packed_product_of_row(p, block, steps, panels);
    } else if (std::is_same_v<T, float> || rows <= 2 * kTileRows) {
      packed_product_of_rows(p, block, steps, panels, scratch);
    } else {
      // Many rows would widen each panel many times.
      if constexpr (!std::is_same_v<T, float>)
        widen_all<T>(panels, wide, steps.count * round_up(columns, kTileColumns));
      packed_product_of_rows(p, block, steps, wide, scratch);
    }
  }
  if (p.activation == Activation::none) return;
  for (std::int64_t row = block.row; row < block.row_end; ++row) {
    float* const c = static_cast<float*>(p.c) + row * p.c_stride + block.column;
    activate(p.activation, c, nullptr, c, columns);
  }
}

/// A block of c. Its column is a multiple of a tile's; the scratch holds kProductScratch floats.
inline void packed_product(const ProductParams& p, const ProductBlock& block, float* scratch) {
  if (p.adds && p.bias) {
    for (std::int64_t row = block.row; row < block.row_end; ++row)
      add_to(p.bias + block.column, static_cast<float*>(p.c) + row * p.c_stride + block.column,
             block.column_end - block.column);
  }
  with_storage(p.dtype, [&](auto number) { packed_product_of<decltype(number)>(p, block, scratch); });
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
