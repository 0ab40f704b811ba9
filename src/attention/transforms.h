// What a call does to q and o where k or v are quantized or stored transformed, by Hadamard transforms or with a
// scale for each channel: the kernels get queries of f32, transformed likewise, and what they write is transformed
// back. Queries of bf16 that are not transformed are kept where kernels multiply pairs of bf16.
#pragma once

#include "attention/arguments.h"

namespace saccade {

/// Whether a call keeps queries of bf16 beside quantized keys or values.
enum class Bf16Queries : std::uint8_t { widened, kept };

/// Whether the kernels get other queries than the caller's.
inline bool changes_q(const AttentionArguments& arguments, Bf16Queries bf16) {
  const AttentionParams& p = arguments.params;
  const bool is_plain = p.q.dtype == DType::f32 || (p.q.dtype == DType::bf16 && bf16 == Bf16Queries::kept);
  return ((is_quantized(p.k.dtype) || is_quantized(p.v.dtype)) && !is_plain) || arguments.k_rotated ||
         arguments.k_channels.rows.data;
}

/// Whether a call needs a TransformedCall.
inline bool has_transforms(const AttentionArguments& arguments, Bf16Queries bf16) {
  return changes_q(arguments, bf16) || arguments.v_rotated || arguments.v_channels.rows.data;
}

/// The plain parameters of a call, with memory of their own for what is transformed.
class TransformedCall {
 public:
  /// `reads_q`: whether the call reads q.
  TransformedCall(const AttentionArguments& arguments, bool reads_q, Bf16Queries bf16);

  AttentionParams params;

  /// Writes the caller's o, if the call has one.
  void write_o() const;

 private:
  const AttentionArguments& arguments_;
  Tensor q_, o_;
};

/// Calls compute(params), with transforms where needed.
template <class F>
void with_transforms(const AttentionArguments& arguments, const F& compute, bool reads_q = true,
                     Bf16Queries bf16 = Bf16Queries::kept) {
  if (!has_transforms(arguments, bf16)) return compute(arguments.params);
  const TransformedCall call(arguments, reads_q, bf16);
  compute(call.params);
  call.write_o();
}

}  // namespace saccade
