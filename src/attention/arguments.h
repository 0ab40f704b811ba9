// Checks the arguments of attention() and converts them to the plain structs that kernels read.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "backend/attention_params.h"
#include "saccade/attention.h"

namespace saccade {

/// The tensors and scale of a call. Throws std::invalid_argument as attention() documents, in the name of
/// `function`; ignores options that do not affect them. `o_data`: where o is written, or nullptr if only its
/// shape is used.
AttentionOperands check_operands(const TensorView& q, const TensorView& k, const TensorView& v,
                                 const TensorView& o, void* o_data, const AttentionOptions& options,
                                 std::string_view function);

/// Whether no option adds to the operands, so that they describe the whole call.
bool has_operands_only(const AttentionOptions& options);

/// Throws unless the tensor has the axes of q with one number per row and head, or with `per_key` seqlen_k
/// numbers (packed: [num_heads, total_q]), and the type of results, f32 or f64.
void check_per_head(std::string_view function, std::string_view name, const TensorView& view, const TensorView& q,
                    bool per_key, const AttentionParams& p);

/// A tensor of this kind in the kernels' form.
template <class Void>
StridedHeads<Void> matrix_per_head(const TensorView& view, Void* data, const TensorView& q) {
  const int row = q.rank - 2;
  return {data, view.dtype, q.rank > 3 ? view.strides[0] : 0,
          q.rank > 2 ? view.strides[static_cast<std::size_t>(row - 1)] : 0,
          view.strides[static_cast<std::size_t>(row)]};
}

/// Scales of the channels of k or v, for each batch entry (page) and kv head; rows.data == nullptr: none.
struct ChannelScales {
  StridedHeads<const void> rows{};
  std::int64_t dim_stride = 0;
};

/// Whether a call writes the outputs of its options (lse, weights and scores). A backward pass does not.
enum class Outputs : std::uint8_t { written, ignored };

/// Throws std::invalid_argument as attention() documents, in the name of `function`. `params` points into the
/// caller's tensors and into this object.
class AttentionArguments {
 public:
  /// `operands`: those of a call with q, k and v; v is empty if the call has none.
  AttentionArguments(const AttentionOperands& operands, const TensorView& q, const TensorView& k,
                     const TensorView& v, const AttentionOptions& options, std::string_view function,
                     Outputs outputs = Outputs::written);
  AttentionArguments(const AttentionArguments&) = delete;
  AttentionArguments& operator=(const AttentionArguments&) = delete;

  AttentionParams params;
  /// What the call must do to q and o before and after the kernels, which know nothing of it: see transforms.h.
  ChannelScales k_channels, v_channels;
  bool k_rotated = false, v_rotated = false;

 private:
  std::vector<std::int64_t> query_offsets_, kv_lengths_, kv_starts_;  // [batch], as 64-bit integers
  std::vector<std::int64_t> cu_seqlens_q_, cu_seqlens_k_;             // [batch + 1]
};

/// An uninitialized o for q and v: q's shape and element type with v's last dimension.
Tensor output_like(std::string_view function, const TensorView& q, const TensorView& v);

}  // namespace saccade
