#include "attention/backward_arguments.h"

#include <algorithm>
#include <span>

#include "core/axes.h"
#include "core/check.h"

namespace saccade {
namespace {

constexpr std::string_view kAttentionBackward = "attention_backward";

/// A tensor with the axes of q, k, v or o.
template <class Void>
StridedHeads<Void> matrix_of(std::string_view name, const TensorView& view, Void* data, std::string_view like_name,
                             std::span<const std::int64_t> like, DType dtype_of_q,
                             const AttentionOptions& options) {
  if (!std::ranges::equal(view.dims(), like))
    refuse(kAttentionBackward, name, " must have the shape of ", like_name, ", ", to_string(like),
           ", but it has shape ", to_string(view.dims()));
  if (!is_floating(view.dtype) || (view.dtype == DType::f64) != (dtype_of_q == DType::f64))
    refuse(kAttentionBackward, name, " must be ", dtype_of_q == DType::f64 ? "f64" : "f32, bf16 or f16",
           ", but it is ", name_of(view.dtype));
  check_memory(kAttentionBackward, name, view);
  const TensorView ordered = as_bhsd(view, options.cu_seqlens_q ? Layout::bshd : options.layout);
  return {data, view.dtype, ordered.strides[0], ordered.strides[1], ordered.strides[2]};
}

/// Checks a gradient against the tensor that it belongs to, `like`.
void check_gradient(std::string_view name, const MutableTensorView& view, std::string_view like_name,
                    const TensorView& like, DType dtype) {
  if (!like) refuse(kAttentionBackward, name, " was given without ", like_name);
  check_dtype(kAttentionBackward, name, view, dtype);
  if (!std::ranges::equal(view.dims(), like.dims()))
    refuse(kAttentionBackward, name, " must have the shape of ", like_name, ", ", to_string(like.dims()),
           ", but it has shape ", to_string(view.dims()));
  if (view.data == nullptr && view.size() > 0) refuse(kAttentionBackward, name, " has no data (null pointer)");
}

}  // namespace

BackwardArguments::BackwardArguments(const TensorView& q, const TensorView& k, const TensorView& v,
                                     const AttentionOutcome& outcome, const AttentionGradients& gradients,
                                     const AttentionOptions& options)
    : forward_((check_not_quantized(kAttentionBackward, "k", k), check_not_quantized(kAttentionBackward, "v", v),
                check_operands(q, k, v, outcome.o, nullptr, options, kAttentionBackward)),
               q, k, v, options, kAttentionBackward, Outputs::ignored) {
  if (!outcome.lse) refuse(kAttentionBackward, "lse must be given: attention() writes it");
  params.attention = forward_.params;
  check_per_head(kAttentionBackward, "lse", outcome.lse, q, false, forward_.params);
  params.lse = matrix_per_head(outcome.lse, outcome.lse.data, q);
  if (outcome.dlse) {
    check_per_head(kAttentionBackward, "dlse", outcome.dlse, q, false, forward_.params);
    params.dlse = matrix_per_head(outcome.dlse, outcome.dlse.data, q);
  }
  const TensorView& o = outcome.o;
  params.o = matrix_of("o", o, o.data, "o", o.dims(), q.dtype, options);
  params.dout = matrix_of("dout", outcome.dout, outcome.dout.data, "o", o.dims(), q.dtype, options);
  const auto gradient_of = [&](std::string_view name, const MutableTensorView& view, std::string_view like_name,
                               const TensorView& like) {
    return matrix_of(name, view, view.mutable_data(), like_name, like.dims(), q.dtype, options);
  };
  if (gradients.dk && !gradients.dv) refuse(kAttentionBackward, "dk was given without dv");
  if (gradients.dv && !gradients.dk) refuse(kAttentionBackward, "dv was given without dk");
  if (!gradients.dq && !gradients.dk) refuse(kAttentionBackward, "dq, or dk and dv, must be given: all are empty");
  if (gradients.dq) params.dq = gradient_of("dq", gradients.dq, "q", q);
  if (gradients.dk) {
    params.dk = gradient_of("dk", gradients.dk, "k", k);
    params.dv = gradient_of("dv", gradients.dv, "v", v);
  }
  params.score_modifier_backward = options.score_modifier_backward;
  add_gradients_of_options(gradients, options, q.dtype == DType::f64 ? DType::f64 : DType::f32);
}

void BackwardArguments::add_gradients_of_options(const AttentionGradients& gradients,
                                                 const AttentionOptions& options, DType dtype) {
  if (const MutableTensorView& dsinks = gradients.dsinks) {
    check_gradient("dsinks", dsinks, "sinks", options.sinks, dtype);
    params.dsink = {dsinks.mutable_data(), dtype, 0, dsinks.strides[0], 0};
  }
  if (const MutableTensorView& dslopes = gradients.dalibi_slopes) {
    check_gradient("dalibi_slopes", dslopes, "alibi_slopes", options.alibi_slopes, dtype);
    params.dslopes_of_entries = dslopes.rank == 2;
    params.dslopes = {dslopes.mutable_data(), dtype, dslopes.rank == 2 ? dslopes.strides[0] : 0,
                      dslopes.strides[static_cast<std::size_t>(dslopes.rank - 1)], 0};
  }
  if (gradients.dmask) add_mask(gradients.dmask, options, dtype);
}

void BackwardArguments::add_mask(const MutableTensorView& dmask, const AttentionOptions& options, DType dtype) {
  check_gradient("dmask", dmask, "mask", options.mask, dtype);
  if (options.mask.dtype == DType::boolean) refuse(kAttentionBackward, "dmask was given but mask is bool");
  std::int64_t* const strides[4] = {&params.dmask.batch_stride, &params.dmask.head_stride,
                                    &params.dmask.row_stride, &params.dmask.column_stride};
  for (int i = 0; i < dmask.rank; ++i) *strides[4 - dmask.rank + i] = dmask.shape[i] == 1 ? 0 : dmask.strides[i];
  params.dmask_data = dmask.mutable_data();
}

}  // namespace saccade
