// The query rows that a rank computes and their results: its own, used in place, or those of all ranks with
// which it splits the heads, which are sent.
#pragma once

#include <vector>

#include "distributed/flow/flow.h"

namespace saccade::distributed {

/// The input tensors [batch, num_heads, rows, dim]. Every rank calls every function for every step.
class Rows {
 public:
  Rows(Call& call, std::vector<TensorView> tensors);

  void post(std::int64_t step);
  void wait(std::int64_t step);
  void finish() { fetch_.finish(); }
  /// Rows of tensor i for the query heads of the step's unit, [heads, rows, dim].
  TensorView rows(std::size_t i, std::int64_t step, Run rows) const;

 private:
  Call& call_;
  std::vector<TensorView> tensors_;
  Gather fetch_;
};

/// The output tensors [batch, num_heads, rows, dim].
class Results {
 public:
  Results(Call& call, std::vector<MutableTensorView> tensors);

  /// Makes room for the results of a step.
  void begin(std::int64_t step);
  /// Where to write rows of tensor i for the query heads of the step's unit, [heads, rows, dim].
  MutableTensorView rows(std::size_t i, std::int64_t step, Run rows) const;
  /// Starts sending the results to their owners.
  void post(std::int64_t step);
  void wait(std::int64_t step);
  void finish() { give_.finish(); }

 private:
  Call& call_;
  std::vector<MutableTensorView> tensors_;
  Reduce give_;
  std::vector<ReceiveBuffer> rooms_;
  std::int64_t first_ = 0;
};

}  // namespace saccade::distributed
