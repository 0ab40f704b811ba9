// The end of a query row, whichever way its sums were made.
#pragma once

#include "cpu/scores.h"
#include "cpu/softmax.h"
#include "cpu/tile.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// to[0 ... columns) = scale * from, rounded to T. Returns whether all of it is finite.
template <class T>
bool write_scaled(const Scalar* from, std::int64_t columns, Scalar scale, T* to) {
  const Vec factor = broadcast(scale);
  Vec finite = zero();  // stays 0 unless something is NaN or infinite
  for (std::int64_t d = 0; d < columns; d += kWidth) {
    const int n = static_cast<int>(std::min<std::int64_t>(kWidth, columns - d));
    const Vec x = mul(factor, load(from + d));
    finite = fma(x, zero(), finite);
    store_first(to + d, n, x);
  }
  return !any(is_nan(finite));
}

/// Writes what is asked for of a row: o = o / l, lse, weights, scores. m in the unit of the scores, which
/// `natural` turns into natural units. Returns whether o is finite: if not, a weight of 0 may have met a hidden
/// NaN.
inline bool end_row(const AttentionParams& p, const ScoreFinisher& finisher, const Dropout& dropout,
                    std::int64_t batch, std::int64_t head, std::int64_t row, Scalar m, Scalar l, Scalar natural,
                    const Scalar* o) {
  const Scalar sink = p.sinks ? static_cast<Scalar>(p.sinks[head]) : -kInfinity;
  const RowResult result = finish_row(m * natural, l, sink);
  if (p.lse.data) *p.row_of<Scalar>(p.lse, batch, head, row) = result.lse;
  if (p.saves_scores()) finisher.write_saved(row, m, result.scale, dropout);
  const Scalar keep_scale = static_cast<Scalar>(1.0 / (1.0 - p.dropout_p));
  return with_storage(p.o.dtype, [&](auto type) {
    using T = decltype(type);
    T* to = p.row_of<T>(p.o, batch, head, row);
    __builtin_prefetch(to + 8 * p.o.row_stride, 1);
    return write_scaled(o, p.head_dim_v, result.scale * keep_scale, to);
  });
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
