// Up to four columns of some rows, transposed into vectors and back.
#pragma once

#include "cpu/checks/vector.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// Calls f(rows, columns) for every size that load_columns and store_columns take.
template <class F>
void for_columns(Findings& findings, const F& f) {
  for (int rows = 1; rows <= kWidth; ++rows)
    for (int columns = 0; columns <= 4; ++columns) {
      findings.with("rows, columns", rows, columns);
      f(rows, columns);
    }
}

inline void check_load_columns(Findings& findings) {
  constexpr int kStride = 7;
  const test::GuardedMemory memory;
  for_columns(findings, [&](int rows, int columns) {
    const int count = (rows - 1) * kStride + columns;
    Scalar* const from = static_cast<Scalar*>(memory.last(static_cast<std::size_t>(count) * sizeof(Scalar)));
    findings.draw(from, count);
    Vec x[4];
    load_columns(from, kStride, rows, columns, x);
    for (int c = 0; c < 4; ++c) {
      Lanes found, expected;
      for (int i = 0; i < kWidth; ++i) expected.x[i] = i < rows && c < columns ? from[i * kStride + c] : Scalar{0};
      store(found.x, x[c]);
      findings.same_bits(found.x, expected.x, sizeof(Scalar), kWidth);
    }
  });
}

inline void check_store_columns(Findings& findings) {
  constexpr int kStride = 7, kCount = kWidth * kStride;
  for_columns(findings, [&](int rows, int columns) {
    Lanes from[4];
    Vec x[4];
    for (int c = 0; c < 4; ++c) {
      findings.draw(from[c].x, kWidth);
      x[c] = load(from[c].x);
    }
    Scalar found[kCount], expected[kCount];
    findings.draw(found, kCount);
    for (int i = 0; i < kCount; ++i) {
      const int row = i / kStride, c = i % kStride;
      expected[i] = row < rows && c < columns ? from[c].x[row] : found[i];
    }
    store_columns(found, kStride, rows, columns, x);
    findings.same_bits(found, expected, sizeof(Scalar), kCount);
  });
}

inline constexpr test::Check kColumnChecks[] = {{"load_columns", check_load_columns},
                                                {"store_columns", check_store_columns}};

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
