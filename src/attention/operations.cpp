#include "saccade/operations.h"

#include <algorithm>

#include "attention/arguments.h"
#include "backend/visibility.h"

namespace saccade {
namespace {

/// A view with the shape of o: q with the width of v.
TensorView like_output(const TensorView& q, const TensorView& v) {
  TensorView o = q;
  if (q.rank > 0 && v.rank > 0) {
    o.shape[q.rank - 1U] = v.shape[v.rank - 1U];
    o.strides[q.rank - 1U] = 1;  // a q with a head_dim of 1 may have any
  }
  return o;
}

/// The number of pairs of a query row and a key that it sees, in one head of a batch entry.
double visible_pairs(const AttentionParams& params, std::int64_t batch) {
  const Visibility visibility(params, batch);
  double pairs = 0.0;
  for (std::int64_t row = 0; row < params.rows(batch); ++row) {
    const KeyRange keys = visibility.visible(row);
    pairs += static_cast<double>(std::max<std::int64_t>(keys.end - keys.begin, 0));
  }
  return pairs;
}

}  // namespace

double attention_operations(const TensorView& q, const TensorView& k, const TensorView& v,
                            const AttentionOptions& options) {
  constexpr std::string_view kFunction = "attention_operations";
  const AttentionOperands operands = check_operands(q, k, v, like_output(q, v), nullptr, options, kFunction);
  const AttentionArguments arguments(operands, q, k, v, options, kFunction, Outputs::ignored);
  const AttentionParams& p = arguments.params;
  double pairs = 0.0;
  for (std::int64_t b = 0; b < p.batch; ++b) pairs += visible_pairs(p, b);
  return 2.0 * pairs * static_cast<double>(p.num_heads) * static_cast<double>(p.head_dim + p.head_dim_v);
}

}  // namespace saccade
