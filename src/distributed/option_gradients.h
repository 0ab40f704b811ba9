// The gradients of options (mask, sinks, slopes) of a distributed backward pass: sums over pieces and ranks.
#pragma once

#include <algorithm>
#include <vector>

#include "distributed/call/call.h"

namespace saccade::distributed {

class OptionGradients {
 public:
  /// `gradients`: which ones are requested, and where to write them.
  OptionGradients(Call& call, const AttentionGradients& gradients);

  /// The gradients of one piece, and their memory.
  struct Part {
    AttentionGradients gradients{};
    std::vector<Tensor> memory;
  };
  Part part(const PieceOptions& piece) const;
  void add(const Part& part, const PieceOptions& piece);

  /// Whether any gradient is requested.
  bool any() const {
    return std::ranges::any_of(sums_, [](const Tensor& sum) { return sum.rank() > 0; });
  }

  /// Adds the sums of all ranks in rank order and writes the results. Every rank calls it.
  void add_up();

 private:
  Call& call_;
  AttentionGradients wanted_;
  std::vector<Tensor> sums_;  // one for each of kOptionGradients; empty if not requested
};

}  // namespace saccade::distributed
