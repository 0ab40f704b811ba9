// The products of attention on packed tiles: scores of queries and keys, and weighted sums of values. On whole
// numbers, whose sums are exact in any order.
#pragma once

#include "cpu/attention/tile.h"
#include "cpu/checks/packing.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

inline constexpr int kMaxDims = 300;

template <class T>
Scalar dot_of(const T* a, const T* b, int count) {
  Scalar sum = 0;
  for (int i = 0; i < count; ++i)
    sum = Lane::add(sum, Lane::mul(static_cast<Scalar>(a[i]), static_cast<Scalar>(b[i])));
  return sum;
}

/// The scores of `rows` rows and the keys of some subtiles of a block, and the maximum of each lane of a row.
template <class T>
void compare_score_tiles(Findings& findings, int head_dim, int rows, const int* subtiles, int count) {
  static T q[kTileRows * kMaxDims], k[kBlockK * kMaxDims];
  alignas(64) static Scalar queries[2 * kTileRows * kQueryStride], keys[kBlockK * (kMaxDims + kWidth)];
  alignas(64) static Scalar scores[kTileRows * kBlockK], row_max[kTileRows * kWidth];
  findings.with("head_dim, rows, subtiles", head_dim, rows, count);
  findings.draw_whole(q, std::int64_t{rows} * head_dim);
  findings.draw_whole(k, std::int64_t{kBlockK} * head_dim);
  pack_queries(q, head_dim, rows, head_dim, Scalar{1}, queries);
  pack_key_block(rows_from(k, 0, head_dim), 0, KeyRange{0, kBlockK}, head_dim, keys);
  std::fill_n(row_max, kTileRows * kWidth, -kInfinity);
  const ScoreWork work{.queries = queries,
                       .keys = keys,
                       .steps = steps_of(head_dim),
                       .subtiles = subtiles,
                       .scores = scores,
                       .row_max = row_max};
  score_tiles_of_rows(rows, work, 0, count * kTilesOfASubtile);
  for (int row = 0; row < rows; ++row) {
    Lanes largest;
    std::fill_n(largest.x, kWidth, -kInfinity);
    for (int i = 0; i < count; ++i) {
      for (int key = subtiles[i] * kKeySubtile; key < (subtiles[i] + 1) * kKeySubtile; ++key) {
        // Adds 0, because a sum of products may be -0 if all of them are.
        const Scalar expected = dot_of(q + row * head_dim, k + key * head_dim, head_dim);
        const Scalar found = Lane::add(scores[row * kBlockK + key], Scalar{0});
        findings.equal(&found, &expected, 1);
        largest.x[key % kWidth] = Lane::max(largest.x[key % kWidth], expected);
      }
    }
    for (int lane = 0; lane < kWidth; ++lane)
      row_max[row * kWidth + lane] = Lane::add(row_max[row * kWidth + lane], Scalar{0});
    findings.equal(row_max + row * kWidth, largest.x, kWidth);
  }
}

inline void check_score_tiles(Findings& findings) {
  int subtiles[kKeySubtiles];
  for_inputs([&](auto number) {
    using T = decltype(number);
    for (const int head_dim : {1, 2, 5, 16, 33, 64, 65, 129, 200, kMaxDims}) {
      for (const int rows : {1, kTileRows / 3, kTileRows / 3 + 1, kTileRows - 1, kTileRows}) {
        int count = 0;
        for (int i = 0; i < kKeySubtiles; ++i)
          if (findings.below(3) == 0) subtiles[count++] = i;
        if (count == 0) subtiles[count++] = kKeySubtiles - 1;
        compare_score_tiles<T>(findings, head_dim, rows, subtiles, count);
      }
    }
  });
}

/// A factor of values, or for pairs a word of two.
inline Scalar drawn_factor(Findings& findings) {
  Weight of_keys[kStepNumbers];
  findings.draw_whole(of_keys, kStepNumbers);
  Scalar factor;
  std::memcpy(&factor, of_keys, sizeof factor);
  return factor;
}

