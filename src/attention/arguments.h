// What a caller of attention() gave, checked and put into the plain struct that kernels read.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "attention/params.h"
#include "saccade/attention.h"

namespace saccade {

/// The tensors and scale of a call. Throws std::invalid_argument as attention() says, in the name of `function`;
/// the options that take no part in them are not looked at.
AttentionOperands check_operands(const TensorView& q, const TensorView& k, const TensorView& v,
                                 const MutableTensorView& o, const AttentionOptions& options,
                                 std::string_view function);

/// Whether no option adds to the operands, so that they are all there is to a call.
bool has_operands_only(const AttentionOptions& options);

/// Throws std::invalid_argument as attention() says, in the name of `function`. `params` points into the caller's
/// tensors and into this object.
class AttentionArguments {
 public:
  /// `operands`: those of a call with q and k.
  AttentionArguments(const AttentionOperands& operands, const TensorView& q, const TensorView& k,
                     const AttentionOptions& options, std::string_view function);
  AttentionArguments(const TensorView& q, const TensorView& k, const TensorView& v, const MutableTensorView& o,
                     const AttentionOptions& options, std::string_view function);
  AttentionArguments(const AttentionArguments&) = delete;
  AttentionArguments& operator=(const AttentionArguments&) = delete;

  AttentionParams params;

 private:
  std::vector<std::int64_t> query_offsets_, kv_lengths_;   // [batch], as 64-bit integers
  std::vector<std::int64_t> cu_seqlens_q_, cu_seqlens_k_;  // [batch + 1]
};

/// An uninitialised o for q and v: q's shape and element type with v's last dimension.
Tensor output_like(std::string_view function, const TensorView& q, const TensorView& v);

}  // namespace saccade
