// Merges results of the same rows over different keys:
//
//   lse = top + log(sum of exp(lse_i - top)) over the parts i, with the largest lse_i as top
//   o = sum of exp(lse_i - lse) o_i
#pragma once

#include "cpu/attention/packing.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// The bytes of scratch memory: the parts' weights and one row.
inline std::size_t merge_scratch(const MergeParams& p) {
  return static_cast<std::size_t>(round_up(p.count, 8)) * sizeof(double) +
         static_cast<std::size_t>(round_up(p.dim, kWidth)) * sizeof(Scalar);
}

/// The lse, and the weight, of a part without keys, which is ignored.
inline constexpr double kNoKeys = -std::numeric_limits<double>::infinity();

/// Writes the weights of the parts of a row. Returns its lse.
inline double weights_of_parts(const MergeParams& p, std::int64_t batch, std::int64_t head, std::int64_t i,
                               double* weights) {
  double top = kNoKeys, sum = 0.0;
  for (std::int64_t part = 0; part < p.count; ++part) {
    weights[part] = p.parts[part].lse.at(batch, head, i);
    if (!(weights[part] <= top) && weights[part] != kNoKeys) top = weights[part];  // NaN too
  }
  if (top == kNoKeys) return kNoKeys;
  for (std::int64_t part = 0; part < p.count; ++part)
    if (weights[part] != kNoKeys) sum += weights[part] = std::exp(weights[part] - top);
  const double scale = 1.0 / sum;
  for (std::int64_t part = 0; part < p.count; ++part)
    if (weights[part] != kNoKeys) weights[part] *= scale;
  return top + std::log(sum);
}

/// to = weight * from, or to + weight * from.
template <bool kAdds, class T>
SACCADE_INLINE void take_part(const T* from, std::int64_t dim, Scalar weight, Scalar* to) {
  const Vec factor = broadcast(weight);
  for (std::int64_t d = 0; d < dim; d += kWidth) {
    const Vec x = d + kWidth <= dim ? loadu(from + d) : load_first(from + d, static_cast<int>(dim - d));
    store(to + d, kAdds ? fma(factor, x, load(to + d)) : mul(factor, x));
  }
}

inline void merge_row(const MergeParams& p, std::int64_t batch, std::int64_t head, std::int64_t i, double* weights,
                      Scalar* row) {
  const double lse = weights_of_parts(p, batch, head, i, weights);
  bool is_first = true;
  for (std::int64_t part = 0; part < p.count; ++part) {
    if (weights[part] == kNoKeys) continue;
    const StridedHeads<const void>& o = p.parts[part].o;
    const Scalar weight = static_cast<Scalar>(weights[part]);
    with_storage(o.dtype, [&](auto type) {
      const auto* const from = o.row<decltype(type)>(batch, head, i);
      std::exchange(is_first, false) ? take_part<false>(from, p.dim, weight, row)
                                     : take_part<true>(from, p.dim, weight, row);
    });
  }
  if (is_first) std::fill_n(row, p.dim, Scalar{0});
  with_storage(p.o.dtype, [&](auto type) {
    auto* const to = p.o.row<decltype(type)>(batch, head, i);
    for (std::int64_t d = 0; d < p.dim; d += kWidth) {
      if (d + kWidth <= p.dim)
        storeu(to + d, load(row + d));
      else
        store_first(to + d, static_cast<int>(p.dim - d), load(row + d));
    }
  });
  with_f32_or_f64(p.lse.dtype, [&](auto number) {
    *p.lse.row<decltype(number)>(batch, head, i) = static_cast<decltype(number)>(lse);
  });
}

/// Rows [row, row_end), counted over all batch entries and heads.
inline void merge_rows(const MergeParams& p, std::int64_t row, std::int64_t row_end, void* scratch) {
  double* const weights = static_cast<double*>(scratch);
  Scalar* const numbers = reinterpret_cast<Scalar*>(weights + round_up(p.count, 8));
  std::int64_t i = row % p.rows, head = row / p.rows % p.heads, batch = row / p.rows / p.heads;
  for (; row < row_end; ++row) {
    merge_row(p, batch, head, i, weights, numbers);
    if (++i == p.rows) i = 0, ++head;
    if (head == p.heads) head = 0, ++batch;
  }
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
