// Data transfer in the steps of a distributed call. A flow is a set of tensors with sharded rows: a rank fetches
// the rows that it needs before it computes, and sends its results for them back to their owners.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "distributed/call/call.h"
#include "distributed/messages/messages.h"

namespace saccade::distributed {

/// A contiguous buffer [heads, rows, dim]; keeps its memory for later steps and reallocates only to grow.
class ReceiveBuffer {
 public:
  void resize(DType dtype, std::int64_t heads, std::int64_t rows, std::int64_t dim);

  MutableTensorView numbers{};
  Buffer memory;

 private:
  std::size_t bytes_ = 0;
};

/// Which rows (or keys) of a sequence each rank needs in a step, and who holds them.
struct Needs {
  const Plan* plan = nullptr;
  const Sharding* sharding = nullptr;
  std::int64_t heads = 1;    ///< heads of a tensor per kv head
  bool clears_gaps = false;  ///< whether rows that have room but are not needed are set to 0
  /// Ascending runs; empty if the rank has no unit in the step.
  std::function<std::vector<Run>(int rank, std::int64_t step)> rows;

  /// The rows that rank `rank` needs from `holder`.
  std::vector<Run> rows_from(int holder, int rank, std::int64_t step) const;
  /// The heads of a unit.
  Run heads_of(const Plan::Unit& unit) const { return {unit.kv_head * heads, (unit.kv_head + 1) * heads}; }
  /// Rows that rank `holder` holds, of its tensor [batch, heads, rows, dim]: [heads of the unit, rows, dim].
  template <class View>
  View part_of(const View& tensor, int holder, const Plan::Unit& unit, Run run) const {
    const std::int64_t row = sharding->local_row(holder, run.begin);
    const Run of_unit = heads_of(unit);
    return tensor.select(0, unit.batch).slice(0, of_unit.begin, of_unit.end).slice(1, row, row + run.size());
  }
};

/// Fetches rows of tensors one step ahead. Every rank calls every function for every step, in ascending order.
class Gather {
 public:
  /// `tensors`: [batch, heads, rows, dim], those of this rank.
  Gather(Messages& messages, Needs needs, std::vector<TensorView> tensors);

  /// Starts receiving what this rank needs in a step, and sending what others need. `room`: rows that kernels
  /// are called with and that must fit besides the needed ones; may be empty.
  void post(std::int64_t step, Run room = {});
  /// Waits until the rows of a step have arrived.
  void wait(std::int64_t step);
  /// Waits until all messages are sent.
  void finish();

  /// Rows of the sequence in tensor i, [heads, rows, dim]. Rows that are not needed are undefined.
  TensorView rows(std::size_t i, std::int64_t step, Run rows) const;

 private:
  struct Slot {
    std::vector<ReceiveBuffer> rooms;
    std::int64_t first = 0;
    Batch receives, sends;
  };
  Slot& slot(std::int64_t step) { return slots_[static_cast<std::size_t>(step % 2)]; }
  const Slot& slot(std::int64_t step) const { return slots_[static_cast<std::size_t>(step % 2)]; }
  MutableTensorView place(std::size_t i, std::int64_t step, Run rows);
  void clear_gaps(std::int64_t step, Run room, const std::vector<Run>& rows);
  void receive(std::int64_t step, int from);
  void send(std::int64_t step, int to);

  Messages& messages_;
  Needs needs_;
  std::vector<TensorView> tensors_;
  std::array<Slot, 2> slots_;
};

/// Sends partial results for rows to their owners, which add those of several ranks in rank order. Every rank
/// calls every function for every step, in ascending order.
class Reduce {
 public:
  /// `tensors`: [batch, heads, rows, dim], those of this rank; `dtypes`: the types of their partial results.
  Reduce(Messages& messages, Needs needs, std::vector<MutableTensorView> tensors, std::vector<DType> dtypes);

  /// Sends this rank's results of a step, and starts receiving those of others. `results`: for each tensor
  /// [heads, rows, dim], starting at row `first` of the sequence.
  void post(std::int64_t step, const std::vector<TensorView>& results, std::int64_t first);
  /// Waits for the results of a step and writes their sums into the tensors; rows that no rank needed become 0.
  void wait(std::int64_t step);
  /// Waits until all messages are sent.
  void finish();

 private:
  /// A partial result: what one rank computed for some of this rank's rows.
  struct Part {
    int rank;
    std::size_t tensor;
    Run rows;
    Buffer memory;
    MutableTensorView numbers;  // [heads, rows, dim]
  };
  struct Slot {
    std::vector<Part> parts;
    Batch receives, sends;
  };
  Slot& slot(std::int64_t step) { return slots_[static_cast<std::size_t>(step % 2)]; }
  Part make_part(int rank, std::size_t tensor, Run rows) const;
  /// Adds the partial results of a unit for one tensor and writes the sum.
  void add(const Slot& slot, std::size_t tensor, const Plan::Unit& unit, std::int64_t step);

  Messages& messages_;
  Needs needs_;
  std::vector<MutableTensorView> tensors_;
  std::vector<DType> dtypes_;
  std::array<Slot, 2> slots_;
};

}  // namespace saccade::distributed
