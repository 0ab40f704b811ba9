#include "distributed/plan/whole.h"

#include "core/check.h"
#include "core/conflicts.h"
#include "saccade/attention_options.h"

namespace saccade::distributed {
namespace {

/// [batch, heads, rows, 1], packed [rows, heads, 1]: a shape to check options against; its data is never read.
TensorView shape_only(const AttentionOptions& options, std::int64_t batch, std::int64_t heads, std::int64_t rows) {
  static constexpr float kNumber = 0.0F;
  if (options.cu_seqlens_q) return {&kNumber, {rows, heads, 1}, {0, 0, 1}};
  return {&kNumber, {batch, heads, rows, 1}, {0, 0, 0, 1}};
}

/// The options without the rank's own outputs and without what belongs to its keys.
AttentionOptions checked_options(const AttentionOptions& options, std::string_view function) {
  check_options_of(AttentionCall::distributed, function, options);
  AttentionOptions whole = options;
  whole.lse = {};
  whole.k_scale = whole.v_scale = whole.k_multipliers = whole.v_multipliers = {};
  whole.k_rotated = whole.v_rotated = false;
  whole.layout = Layout::bhsd;
  return whole;
}

AttentionOperands operands_of(const TensorView& q, const TensorView& k, const AttentionOptions& options,
                              std::string_view function) {
  return check_operands(q, k, k, q, nullptr, options, function);
}

}  // namespace

AttentionOptions visibility_of(const AttentionOptions& options) {
  return options_of_role(OptionRole::visibility, options);
}

std::int64_t batch_of(const AttentionOptions& options) {
  std::int64_t batch = 1;
  for (const TensorView* view : {&options.kv_lengths, &options.kv_starts, &options.query_offsets})
    if (view->rank == 1) batch = view->shape[0];
  return batch;
}

WholeProblem::WholeProblem(const Sizes& sizes, std::int64_t seqlen_q, std::int64_t seqlen_k,
                           const AttentionOptions& options, std::string_view function)
    : arguments_(operands_of(shape_only(options, sizes.batch, sizes.num_heads, seqlen_q),
                             shape_only(options, sizes.batch, sizes.num_kv_heads, seqlen_k),
                             checked_options(options, function), function),
                 shape_only(options, sizes.batch, sizes.num_heads, seqlen_q),
                 shape_only(options, sizes.batch, sizes.num_kv_heads, seqlen_k), {},
                 checked_options(options, function), function) {}

}  // namespace saccade::distributed
