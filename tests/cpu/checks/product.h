// Matrix products: their packing, the microkernel, and whole blocks. Floats only.
#pragma once

#include "cpu/checks/vector.h"
#include "cpu/gemm/gemm.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// Drawn floats, followed by a guard page.
template <class T>
T* drawn_before_guard(Findings& findings, const test::GuardedMemory& memory, std::int64_t count) {
  T* const numbers = static_cast<T*>(memory.last(static_cast<std::size_t>(count) * sizeof(T)));
  findings.draw_near_one(numbers, count);
  return numbers;
}

template <class T>
void compare_pack_rows(Findings& findings) {
  constexpr int kDepth = kWidth + 3, kRows = kTileRows + 2;
  const test::GuardedMemory memory;
  alignas(64) static float tiles[(kPackedRows / kTileRows) * kPackedTile];
  for (const bool is_transposed : {false, true}) {
    for (int rows = 1; rows <= kRows; ++rows) {
      for (int depth = 1; depth <= kDepth; ++depth) {
        findings.with("transposed, rows, depth", is_transposed, rows, depth);
        ProductParams p;
        p.a = drawn_before_guard<T>(findings, memory, std::int64_t{rows} * depth);
        p.a_row_stride = is_transposed ? 1 : depth;
        p.a_depth_stride = is_transposed ? rows : 1;
        if (p.a_depth_stride == 1 && is_transposed) continue;  // it is both
        pack_rows<T>(p, {0, depth}, 0, rows, tiles);
        for (int i = 0; i < rows; ++i) {
          for (int d = 0; d < depth; ++d) {
            const std::int64_t row_stride = is_transposed ? TileOfColumns::kRow : TileOfRows::kRow;
            const std::int64_t step = is_transposed ? TileOfColumns::kStep : TileOfRows::kStep;
            const float expected = static_cast<const T*>(p.a)[i * p.a_row_stride + d * p.a_depth_stride];
            findings.equal(tiles + i / kTileRows * kPackedTile + i % kTileRows * row_stride + d * step, &expected,
                           1);
          }
        }
      }
    }
  }
}

inline void check_pack_rows(Findings& findings) {
  compare_pack_rows<float>(findings);
  compare_pack_rows<bfloat16>(findings);
  compare_pack_rows<float16>(findings);
}

template <class T>
void compare_pack_panels(Findings& findings) {
  constexpr int kColumns = kTileColumns + kWidth + 1, kDepth = kWidth + 2;
  const test::GuardedMemory memory;
  alignas(64) static float panels[2 * kTileColumns * (kDepth + kWidth)];
  for (const bool is_transposed : {false, true}) {
    for (int columns = 1; columns <= kColumns; ++columns) {
      for (int depth = 1; depth <= kDepth; ++depth) {
        findings.with("transposed, columns, depth", is_transposed, columns, depth);
        ProductParams p;
        p.b = drawn_before_guard<T>(findings, memory, std::int64_t{columns} * depth);
        p.b_depth_stride = is_transposed ? 1 : columns;
        p.b_column_stride = is_transposed ? depth : 1;
        pack_panels<T>(p, {0, depth}, 0, columns, panels);
        for (int c = 0; c < round_up(columns, kTileColumns); ++c) {
          for (int d = 0; d < depth; ++d) {
            const float expected =
                c < columns ? static_cast<const T*>(p.b)[d * p.b_depth_stride + c * p.b_column_stride] : 0.0F;
            findings.equal(panels + c / kTileColumns * depth * kTileColumns + d * kTileColumns + c % kTileColumns,
                           &expected, 1);
          }
        }
      }
    }
  }
}

inline void check_pack_panels(Findings& findings) {
  compare_pack_panels<float>(findings);
  compare_pack_panels<bfloat16>(findings);
  compare_pack_panels<float16>(findings);
}

