// The gradients of an attention problem, and their comparison with the reference.
#pragma once

#include <saccade/backward.h>
#include <saccade/reference.h>

#include <array>
#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "cases/attention_case.h"

namespace saccade::cases {

/// Whether a problem has gradients: paged problems have none.
bool has_gradients(const AttentionCase& c);

/// A case, the gradients of its o and, in every third case, of its lse, and the reference's results, computed once
/// for any number of checks.
class CheckedGradients {
 public:
  /// Draws dout, dlse, the gradients' element types and layouts from `seed`. The case must outlive this object.
  CheckedGradients(AttentionCase& checked, std::uint64_t seed);

  /// Calls attention() and attention_backward() on the active instruction set.
  void compute();
  /// Compares every gradient with the reference. Throws std::runtime_error if memory outside a gradient was
  /// written.
  std::vector<Finding> compare();
  std::vector<Finding> run() {
    compute();
    return compare();
  }

  /// The gradients from the last run: dq, dk, dv and those of the options.
  std::vector<Tensor> results() const;
  /// What attention_backward() needs from the forward pass.
  AttentionOutcome outcome() const;

  ScatteredTensor dout, dq, dk, dv;
  Tensor dlse;  ///< empty: not given
  /// In the order of kOptionGradients; empty if the option is not given or is a bool mask.
  std::array<Tensor, std::size(kOptionGradients<Tensor>)> of_options;

 private:
  TensorView given_dlse() const;

  AttentionCase& case_;
  Tensor lse_;
  AttentionOptions options_;  // the case's options, with memory for lse
  reference::AttentionBackwardResult exact_;
  std::map<std::optional<DType>, reference::AttentionGradients> naive_;  // by the rounding of exponentials
};

}  // namespace saccade::cases
