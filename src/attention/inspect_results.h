// Checks the tensors requested from inspect(), allocates them and describes them to the kernels.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "backend/attention_params.h"
#include "saccade/inspect.h"

namespace saccade {

inline constexpr std::string_view kInspect = "inspect";

/// Every requested tensor, and the kernels' view of it. Throws std::invalid_argument as inspect() documents.
class InspectResults {
 public:
  /// `p`: the parameters of a call with q, k and `options`.
  InspectResults(const TensorView& q, const TensorView& k, const InspectOptions& wanted,
                 const AttentionOptions& options, const AttentionParams& p);

  InspectParams params;
  Inspection inspection;

 private:
  bool has_batch(bool per_document) const { return p_.cu_seqlens_q ? per_document : rank_ > 3; }

  /// [batch, num_heads, lengths...] without the axes that q does not have. In a packed batch only results per
  /// document have the batch axis.
  Shape shape_of(bool per_document, std::initializer_list<std::int64_t> lengths) const;

  /// Allocates a tensor [..., rows, row_length], or [..., rows] of single numbers, and returns the kernels' view
  /// of it.
  StridedHeads<void> add(Tensor& tensor, DType dtype, bool per_document, std::int64_t rows,
                         std::int64_t row_length = 0) const;

  /// `count` numbers per head, one head after the other.
  StridedHeads<void> per_head(Tensor& tensor, std::int64_t count) const;

  void add_rows();

  const InspectOptions& wanted_;
  const AttentionParams& p_;
  int rank_;
  DType dtype_;
  std::int64_t rows_of_q_, keys_of_k_;
  std::vector<std::int64_t> rows_, places_;
};

}  // namespace saccade
