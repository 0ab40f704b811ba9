// A piece: one call of the kernels within a distributed call, with its views of tensors and its options.
#pragma once

#include <vector>

#include "core/axes.h"
#include "distributed/plan/whole.h"
#include "saccade/distributed.h"

namespace saccade::distributed {

/// The local tensors of a call in one form: [batch, heads, rows, dim]; a packed batch is one entry.
TensorView as_headed(const TensorView& view, const AttentionOptions& options);
MutableTensorView as_headed(const MutableTensorView& view, const AttentionOptions& options);
/// The options of the kernel call that computes a piece for some heads, derived from those of the whole problem.
/// The call's q and o have the rows of the piece; its k and v have the keys `held` of the sequence, of which the
/// call sees `seen`. Refers to its own memory.
class PieceOptions {
 public:
  PieceOptions(const AttentionOptions& whole, const AttentionParams& params, const Plan::Piece& piece, Run held,
               Run seen, Run heads);
  PieceOptions(const PieceOptions&) = delete;
  PieceOptions& operator=(const PieceOptions&) = delete;

  /// The slice of an option of the whole problem, or of its gradient, that belongs to the piece.
  template <class View>
  View cut(TensorView AttentionOptions::*option, View view) const {
    if (option == &AttentionOptions::sinks) return cut_dim(view, 0, heads_);
    if (option == &AttentionOptions::alibi_slopes) return cut_dim(cut_dim(view, 0, heads_), 1, batch_);
    view = cut_dim(cut_dim(view, 3, batch_), 2, heads_);
    if (option == &AttentionOptions::mask) return cut_dim(cut_dim(view, 1, rows_), 0, keys_);
    return cut_dim(cut_dim(view, 1, block_rows_), 0, block_keys_);
  }

  AttentionOptions options;

 private:
  /// Slices a dimension, counted from the last, unless it is missing or broadcast.
  template <class View>
  static View cut_dim(const View& view, int from_last, Run run) {
    const int dim = view.rank - 1 - from_last;
    return dim >= 0 && view.shape[static_cast<std::size_t>(dim)] != 1 ? view.slice(dim, run.begin, run.end) : view;
  }

  void cut_documents(const AttentionParams& params, const Plan::Piece& piece, Run held);
  void cut_positions(const AttentionOptions& whole, const AttentionParams& params, const Plan::Piece& piece);
  void cut_lengths(const AttentionOptions& whole, const AttentionParams& params, const Plan::Piece& piece,
                   Run held, Run seen);
  void find_lengths(const AttentionParams& params, const Plan::Piece& piece, Run held);

  Run batch_, heads_, rows_, keys_, block_rows_, block_keys_;  // of the whole problem's options
  std::vector<std::int64_t> cu_seqlens_q_, cu_seqlens_k_, query_offsets_, kv_lengths_, kv_starts_;
};

/// Reshapes rows of some heads, [heads, rows, dim], for attention(): [1, heads, rows, dim], or packed
/// [rows, heads, dim].
template <class View>
View as_call(const View& heads, bool is_packed) {
  return is_packed ? heads.transposed(0, 1) : with_rank(heads, 4);
}
/// The same of lse, [heads, rows].
template <class View>
View lse_as_call(const View& heads, bool is_packed) {
  return is_packed ? heads : with_rank(heads, 3);
}

}  // namespace saccade::distributed
