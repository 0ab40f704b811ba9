// The two passes of a distributed backward pass: the owners of rows compute dq and their partial dk and dv; for
// exact bits, the owners of keys compute dk and dv instead.
#pragma once

#include <vector>

#include "distributed/call/call.h"
#include "distributed/option_gradients.h"

namespace saccade::distributed {

/// The rank's tensors of a backward pass, [batch, heads, rows, dim]; empty: not requested.
struct LocalGradients {
  /// The inputs of each row: q, o, dout, lse and, if given, dlse; lse and dlse have a dim of 1.
  std::vector<TensorView> rows;
  MutableTensorView dq, dk, dv;
};

/// The outcome of a call for rows of LocalGradients::rows, each [heads, rows, dim]; the first is q.
AttentionOutcome attention_outcome(const std::vector<TensorView>& rows, bool is_packed);

/// The element type in which gradients are summed.
inline DType type_of_sums(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

/// Computes the requested ones of dq, this rank's partial dk and dv, and the gradients of options.
void run_row_backward(Call& call, const LocalGradients& local, OptionGradients& options);

/// Computes dk and dv of this rank's keys from all rows that see them.
void run_key_backward(Call& call, const LocalGradients& local);

}  // namespace saccade::distributed
