// What a call does to q and o where k or v are quantized or stored transformed, by Hadamard transforms or with a
// scale for each channel: the kernels get queries of f32, transformed likewise, and what they write is transformed
// back.
#pragma once

#include "attention/arguments.h"

namespace saccade {

/// Whether a call needs a TransformedCall.
inline bool has_transforms(const AttentionArguments& arguments) {
  const AttentionParams& p = arguments.params;
  const bool widens = is_quantized(p.k.dtype) || is_quantized(p.v.dtype);
  return (widens && p.q.dtype != DType::f32) || arguments.k_rotated || arguments.v_rotated ||
         arguments.k_channels.rows.data || arguments.v_channels.rows.data;
}

/// The plain parameters of a call, with memory of their own for what is transformed.
class TransformedCall {
 public:
  /// `reads_q`: whether the call reads q.
  TransformedCall(const AttentionArguments& arguments, bool reads_q);

  AttentionParams params;

  /// Writes the caller's o, if the call has one.
  void write_o() const;

 private:
  const AttentionArguments& arguments_;
  Tensor q_, o_;
};

/// Calls compute(params), with transforms where needed.
template <class F>
void with_transforms(const AttentionArguments& arguments, const F& compute, bool reads_q = true) {
  if (!has_transforms(arguments)) return compute(arguments.params);
  const TransformedCall call(arguments, reads_q);
  compute(call.params);
  call.write_o();
}

}  // namespace saccade
