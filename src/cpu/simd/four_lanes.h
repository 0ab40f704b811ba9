// What every level with vectors of 4 floats does alike, with its own `transpose`: their headers end by including
// this one. See simd/avx512.h for what each function means.
#pragma once

#include "cpu/simd/prelude.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// Four rows at a time: transposed, their lanes meet in the order of reduce_max and reduce_add.
template <int kRows>
SACCADE_INLINE void row_maxima(const float* rows, float* maxima) {
  SACCADE_UNROLL
  for (int i = 0; i + 4 <= kRows; i += 4) {
    Vec r[4] = {load(rows + 4 * i), load(rows + 4 * i + 4), load(rows + 4 * i + 8), load(rows + 4 * i + 12)};
    transpose(r);
    store(maxima + i, max(max(r[0], r[2]), max(r[1], r[3])));
  }
  SACCADE_UNROLL
  for (int i = kRows / 4 * 4; i < kRows; ++i) maxima[i] = reduce_max(load(rows + 4 * i));
}
template <int kRows>
SACCADE_INLINE void row_sums(const float* rows, float* sums) {
  SACCADE_UNROLL
  for (int i = 0; i + 4 <= kRows; i += 4) {
    Vec r[4] = {load(rows + 4 * i), load(rows + 4 * i + 4), load(rows + 4 * i + 8), load(rows + 4 * i + 12)};
    transpose(r);
    store(sums + i, add(add(r[0], r[2]), add(r[1], r[3])));
  }
  SACCADE_UNROLL
  for (int i = kRows / 4 * 4; i < kRows; ++i) sums[i] = reduce_add(load(rows + 4 * i));
}

SACCADE_INLINE void transpose_tile(const float* from, std::int64_t from_stride, float* to,
                                   std::int64_t to_stride) {
  Vec r[4];
  SACCADE_UNROLL
  for (int i = 0; i < 4; ++i) r[i] = loadu(from + i * from_stride);
  transpose(r);
  SACCADE_UNROLL
  for (int i = 0; i < 4; ++i) store(to + i * to_stride, r[i]);
}

SACCADE_INLINE void load_columns(const float* from, std::int64_t stride, int rows, int columns, Vec* x) {
  SACCADE_UNROLL
  for (int i = 0; i < 4; ++i) x[i] = i < rows ? load_first(from + i * stride, columns) : zero();
  transpose(x);
}
SACCADE_INLINE void store_columns(float* to, std::int64_t stride, int rows, int columns, const Vec* x) {
  Vec r[4] = {x[0], x[1], x[2], x[3]};
  transpose(r);
  SACCADE_UNROLL
  for (int i = 0; i < 4; ++i)
    if (i < rows) store_first(to + i * stride, columns, r[i]);
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
