// Shared by the backward passes on multiply-adds and on AMX tiles: the statistics of rows, and the gradients that
// follow from those of the logits.
#pragma once

#include "cpu/attention/lane_sums.h"
#include "cpu/attention/output.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// The dot product of two rows.
template <class A, class B>
Scalar dot(const A* a, const B* b, std::int64_t dim) {
  LaneSum sum;
  for (std::int64_t d = 0; d < dim; d += kWidth) {
    const int n = static_cast<int>(std::min<std::int64_t>(kWidth, dim - d));
    sum.add(d, load_first(a + d, n), load_first(b + d, n));
  }
  return sum.total();
}

/// dO * O of some rows, O and dO of any type: the types are looked up once for all rows.
inline void write_dot_products(const BackwardParams& params, const QueryRows& work, std::int64_t rows,
                               Scalar* to) {
  const AttentionParams& p = params.attention;
  with_storage(params.o.dtype, [&](auto o) {
    with_storage(params.dout.dtype, [&](auto dout) {
      for (std::int64_t i = 0; i < rows; ++i)
        to[i] = dot(p.row_of<decltype(dout)>(params.dout, work.batch, work.head, work.row + i),
                    p.row_of<decltype(o)>(params.o, work.batch, work.head, work.row + i), p.head_dim_v);
    });
  });
}

/// Writes the statistics of a block of `block_q` rows: their lse, then delta = rowsum(dO * O) - dlse. They make
/// the weights of rows that do not exist or see nothing 0. Returns what the rows add to the gradient of their
/// head's sink.
inline double write_statistics(const BackwardParams& params, const QueryRows& work, std::int64_t block_q,
                               void* statistics) {
  const AttentionParams& p = params.attention;
  Scalar* const lses = static_cast<Scalar*>(statistics);
  Scalar* const deltas = lses + block_q;
  const auto rows = std::min(work.rows, p.rows(work.batch) - work.row);
  write_dot_products(params, work, rows, deltas);
  std::fill(lses + rows, lses + block_q, kInfinity);
  std::fill(deltas + rows, deltas + block_q, Scalar{0});
  double dsink = 0.0;
  for (std::int64_t i = 0; i < rows; ++i) {
    const Scalar lse = *p.row_of<const Scalar>(params.lse, work.batch, work.head, work.row + i);
    lses[i] = lse == -kInfinity ? kInfinity : lse;
    if (lse == -kInfinity) {
      deltas[i] = 0;
      continue;
    }
    if (params.dlse.data) deltas[i] -= *p.row_of<const Scalar>(params.dlse, work.batch, work.head, work.row + i);
    if (const double sink = p.sink(work.head); sink != -std::numeric_limits<double>::infinity())
      dsink -= std::exp(sink - static_cast<double>(lse)) * static_cast<double>(deltas[i]);
  }
  return dsink;
}

/// The gradients that follow from those of the logits of some rows and columns, [rows][kBlockK].
class LogitGradients {
 public:
  LogitGradients(const BackwardParams& params, const Visibility& visibility, const ScoreFinisher& finisher,
                 std::int64_t batch, std::int64_t head)
      : b_(params), p_(b_.attention), visibility_(visibility), finisher_(finisher), batch_(batch), head_(head) {}

  /// Adds to the gradient of the head's slope.
  void add_to_slope(std::int64_t row, std::int64_t rows, Columns columns, const Scalar* gradients,
                    double& sum) const {
    for (std::int64_t i = 0; i < rows; ++i) {
      const Scalar* const from = gradients + i * kBlockK;
      const std::int64_t position = row + i + visibility_.offset;
      LaneSum of_row;
      for (int j = columns.begin; j < columns.end; j += kWidth)
        of_row.add(j, distance(position - columns.first_key - j), load(from + j));
      sum -= static_cast<double>(of_row.total());
    }
  }

  /// Adds them to the gradient of the mask.
  void add_to_mask(std::int64_t row, std::int64_t rows, Columns columns, const Scalar* gradients) const {
    Scalar* const data = static_cast<Scalar*>(b_.dmask_data);
    const std::int64_t stride = b_.dmask.column_stride;
    const int begin = columns.begin;
    const int end = static_cast<int>(std::min<std::int64_t>(columns.end, p_.keys(batch_) - columns.first_key));
    for (std::int64_t i = 0; i < rows; ++i) {
      const Scalar* const from = gradients + i * kBlockK;
      Scalar* const to = data + b_.dmask.row(batch_, head_, row + i) + (columns.first_key + begin) * stride;
      for (int j = begin; j < end; ++j) to[(j - begin) * stride] += from[j];
    }
  }

  /// Differentiates the score modifier, where it was called, and softcap: turns them into the gradients of the
  /// products. `softcapped` are the scores before the modifier.
  void differentiate(std::int64_t row, std::int64_t rows, Columns columns, bool is_modified, Scalar* softcapped,
                     const Scalar* probabilities, Scalar* gradients) const {
    if (b_.score_modifier_backward && is_modified)
      differentiate_modifier(row, rows, columns, softcapped, probabilities, gradients);
    if (p_.softcap != 0.0) differentiate_softcap(rows, columns, softcapped, probabilities, gradients);
  }

 private:
  static SACCADE_INLINE Vec distance(std::int64_t ahead) {
    return abs(sub(broadcast(static_cast<Scalar>(ahead)), lane_index()));
  }

  void differentiate_modifier(std::int64_t row, std::int64_t rows, Columns columns, Scalar* softcapped,
                              const Scalar* probabilities, Scalar* gradients) const {
    b_.score_modifier_backward(p_.score_context, finisher_.tile_of(row, rows, columns, softcapped),
                               finisher_.tile_of(row, rows, columns, gradients));
    for (std::int64_t i = 0; i < rows; ++i) {  // the modifier may have changed hidden scores
      for (int j = columns.begin; j < columns.end; j += kWidth) {
        const Vec p = load(probabilities + i * kBlockK + j);
        Scalar* const at = gradients + i * kBlockK + j;
        store(at, select(equal(p, zero()), zero(), load(at)));
      }
    }
  }

  void differentiate_softcap(std::int64_t rows, Columns columns, const Scalar* softcapped,
                             const Scalar* probabilities, Scalar* gradients) const {
    const Vec inverse = broadcast(static_cast<Scalar>(1 / p_.softcap));
    for (std::int64_t i = 0; i < rows; ++i) {
      for (int j = columns.begin; j < columns.end; j += kWidth) {
        const Vec bounded = mul(inverse, load(softcapped + i * kBlockK + j));
        const Vec p = load(probabilities + i * kBlockK + j);
        Scalar* const at = gradients + i * kBlockK + j;
        const Vec slope = sub(broadcast(1), mul(bounded, bounded));
        store(at, select(equal(p, zero()), zero(), mul(slope, load(at))));
      }
    }
  }

  const BackwardParams& b_;
  const AttentionParams& p_;
  const Visibility& visibility_;
  const ScoreFinisher& finisher_;
  std::int64_t batch_, head_;
};

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
