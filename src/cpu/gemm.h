// Projections: y = x W + b. A panel of W is packed [d_in][kPanelColumns]; each output is one chain of
// multiply-adds in order of the input dimension that starts at the bias, so a row's bits do not depend on the
// other rows.
#pragma once

#include "cpu/block_sizes.h"
#include "cpu/math.h"
#include "cpu/tile.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// Packs columns [column, column + kPanelColumns) of the weight; columns beyond d_out are zeros.
inline void pack_panel(const LinearParams& p, std::int64_t column, float* panel) {
  const std::int64_t columns = std::min<std::int64_t>(kPanelColumns, p.d_out - column);
  for (int c = 0; c < kPanelColumns; c += kWidth) {
    const int n = static_cast<int>(std::clamp<std::int64_t>(columns - c, 0, kWidth));
    if (p.weight_out_stride == 1) {
      for (std::int64_t d = 0; d < p.d_in; ++d)
        store(panel + d * kPanelColumns + c,
              n > 0 ? load_first(p.weight + d * p.weight_in_stride + column + c, n) : zero());
      continue;
    }
    alignas(64) float rows[kWidth * kWidth], tile[kWidth * kWidth];
    for (std::int64_t d = 0; d < p.d_in; d += kWidth) {
      const int dims = static_cast<int>(std::min<std::int64_t>(kWidth, p.d_in - d));
      for (int i = 0; i < kWidth; ++i)
        store(rows + i * kWidth,
              i < n ? load_first(p.weight + (column + c + i) * p.weight_out_stride + d, dims) : zero());
      transpose_tile(rows, kWidth, tile, kWidth);
      for (int i = 0; i < dims; ++i) store(panel + (d + i) * kPanelColumns + c, load(tile + i * kWidth));
    }
  }
}

/// y[rows][columns] for kPanelRows rows of x at once (`rows` of them real).
inline void panel_product(const LinearParams& p, const float* const (&x)[kPanelRows], const float* panel,
                          std::int64_t column, std::int64_t row, int rows) {
  Vec acc[kPanelRows][kPanelVectors];
  const std::int64_t columns = std::min<std::int64_t>(kPanelColumns, p.d_out - column);
  alignas(64) float bias[kPanelColumns] = {};
  if (p.bias)
    for (std::int64_t c = 0; c < columns; ++c) bias[c] = p.bias[column + c];
  SACCADE_UNROLL
  for (int i = 0; i < kPanelRows; ++i) {
    SACCADE_UNROLL
    for (int c = 0; c < kPanelVectors; ++c) acc[i][c] = load(bias + c * kWidth);
  }
  for (std::int64_t d = 0; d < p.d_in; ++d) {
    Vec w[kPanelVectors];
    SACCADE_UNROLL
    for (int c = 0; c < kPanelVectors; ++c) w[c] = load(panel + d * kPanelColumns + c * kWidth);
    SACCADE_UNROLL
    for (int i = 0; i < kPanelRows; ++i) {
      SACCADE_UNROLL
      for (int c = 0; c < kPanelVectors; ++c) acc[i][c] = fma_broadcast(x[i] + d, w[c], acc[i][c]);
    }
  }
  SACCADE_UNROLL
  for (int i = 0; i < kPanelRows; ++i) {
    float* y = p.y + (row + i) * p.y_stride + column;
    if (i < rows) {
      SACCADE_UNROLL
      for (int c = 0; c < kPanelVectors; ++c)
        if (columns > c * kWidth) store_first(y + c * kWidth, static_cast<int>(columns) - c * kWidth, acc[i][c]);
    }
  }
}

/// Rows [row, row_end) of the panel of columns that begins at `column`.
inline void linear(const LinearParams& p, std::int64_t row, std::int64_t row_end, std::int64_t column,
                   float* scratch) {
  pack_panel(p, column, scratch);
  for (; row < row_end; row += kPanelRows) {
    const int rows = static_cast<int>(std::min<std::int64_t>(kPanelRows, row_end - row));
    const float* x[kPanelRows];
    for (int i = 0; i < kPanelRows; ++i) x[i] = p.x + (row + std::min(i, rows - 1)) * p.x_stride;
    panel_product(p, x, scratch, column, row, rows);
  }
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
