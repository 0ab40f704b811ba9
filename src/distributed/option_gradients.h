// The gradients of options (mask, sinks, slopes) of a distributed backward pass: sums over pieces and ranks.
#pragma once

#include <algorithm>
#include <vector>

#include "distributed/call/call.h"

namespace saccade::distributed {

class OptionGradients {
 public:
  /// `gradients`: which ones are wanted, and where to write them.
  OptionGradients(Call& call, const AttentionGradients& gradients);

  /// Those of one piece: memory for them, and the gradients that point to it.
  struct Part {
    AttentionGradients gradients{};
    std::vector<Tensor> memory;
  };
  Part part(const PieceOptions& piece) const;
  void add(const Part& part, const PieceOptions& piece);

  /// Whether any is wanted.
  bool any() const {
    return std::ranges::any_of(sums_, [](const Tensor& sum) { return sum.rank() > 0; });
  }

  /// Adds up the sums of all ranks, in their order, and writes the results. Every rank calls it.
  void add_up();

 private:
  Call& call_;
  AttentionGradients wanted_;
  std::vector<Tensor> sums_;  // one for each of kOptionGradients; empty where it is not wanted
};

}  // namespace saccade::distributed
