#include <algorithm>

#include "core/ceil_div.h"
#include "core/parallel.h"
#include "cpu/policy/selection.h"
#include "cpu/policy/threads.h"
#include "cpu/schedule/product.h"
#include "cpu/schedule/product_blas.h"
#include "cpu/schedule/schedules.h"

namespace saccade::cpu {
namespace {

/// Whether a product is so small that packing would cost more than it saves.
bool is_small(const KernelSet& kernels, const ProductParams& p) {
  return p.depth <= kSmallDepth && p.columns <= kernels.small_product_columns && p.rows <= 64 &&
         p.a_depth_stride == 1 && p.b_column_stride == 1 && !p.adds && p.dtype == DType::f32;
}

/// Runs a kernel for blocks of `rows` rows and `columns` columns of c.
template <class Block>
void for_blocks_of(const ProductParams& p, std::int64_t rows, std::int64_t columns, int threads,
                   std::int64_t scratch_floats, const Block& block) {
  const std::int64_t across = ceil_div(p.columns, columns);
  parallel_for(threads, ceil_div(p.rows, rows) * across, static_cast<std::size_t>(scratch_floats) * sizeof(float),
               [&](std::int64_t item, std::byte* scratch) {
                 const std::int64_t row = item / across * rows, column = item % across * columns;
                 block(p,
                       {.row = row,
                        .row_end = std::min(p.rows, row + rows),
                        .column = column,
                        .column_end = std::min(p.columns, column + columns)},
                       reinterpret_cast<float*>(scratch));
               });
}

void run_in_blocks(const KernelSet& all, const ProductParams& p) {
  const ProductKernels& kernels = product_kernels(all, p);
  const std::int64_t tiles = ceil_div(p.rows, kernels.rows) * ceil_div(p.columns, kernels.panel);
  const int threads = threads_for(tiles, product_threads(p));
  std::int64_t rows = p.rows;
  std::int64_t columns = ceil_div(p.columns, ceil_div(p.columns, kernels.columns));
  const auto units = [&] { return ceil_div(p.rows, rows) * ceil_div(p.columns, columns); };
  const auto halve = [](std::int64_t& size, std::int64_t multiple) {
    size = ceil_div(ceil_div(size, 2), multiple) * multiple;
  };
  // Each unit packs the parts of a and b that it needs, which is least work if units are about square. Smaller
  // units let all threads end together, but below 384 numbers a side the extra packing costs more than that saves.
  columns = ceil_div(columns, kernels.panel) * kernels.panel;
  while (units() < threads || (threads > 1 && units() < 4 * threads && std::max(rows, columns) > 384)) {
    const bool by_rows = columns <= kernels.panel || (rows > columns && rows > kernels.rows);
    by_rows ? halve(rows, kernels.rows) : halve(columns, kernels.panel);
  }
  // Kernels on tiles call the multiply-add kernels for some rows.
  for_blocks_of(p, rows, columns, threads, std::max(kernels.scratch, all.product.scratch), kernels.block);
}

/// Computes a c of another type than f32, which the kernels cannot write, by way of f32, in blocks of rows.
void run_narrowed(const KernelSet& kernels, const ProductParams& p) {
  const std::int64_t most = std::max<std::int64_t>(256, (std::int64_t{1} << 22) / p.columns);
  const std::int64_t rows = std::min(p.rows, most);
  const Workspace memory(static_cast<std::size_t>(rows * p.columns) * sizeof(float));
  float* const exact = reinterpret_cast<float*>(memory.data());
  const auto element = static_cast<std::int64_t>(size_of(p.dtype));
  for (std::int64_t row = 0; row < p.rows; row += rows) {
    ProductParams part = p;
    part.rows = std::min(rows, p.rows - row);
    part.a = static_cast<const std::byte*>(p.a) + row * p.a_row_stride * element;
    part.c = exact, part.c_stride = p.columns, part.c_dtype = DType::f32;
    run_in_blocks(kernels, part);
    parallel_for(threads_for(part.rows, product_threads(part)), part.rows, 0, [&](std::int64_t i, std::byte*) {
      std::byte* const to = static_cast<std::byte*>(p.c) + (row + i) * p.c_stride * element;
      const float* const from = exact + i * p.columns;
      if (p.c_dtype == DType::bf16)
        kernels.conversions.narrow_to_bf16(from, reinterpret_cast<bfloat16*>(to), p.columns);
      else
        kernels.conversions.narrow_to_f16(from, reinterpret_cast<float16*>(to), p.columns);
    });
  }
}

}  // namespace

void run_product(const KernelSet& kernels, const ProductParams& p) {
  if (is_small(kernels, p)) return kernels.product_small(p);
#ifdef SACCADE_BLAS
  if (suits_blas(p)) return product_by_blas(p);
#endif
  if (p.c_dtype != DType::f32 && p.depth > product_kernels(kernels, p).narrow_depth)
    return run_narrowed(kernels, p);
  run_in_blocks(kernels, p);
}

CpuPackedProduct::CpuPackedProduct(const KernelSet& kernels, const ProductParams& p)
    : kernels_(kernels),
      depth_(p.depth),
      columns_(p.columns),
      dtype_(p.dtype),
      b_(static_cast<std::size_t>(p.depth * ceil_div(p.columns, kernels.product.panel) * kernels.product.panel) *
         size_of(p.dtype)) {
  const std::int64_t width = std::max<std::int64_t>(128 / kernels.product.panel, 1) * kernels.product.panel;
  const std::int64_t items = ceil_div(p.columns, width);
  parallel_for(threads_for_numbers(items, p.depth * p.columns), items,
               static_cast<std::size_t>(kernels.packed_product.scratch) * sizeof(float),
               [&](std::int64_t item, std::byte* scratch) {
                 const std::int64_t column = item * width;
                 kernels.packed_product.pack(p, column, std::min(p.columns, column + width), b_.data(),
                                             reinterpret_cast<float*>(scratch));
               });
}

void CpuPackedProduct::unpack(float* to) const {
  kernels_.packed_product.unpack({.depth = depth_, .columns = columns_, .dtype = dtype_, .b = b_.data()}, to);
}

void CpuPackedProduct::run(const ProductParams& params) const {
  ProductParams p = params;
  p.depth = depth_, p.columns = columns_, p.dtype = dtype_, p.b = b_.data();
  const PackedProductKernels& kernels = kernels_.packed_product;
  const std::int64_t panel = kernels_.product.panel, panels = ceil_div(p.columns, panel);
  const std::int64_t groups = ceil_div(p.rows, kernels.rows);
  const int threads = threads_for(std::max(panels, groups), product_threads(p));
  // A unit packs its rows, so a product of many rows is divided by rows. Four units per thread let all end
  // together.
  const bool by_rows = groups >= 4 * threads || panels < threads;
  const auto share = [&](std::int64_t count) { return threads == 1 ? count : ceil_div(count, 4 * threads); };
  const std::int64_t rows = by_rows ? share(groups) * kernels.rows : p.rows;
  const std::int64_t columns = by_rows ? p.columns : share(panels) * panel;
  const std::int64_t sums = p.adds ? kernels.rows * ceil_div(std::min(columns, p.columns), panel) * panel : 0;
  for_blocks_of(p, rows, columns, threads, kernels.scratch + sums, kernels.block);
}

}  // namespace saccade::cpu
