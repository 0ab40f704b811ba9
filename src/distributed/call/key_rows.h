// Keys or values as rows that can be sent: quantized ones have scales and multipliers, which travel with them.
#pragma once

#include <vector>

#include "saccade/attention.h"

namespace saccade::distributed {

/// The keys or the values of a rank.
struct KeyRows {
  KeyRows() = default;
  /// `tensor`: [batch, num_kv_heads, keys, dim]. `scale` and `multipliers`: its options, which attention() takes.
  KeyRows(const TensorView& tensor, const TensorView& scale, const TensorView& multipliers);

  DType dtype = DType::f32;
  std::int64_t dim = 0;
  /// [batch, num_kv_heads, keys, columns]: numbers, rows of i4 as bytes; scales of tokens and multipliers, if it
  /// has them.
  std::vector<TensorView> tensors;
  TensorView channels;  ///< scales of channels, [batch, num_kv_heads, 1, dim]; empty: none

  /// The tensor that attention() takes, of some rows of tensors[0] in any shape.
  TensorView numbers_of(TensorView rows) const;
  /// Its options, of the same rows of all tensors and their channels.
  void describe(const std::vector<TensorView>& rows, const TensorView& of_channels, TensorView& scale,
                TensorView& multipliers) const;
};

/// Whether scales are those of channels, the same for all tokens.
inline bool is_of_channels(const TensorView& scale) { return scale.rank > 0 && scale.shape[scale.rank - 1U] != 1; }

/// Whether the value of an option belongs to the keys of a rank.
inline bool is_of_keys(TensorView AttentionOptions::*option, const TensorView& value) {
  if (option == &AttentionOptions::k_scale || option == &AttentionOptions::v_scale) return !is_of_channels(value);
  return option == &AttentionOptions::k_multipliers || option == &AttentionOptions::v_multipliers;
}

}  // namespace saccade::distributed
