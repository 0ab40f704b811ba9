#include "distributed/call/call.h"

#include "core/axes.h"
#include "core/check.h"
#include "core/conflicts.h"

namespace saccade::distributed {
namespace {

/// Throws unless scales and multipliers fit k and v, and scales of channels are there without keys too.
void check_scales(std::string_view function, const AttentionOperands& operands, const TensorView& q,
                  const TensorView& k, const TensorView& v, const AttentionOptions& options) {
  AttentionOptions own = own_options(options);
  own.k_scale = options.k_scale, own.v_scale = options.v_scale;
  own.k_multipliers = options.k_multipliers, own.v_multipliers = options.v_multipliers;
  own.k_rotated = options.k_rotated, own.v_rotated = options.v_rotated;
  const AttentionArguments checked(operands, q, k, v, own, function, Outputs::ignored);
  for (const auto& [name, scale] : {std::pair{"k_scale", &own.k_scale}, {"v_scale", &own.v_scale}})
    if (is_of_channels(*scale) && scale->rank > 1 && scale->shape[scale->rank - 2U] != 1)
      refuse(function, name, " of channels must be the same for all tokens, but it has shape ",
             to_string(scale->dims()));
}

/// Whether the caller's functions may throw in the middle of a call.
bool may_throw(const AttentionOptions& options) {
  return options.score_modifier || options.score_modifier_backward || options.score_block_effect;
}

}  // namespace

void check_rows(std::string_view function, std::string_view name, const TensorView& tensor,
                const AttentionOptions& options, const Sharding& sharding, int rank) {
  const std::int64_t rows = as_headed(tensor, options).shape[2], wanted = sharding.rows(rank);
  if (rows != wanted)
    refuse(function, name, " must hold the ", wanted, " rows that the division gives to rank ", rank,
           ", but it has shape ", to_string(tensor.dims()));
}

void check_tensors(std::string_view function, const TensorView& q, const TensorView& k, const TensorView& v,
                   const TensorView& o, const AttentionOptions& options) {
  check_scales(function, check_operands(q, k, v, o, nullptr, own_options(options), function), q, k, v, options);
  if (!options.lse) return;
  check_dtype(function, "lse", options.lse, q.dtype == DType::f64 ? DType::f64 : DType::f32);
  const TensorView headed = as_headed(q, options);
  const Shape wanted(headed.dims().begin() + (options.cu_seqlens_q ? 1 : 4 - q.rank), headed.dims().end() - 1);
  if (!std::ranges::equal(options.lse.dims(), wanted))
    refuse(function, "lse must have shape ", to_string(wanted), ", but it has shape ",
           to_string(options.lse.dims()));
  if (options.lse.data == nullptr && options.lse.size() > 0) refuse(function, "lse has no data (null pointer)");
}

AttentionOptions own_options(const AttentionOptions& options) {
  return {.scale = options.scale,
          .layout = options.cu_seqlens_q ? Layout::bshd : options.layout,
          .num_threads = options.num_threads};
}

Sizes sizes_of(const TensorView& q, const TensorView& k, const TensorView& v, const AttentionOptions& options,
               std::string_view function) {
  for (const auto& [name, view] : {std::pair{"q", &q}, {"k", &k}})
    if (options.cu_seqlens_q ? view->rank != 3 : view->rank < 2 || view->rank > 4)
      refuse(function, name,
             options.cu_seqlens_q ? " must be [rows, heads, dim] in a packed batch" : " must have rank 2, 3 or 4",
             ", but it has shape ", to_string(view->dims()));
  for (const auto& [name, view] : {std::pair{"q", &q}, {"k", &k}, {"v", &v}})
    if (std::ranges::any_of(view->dims(), [](std::int64_t length) { return length > kMaxLength; }))
      refuse(function, name, " has a dimension longer than 2^40: its shape is ", to_string(view->dims()));
  const TensorView rows = as_headed(q, options), keys = as_headed(k, options);
  return {.batch = rows.shape[0],
          .num_heads = rows.shape[1],
          .num_kv_heads = keys.shape[1],
          .head_dim = keys.shape[3],
          .head_dim_v = v.rank > 0 ? v.shape[v.rank - 1U] : keys.shape[3],
          .element_bytes = static_cast<std::int64_t>(size_of(k.dtype))};
}

Call::Call(Messages& messages_of_call, std::string_view name, const TensorView& q, const TensorView& k,
           const TensorView& v, const TensorView& o, const ParallelConfig& division,
           const AttentionOptions& options_of_call, const std::function<void()>& check)
    : function(name), messages(messages_of_call), options(options_of_call), error(messages, options) {
  Agreement agreement{
      .function = name, .q = q, .k = k, .v = v, .o = o, .sizes = {}, .division = &division, .options = &options};
  agree(messages, agreement, [&] {
    check_options_of(AttentionCall::distributed, name, options);
    agreement.sizes = sizes = sizes_of(q, k, v, options, name);
    plan = std::make_unique<Plan>(agreement.sizes, division, options, name);
    if (plan->ranks() != messages.size())
      refuse(name, "the division is for ", plan->ranks(), " ranks but the communicator has ", messages.size());
    check_tensors(name, q, k, v, o, options);
    check_rows(name, "q", q, options, plan->division().rows, messages.rank());
    check_rows(name, "k", k, options, plan->division().keys, messages.rank());
    whole = std::make_unique<WholeProblem>(agreement.sizes, plan->division().rows.length(),
                                           plan->division().keys.length(), options, name);
    check();
  });
  local.q = as_headed(q, options), local.k = as_headed(k, options), local.v = as_headed(v, options);
  local.o = as_headed(o, options);
  local.key_rows = KeyRows(local.k, options.k_scale, options.k_multipliers);
  local.value_rows = KeyRows(local.v, options.v_scale, options.v_multipliers);
}

RankError::RankError(const Messages& messages, const AttentionOptions& options)
    : is_agreed_on_(messages.size() > 1 && may_throw(options)) {}

void RankError::end(Messages& messages, std::string_view function) const {
  if (is_agreed_on_) return agree_on_end(messages, function, error_);
  messages.end();
}

}  // namespace saccade::distributed