/// product_tile and product_edge of kRows rows: `steps` multiply-adds that start from `begin`, or from 0 and are
/// added to it.
template <class Order, int kRows, bool kJoins>
void compare_product_tile(Findings& findings, int steps) {
  alignas(64) static float a[kPackedTile], b[kProductDepth * kTileColumns];
  float begin[kRows][kTileColumns], found[kRows][kTileColumns + 1], expected[kRows][kTileColumns + 1];
  findings.draw_near_one(a, kPackedTile);
  findings.draw_near_one(b, kProductDepth * kTileColumns);
  if (steps == 3) a[Order::kStep] = std::numeric_limits<float>::infinity();  // of the first row
  for (int columns = 1; columns <= kTileColumns; ++columns) {
    const int rows = columns == kTileColumns ? kRows : 1 + findings.below(kRows);
    findings.with("rows of the tile, steps, rows, columns", kRows, steps, rows, columns);
    findings.draw_near_one(begin[0], kRows * kTileColumns);
    findings.draw_near_one(found[0], kRows * (kTileColumns + 1));
    std::memcpy(expected, found, sizeof found);
    for (int i = 0; i < rows; ++i) {
      for (int c = 0; c < columns; ++c) {
        float chain = kJoins ? 0.0F : begin[i][c];
        for (int d = 0; d < steps; ++d)
          chain = Lane::fma(a[i * Order::kRow + d * Order::kStep], b[d * kTileColumns + c], chain, kFuses);
        expected[i][c] = kJoins ? Lane::add(begin[i][c], chain) : chain;
      }
    }
    const ProductRows<const float> from{begin[0], kTileColumns};
    const ProductRows<float> to{found[0], kTileColumns + 1};
    if (columns == kTileColumns)
      product_tile<Order, kRows, kJoins, false>(a, b, steps, from, to);
    else
      product_edge<Order, kRows, kJoins, true>(a, b, steps, from, to, rows, columns);
    findings.equal(found[0], expected[0], kRows * (kTileColumns + 1));
  }
}

template <class Order>
void compare_product_tiles(Findings& findings) {
  for (const int steps : {1, 2, 3, 16, 31, kProductDepth}) {
    for (const int rows : {1, kTileRows / 3 + 1, kTileRows}) {
      with_rows(rows, [&](auto constant) {
        constexpr int kRows = decltype(constant)::value;
        compare_product_tile<Order, kRows, false>(findings, steps);
        compare_product_tile<Order, kRows, true>(findings, steps);
      });
    }
  }
}

inline void check_product_tile_of_rows(Findings& findings) { compare_product_tiles<TileOfRows>(findings); }
inline void check_product_tile_of_columns(Findings& findings) { compare_product_tiles<TileOfColumns>(findings); }

/// A whole product of random sizes, layouts and start values, followed by a guard page.
template <class T>
void compare_product(Findings& findings) {
  const test::GuardedMemory of_a, of_b, of_bias, of_c;
  alignas(64) static float scratch[kProductScratch];
  float before[128], expected[128];
  ProductParams p;
  p.dtype = dtype_of<T>;
  p.rows = findings.below(3) == 0 ? 1 : 1 + findings.below(2 * kTileRows);
  p.columns = 1 + findings.below(80);
  p.depth = findings.below(4) == 0 ? 1 + findings.below(2 * kProductDepth + 5) : 1 + findings.below(40);
  const bool a_is_transposed = findings.below(2), b_is_transposed = findings.below(2);
  findings.with("rows, depth, columns, layouts", p.rows, p.depth, p.columns,
                2 * a_is_transposed + b_is_transposed);
  p.a = drawn_before_guard<T>(findings, of_a, p.rows * p.depth);
  p.a_row_stride = a_is_transposed ? 1 : p.depth, p.a_depth_stride = a_is_transposed ? p.rows : 1;
  p.b = drawn_before_guard<T>(findings, of_b, p.depth * p.columns);
  p.b_depth_stride = b_is_transposed ? 1 : p.columns, p.b_column_stride = b_is_transposed ? p.depth : 1;
  if (findings.below(2)) p.bias = drawn_before_guard<float>(findings, of_bias, p.columns);
  p.adds = p.bias == nullptr && findings.below(2);
  p.c_stride = p.columns;
  float* const c = drawn_before_guard<float>(findings, of_c, p.rows * p.columns);
  p.c = c;
  static float all_before[2 * kTileRows * 80];
  std::memcpy(all_before, c, static_cast<std::size_t>(p.rows * p.columns) * sizeof(float));
  product(p, {0, p.rows, 0, p.columns}, scratch);
  for (std::int64_t row = 0; row < p.rows; ++row) {
    std::memcpy(before, all_before + row * p.columns, static_cast<std::size_t>(p.columns) * sizeof(float));
    for (std::int64_t column = 0; column < p.columns; ++column)
      expected[column] = test::product_number(p, row, column, steps_of_a_part(p.depth), before[column], kFuses);
    findings.equal(c + row * p.columns, expected, p.columns);
  }
}

inline void check_product(Findings& findings) {
  for (int round = 0; round < 40; ++round) {
    compare_product<float>(findings);
    compare_product<bfloat16>(findings);
    compare_product<float16>(findings);
  }
}

inline constexpr test::Check kProductChecks[] = {{"pack_rows", check_pack_rows},
                                                 {"pack_panels", check_pack_panels},
                                                 {"product_tile_of_rows", check_product_tile_of_rows},
                                                 {"product_tile_of_columns", check_product_tile_of_columns},
                                                 {"product", check_product}};

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
