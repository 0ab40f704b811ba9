#include "saccade/decode.h"

#include <array>

#include "attention/arguments.h"
#include "attention/transforms.h"
#include "backend/backend.h"
#include "core/ceil_div.h"
#include "core/check.h"
#include "core/conflicts.h"
#include "core/parallel.h"

namespace saccade {
namespace {

/// Throws for options whose results cannot be computed from states of splits.
void check_options_of_states(const AttentionOptions& options, std::string_view function) {
  check_options_of(AttentionCall::decode_states, function, options);
  if (options.origin.key % kDecodeSplitKeys != 0)
    refuse(function, "origin.key must be a multiple of ", kDecodeSplitKeys, ", got ", options.origin.key);
}

/// Checks states of `splits` splits; -1: any number of them.
DecodeStates checked_states(const TensorView& states, void* data, const AttentionParams& p, std::int64_t splits,
                            std::string_view function) {
  const DType dtype = p.q.dtype == DType::f64 ? DType::f64 : DType::f32;
  if (states.dtype != dtype)
    refuse(function, "states must be ", name_of(dtype), " for a q of ", name_of(p.q.dtype), ", but it is ",
           name_of(states.dtype));
  const std::int64_t any = states.rank > 0 ? states.shape[0] : 0;
  const std::array wanted{splits < 0 ? any : splits, p.batch, p.num_heads, p.seqlen_q,
                          DecodeStates::row_size(p.head_dim_v)};
  if (!std::ranges::equal(states.dims(), wanted))
    refuse(function, "states must have shape ", to_string(wanted), ", but it has shape ",
           to_string(states.dims()));
  if (!states.is_contiguous()) refuse(function, "states must be contiguous");
  if (states.data == nullptr && states.size() > 0) refuse(function, "states has no data (null pointer)");
  return {data, wanted[0]};
}

/// A view with the shape of o, whose data is never read.
TensorView shape_of_o(const TensorView& q, const TensorView& v) {
  Shape shape(q.dims().begin(), q.dims().end());
  if (!shape.empty() && v.rank > 0) shape.back() = v.shape[static_cast<std::size_t>(v.rank - 1)];
  return TensorView(q.data, q.dtype, shape);
}

std::int64_t splits_of(const AttentionParams& p) { return ceil_div(p.seqlen_k, kDecodeSplitKeys); }

}  // namespace

void decode(const TensorView& q, const TensorView& k, const TensorView& v, const MutableTensorView& o,
            const AttentionOptions& options) {
  const BackendScope scope(options.backend);
  const AttentionOperands operands = check_operands(q, k, v, o, o.mutable_data(), options, "decode");
  const AttentionArguments arguments(operands, q, k, v, options, "decode");
  if (!arguments.params.has_rows()) return;
  const ThreadLimit limit(options.num_threads);
  with_transforms(arguments, [](const AttentionParams& p) { active_backend().decode(p); });
}

Tensor decode(const TensorView& q, const TensorView& k, const TensorView& v, const AttentionOptions& options) {
  Tensor o = output_like("decode", q, v);
  decode(q, k, v, o, options);
  return o;
}

namespace {

void write_states(const AttentionArguments& arguments, const MutableTensorView& states,
                  const AttentionOptions& options) {
  const AttentionParams& p = arguments.params;
  const DecodeStates to = checked_states(states, states.mutable_data(), p, splits_of(p), "decode_states");
  if (!p.has_rows() || to.splits == 0) return;
  const ThreadLimit limit(options.num_threads);
  with_transforms(arguments,
                  [&](const AttentionParams& transformed) { active_backend().decode_states(transformed, to); });
}

}  // namespace

void decode_states(const TensorView& q, const TensorView& k, const TensorView& v, const MutableTensorView& states,
                   const AttentionOptions& options) {
  const BackendScope scope(options.backend);
  check_options_of_states(options, "decode_states");
  const AttentionOperands operands = check_operands(q, k, v, shape_of_o(q, v), nullptr, options, "decode_states");
  write_states(AttentionArguments(operands, q, k, v, options, "decode_states", Outputs::ignored), states, options);
}

Tensor decode_states(const TensorView& q, const TensorView& k, const TensorView& v,
                     const AttentionOptions& options) {
  const BackendScope scope(options.backend);
  check_options_of_states(options, "decode_states");
  const AttentionOperands operands = check_operands(q, k, v, shape_of_o(q, v), nullptr, options, "decode_states");
  const AttentionArguments arguments(operands, q, k, v, options, "decode_states", Outputs::ignored);
  const AttentionParams& p = arguments.params;
  Tensor states(q.dtype == DType::f64 ? DType::f64 : DType::f32,
                {splits_of(p), p.batch, p.num_heads, p.seqlen_q, DecodeStates::row_size(p.head_dim_v)});
  write_states(arguments, states, options);
  return states;
}

void merge_decode_states(const TensorView& q, const TensorView& k, const TensorView& v, const TensorView& states,
                         const MutableTensorView& o, const AttentionOptions& options) {
  constexpr std::string_view kName = "merge_decode_states";
  const BackendScope scope(options.backend);
  check_options_of_states(options, kName);
  const AttentionOperands operands = check_operands(q, k, v, o, o.mutable_data(), options, kName);
  const AttentionArguments arguments(operands, q, k, v, options, kName);
  const AttentionParams& p = arguments.params;
  const DecodeStates from = checked_states(states, const_cast<void*>(states.data), p, -1, kName);
  if (!p.has_rows()) return;
  const ThreadLimit limit(options.num_threads);
  with_transforms(
      arguments,
      [&](const AttentionParams& transformed) { active_backend().merge_decode_states(transformed, from); }, false);
}

}  // namespace saccade
