// Reductions of vectors and of rows of them, and transposes.
#pragma once

#include "cpu/checks/vector.h"
#include "cpu/policy/block_sizes.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

// ---- Reductions ----------------------------------------------------------------------------------------------

/// Numbers of a 128-bit lane of a vector.
inline constexpr int kLaneNumbers = kWidth == 1 ? 1 : 16 / static_cast<int>(sizeof(Scalar));

constexpr int round_up_to(int n, int multiple) { return (n + multiple - 1) / multiple * multiple; }

inline Scalar sum_of(const Scalar* x, int count) {
  Scalar sum = 0;
  for (int i = 0; i < count; ++i) sum = Lane::add(sum, x[i]);
  return sum;
}

/// Whole numbers, whose sum is exact in every order. Then an infinity or a NaN in each lane in turn.
inline void check_reduce_add(Findings& findings) {
  Lanes from;
  for (int round = 0; round < kRounds; ++round) {
    findings.draw_whole(from.x, kWidth);
    Scalar found = reduce_add(load(from.x)), expected = sum_of(from.x, kWidth);
    findings.equal(&found, &expected, 1);
    from.x[round % kWidth] =
        round % 2 == 0 ? std::numeric_limits<Scalar>::infinity() : std::numeric_limits<Scalar>::quiet_NaN();
    found = reduce_add(load(from.x)), expected = from.x[round % kWidth];
    findings.equal(&found, &expected, 1);
  }
}

inline void check_reduce_max(Findings& findings) {
  Lanes from;
  for (int round = 0; round < kRounds; ++round) {
    findings.draw_numbers(from.x, kWidth);
    Scalar largest = from.x[0];
    for (int i = 1; i < kWidth; ++i) largest = Lane::max(largest, from.x[i]);
    // Adding 0 makes -0 equal to 0: which of the two is the largest depends on the order.
    const Scalar found = Lane::add(reduce_max(load(from.x)), Scalar{0}), expected = Lane::add(largest, Scalar{0});
    findings.equal(&found, &expected, 1);
  }
}

/// Calls f(rows) for the row counts of a tile and a few others.
template <class F>
void for_tile_rows(const F& f) {
  f(std::integral_constant<int, 4>{});
  f(std::integral_constant<int, 12>{});
  if constexpr (kWidth * sizeof(Scalar) != 16) {  // NEON takes several at a time
    f(std::integral_constant<int, 1>{});
    f(std::integral_constant<int, 6>{});
  }
}

inline void check_row_maxima(Findings& findings) {
  for_tile_rows([&](auto constant) {
    constexpr int kRows = decltype(constant)::value;
    findings.with("rows", kRows);
    alignas(64) Scalar rows[kRows * kWidth], maxima[round_up_to(kRows, kWidth)];
    Scalar expected[kRows];
    for (int round = 0; round < kRounds; ++round) {
      findings.draw_numbers(rows, kRows * kWidth);
      row_maxima<kRows>(rows, maxima);
      for (int i = 0; i < kRows; ++i) {
        maxima[i] = Lane::add(maxima[i], Scalar{0});
        expected[i] = Lane::add(rows[i * kWidth], Scalar{0});
        for (int lane = 1; lane < kWidth; ++lane)
          expected[i] = Lane::add(Lane::max(expected[i], rows[i * kWidth + lane]), Scalar{0});
      }
      findings.equal(maxima, expected, kRows);
    }
  });
}

/// Each row's sum has the bits of reduce_add, for numbers whose sums are rounded.
inline void check_row_sums(Findings& findings) {
  for_tile_rows([&](auto constant) {
    constexpr int kRows = decltype(constant)::value;
    findings.with("rows", kRows);
    alignas(64) Scalar rows[kRows * kWidth], sums[round_up_to(kRows, kWidth)];
    Scalar expected[kRows];
    for (int round = 0; round < kRounds; ++round) {
      findings.draw_near_one(rows, kRows * kWidth);
      row_sums<kRows>(rows, sums);
      for (int i = 0; i < kRows; ++i) expected[i] = reduce_add(load(rows + i * kWidth));
      findings.equal(sums, expected, kRows);
    }
  });
}

inline void check_sum_within_lanes(Findings& findings) {
  Lanes from[kLaneNumbers], found, expected;
  for (int round = 0; round < kRounds; ++round) {
    Vec x[kLaneNumbers];
    for (int t = 0; t < kLaneNumbers; ++t) {
      findings.draw_whole(from[t].x, kWidth);
      x[t] = load(from[t].x);
    }
    for (int i = 0; i < kWidth; ++i)
      expected.x[i] = sum_of(from[i % kLaneNumbers].x + i / kLaneNumbers * kLaneNumbers, kLaneNumbers);
    store(found.x, sum_within_lanes(x));
    findings.equal(found.x, expected.x, kWidth);
  }
}

// ---- Transposes ----------------------------------------------------------------------------------------------

inline void check_transpose_tile(Findings& findings) {
  constexpr int kFrom = kWidth + 3, kTo = 2 * kWidth;
  Scalar from[kWidth * kFrom];
  alignas(64) Scalar found[kWidth * kTo], expected[kWidth * kTo];
  for (int round = 0; round < kRounds; ++round) {
    findings.draw(from, kWidth * kFrom);
    findings.draw(expected, kWidth * kTo);
    std::memcpy(found, expected, sizeof found);
    for (int i = 0; i < kWidth; ++i)
      for (int j = 0; j < kWidth; ++j) expected[i * kTo + j] = from[j * kFrom + i];
    transpose_tile(from, kFrom, found, kTo);
    findings.same_bits(found, expected, sizeof(Scalar), kWidth * kTo);
  }
}

inline constexpr test::Check kMoveChecks[] = {{"reduce_add", check_reduce_add},
                                              {"reduce_max", check_reduce_max},
                                              {"row_maxima", check_row_maxima},
                                              {"row_sums", check_row_sums},
                                              {"sum_within_lanes", check_sum_within_lanes},
                                              {"transpose_tile", check_transpose_tile}};

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