/// The product of a step's factor and its values in one column.
inline Scalar step_product(Scalar factor, Scalar values) {
  if constexpr (!kPairs) return Lane::mul(factor, values);
  std::uint32_t a, b;
  std::memcpy(&a, &factor, sizeof a);
  std::memcpy(&b, &values, sizeof b);
  const auto half = [](std::uint32_t word, int at) {
    return static_cast<Scalar>(bfloat16::from_bits(static_cast<std::uint16_t>(word >> 16 * at)));
  };
  return Lane::add(Lane::mul(half(a, 0), half(b, 0)), Lane::mul(half(a, 1), half(b, 1)));
}

struct ValueCase {
  int rows, head_dim_v, steps;
  AccumulateMode how;
};

template <class Order, int kRows>
void compare_value_product(Findings& findings, const ValueCase& c) {
  constexpr int kMaxColumns = 3 * kTileColumns;
  static Scalar p[kTileRows * kBlockK > kBlockK * kBlockK ? kTileRows * kBlockK : kBlockK * kBlockK];
  static Scalar before[kTileRows * kMaxColumns];
  alignas(64) static Scalar o[kTileRows * kMaxColumns];
  alignas(64) Scalar alpha[kTileRows];
  const test::GuardedMemory memory;
  findings.with("rows, head_dim_v, steps, mode", c.rows, c.head_dim_v, c.steps, static_cast<int>(c.how));
  const std::int64_t count = std::int64_t{c.steps} * c.head_dim_v;
  Scalar* const v = static_cast<Scalar*>(memory.last(static_cast<std::size_t>(count) * sizeof(Scalar)));
  for (std::int64_t i = 0; i < count; ++i) v[i] = drawn_factor(findings);
  for (int row = 0; row < kRows; ++row)
    for (int step = 0; step < c.steps; ++step) p[row * Order::kRow + step * Order::kStep] = drawn_factor(findings);
  findings.draw_whole(o, kTileRows * kMaxColumns);
  std::memcpy(before, o, sizeof o);
  for (int row = 0; row < kTileRows; ++row) alpha[row] = static_cast<Scalar>(1 << row % 3);
  ValueRows values{v, c.head_dim_v, c.steps};
  if (c.how != AccumulateMode::continue_chains && findings.below(2)) values.first_chain = 3, values.chain = 4;
  value_product<Order, kRows>(p, values, c.head_dim_v, c.how, alpha, o);
  for (int row = 0; row < c.rows; ++row) {
    for (int column = 0; column < c.head_dim_v; ++column) {
      const Scalar old = before[output_index(row, column)];
      Scalar expected = c.how == AccumulateMode::replace ? Scalar{0} : old;
      if (c.how == AccumulateMode::scale || c.how == AccumulateMode::scale_first)
        expected = Lane::mul(alpha[row], old);
      for (int step = 0; step < c.steps; ++step)
        expected = Lane::add(
            expected, step_product(p[row * Order::kRow + step * Order::kStep], v[step * c.head_dim_v + column]));
      const Scalar found = Lane::add(o[output_index(row, column)], Scalar{0});
      expected = Lane::add(expected, Scalar{0});
      findings.equal(&found, &expected, 1);
    }
  }
}

template <class Order>
void compare_value_products(Findings& findings) {
  for (const int head_dim_v :
       {1, kWidth, kWidth + 1, kTileColumns - 1, kTileColumns, 2 * kTileColumns + kWidth + 1}) {
    if (head_dim_v == 0 || head_dim_v > 3 * kTileColumns) continue;
    for (const int steps : {1, 2, 9, kBlockK / kStepNumbers}) {
      for (const AccumulateMode how : {AccumulateMode::replace, AccumulateMode::add, AccumulateMode::scale,
                                       AccumulateMode::scale_first, AccumulateMode::continue_chains}) {
        for (const int rows : {1, kTileRows / 3 + 1, kTileRows})
          with_rows(rows, [&](auto constant) {
            compare_value_product<Order, decltype(constant)::value>(findings, {rows, head_dim_v, steps, how});
          });
      }
    }
  }
}

inline void check_value_product_of_rows(Findings& findings) { compare_value_products<FactorRows>(findings); }
inline void check_value_product_of_columns(Findings& findings) { compare_value_products<FactorColumns>(findings); }

inline constexpr test::Check kTileProductChecks[] = {{"score_tiles", check_score_tiles},
                                                     {"value_product_of_rows", check_value_product_of_rows},
                                                     {"value_product_of_columns", check_value_product_of_columns}};

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
