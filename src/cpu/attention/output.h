// The end of a query row, for forward and decode.
#pragma once

#include "cpu/attention/scores.h"
#include "cpu/attention/softmax.h"
#include "cpu/attention/tile.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// to[0 ... columns) = scale * from, rounded to T, where `from` has runs of kTileColumns columns, `stride` apart.
/// Returns whether all of it is finite. Prefetches the destination `ahead` numbers further on. Never writes -0:
/// with a negative scale, the gradient of a hidden key would be -0 or 0 depending on its neighbors in the tile.
template <class T>
SACCADE_INLINE bool write_scaled(const Scalar* from, std::int64_t stride, std::int64_t columns, Scalar scale,
                                 T* to, std::int64_t ahead) {
  const Vec factor = broadcast(scale);
  Vec finite = zero();  // stays 0 unless something is NaN or infinite
  const std::int64_t whole = columns / kWidth * kWidth;
  for (std::int64_t d = 0; d < columns; d += kTileColumns, from += stride) {
    SACCADE_UNROLL
    for (int c = 0; c < kTileColumns; c += kWidth) {
      const Vec x = fma(factor, load(from + c), zero());
      if (d + c < whole) {
        finite = fma(x, zero(), finite);
        __builtin_prefetch(to + d + c + ahead, 1);
        storeu(to + d + c, x);
      } else if (d + c < columns) {
        finite = fma(x, zero(), finite);
        store_first(to + d + c, static_cast<int>(columns - whole), x);
      }
    }
  }
  return !any(is_nan(finite));
}

/// Rows of one head whose keys are all processed.
struct OutputRows {
  std::int64_t batch = 0, head = 0, row = 0;
  int count = 0;              // at most kTileRows
  const Scalar* m = nullptr;  // [count], in the unit of the scores
  const Scalar* l = nullptr;  // [kTileRowsPadded]
  // o's own m, which is not rounded, and l; nullptr: the same.
  const double* m_of_o = nullptr;
  const Scalar* l_of_o = nullptr;
  Scalar natural = 1;         // turns m into natural units
  const Scalar* o = nullptr;  // kTileColumns columns of each row; the next ones are o_stride further on
  std::int64_t o_stride = kTileColumns;
};

/// Writes the requested results of some rows: o = o / l, lse, weights, scores. Bit i of the result is set if row
/// i's o is not finite: a weight of 0 may have met a hidden NaN.
template <int kBlock>
unsigned end_rows(const AttentionParams& p, const ScoreFinisherOf<kBlock>& finisher, const Dropout& dropout,
                  const OutputRows& rows) {
  const Scalar keep_scale = static_cast<Scalar>(1.0 / (1.0 - p.dropout_p));
  alignas(64) Scalar scale[kTileRowsPadded];
  if (p.has_sink() || p.lse.data || p.saves_scores()) {
    const Scalar sink = static_cast<Scalar>(p.sink(rows.head));
    for (int i = 0; i < rows.count; ++i) {
      const RowResult result = finish_row(rows.m[i] * rows.natural, rows.l[i], sink);
      if (p.lse.data) *p.row_of<Scalar>(p.lse, rows.batch, rows.head, rows.row + i) = result.lse();
      if (p.saves_scores()) {
        poll_progress();
        finisher.write_saved(rows.row + i, rows.m[i], result.scale, dropout);
      }
      const Scalar of_o = rows.m_of_o
                              ? scale_of_row(rows.m_of_o[i] * static_cast<double>(rows.natural),
                                             static_cast<double>(rows.l_of_o[i]), static_cast<double>(sink))
                              : result.scale;
      scale[i] = of_o * keep_scale;
    }
  } else {  // finish_row for all rows at once
    for (int i = 0; i < kTileRowsPadded; i += kWidth) {
      const Vec l = load(rows.l + i), inverse = div(broadcast(1), l);
      store(scale + i, mul(select(equal(l, zero()), zero(), inverse), broadcast(keep_scale)));
    }
  }
  return with_storage(p.o.dtype, [&](auto type) {
    using T = decltype(type);
    T* to = p.row_of<T>(p.o, rows.batch, rows.head, rows.row);
    unsigned not_finite = 0;
    for (int i = 0; i < rows.count; ++i, to += p.o.row_stride) {
      const bool finite =
          write_scaled(rows.o + i * kTileColumns, rows.o_stride, p.head_dim_v, scale[i], to, 8 * p.o.row_stride);
      not_finite |= static_cast<unsigned>(!finite) << i;
    }
    return not_finite;
  });
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
