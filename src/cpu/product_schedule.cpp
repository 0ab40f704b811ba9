#include <algorithm>

#include "core/ceil_div.h"
#include "core/parallel.h"
#include "cpu/policy.h"
#include "cpu/product_blas.h"
#include "cpu/schedules.h"

namespace saccade::cpu {
namespace {

/// Whether a product is so small that packing would cost more than it saves.
bool is_small(const KernelSet& kernels, const ProductParams& p) {
  return p.depth <= kSmallDepth && p.columns <= kernels.small_product_columns && p.rows <= 64 &&
         p.a_depth_stride == 1 && p.b_column_stride == 1 && !p.adds;
}

void run_in_blocks(const KernelSet& kernels, const ProductParams& p) {
  const std::int64_t tiles = ceil_div(p.rows, kernels.product_rows) * ceil_div(p.columns, kernels.product_panel);
  const int threads = threads_for(tiles, product_threads(p));
  std::int64_t rows = p.rows;
  std::int64_t columns = ceil_div(p.columns, ceil_div(p.columns, kernels.product_columns));
  const auto units = [&] { return ceil_div(p.rows, rows) * ceil_div(p.columns, columns); };
  const auto halve = [](std::int64_t& size, std::int64_t multiple) {
    size = ceil_div(ceil_div(size, 2), multiple) * multiple;
  };
  // Each unit packs the parts of a and b that it needs; this is least work if units are about square. Smaller
  // units let all threads end together, but below 384 numbers a side the extra packing costs more than that saves.
  columns = ceil_div(columns, kernels.product_panel) * kernels.product_panel;
  while (units() < threads || (threads > 1 && units() < 4 * threads && std::max(rows, columns) > 384)) {
    const bool by_rows = columns <= kernels.product_panel || (rows > columns && rows > kernels.product_rows);
    by_rows ? halve(rows, kernels.product_rows) : halve(columns, kernels.product_panel);
  }
  const std::int64_t across = ceil_div(p.columns, columns);
  parallel_for(threads, units(), static_cast<std::size_t>(kernels.product_scratch) * sizeof(float),
               [&](std::int64_t item, std::byte* scratch) {
                 const std::int64_t row = item / across * rows, column = item % across * columns;
                 kernels.product(p,
                                 {.row = row,
                                  .row_end = std::min(p.rows, row + rows),
                                  .column = column,
                                  .column_end = std::min(p.columns, column + columns)},
                                 reinterpret_cast<float*>(scratch));
               });
}

}  // namespace

void run_product(const KernelSet& kernels, const ProductParams& p) {
  if (is_small(kernels, p)) return kernels.product_small(p);
#ifdef SACCADE_BLAS
  if (suits_blas(p)) return product_by_blas(p);
#endif
  run_in_blocks(kernels, p);
}

}  // namespace saccade::cpu
