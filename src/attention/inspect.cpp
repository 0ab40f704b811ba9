#include "saccade/inspect.h"

#include <utility>

#include "attention/arguments.h"
#include "attention/inspect_results.h"
#include "attention/transforms.h"
#include "backend/backend.h"
#include "core/check.h"
#include "core/conflicts.h"
#include "core/parallel.h"

namespace saccade {

Inspection inspect(const TensorView& q, const TensorView& k, const InspectOptions& wanted,
                   const AttentionOptions& options) {
  const BackendScope scope(options.backend);
  check_options_of(AttentionCall::inspect, kInspect, options);
  if (q.rank != k.rank && !options.block_table)
    refuse(kInspect, "q and k must have the same rank, but they have shapes ", to_string(q.dims()), " and ",
           to_string(k.dims()));
  // Values and output are not used: k stands in for v, and q for o, because their shapes are valid.
  const AttentionOperands operands = check_operands(q, k, k, q, nullptr, options, kInspect);
  const AttentionArguments arguments(operands, q, k, {}, options, kInspect);
  InspectResults results(q, k, wanted, options, arguments.params);
  if (!arguments.params.has_rows()) return std::move(results.inspection);
  const ThreadLimit limit(options.num_threads);
  with_transforms(
      arguments,
      [&](const AttentionParams& p) {
        results.params.attention.q = p.q;
        active_backend().inspect(results.params);
      },
      true, Bf16Queries::widened);
  return std::move(results.inspection);
}

}  // namespace saccade
