// What travels in a step of a distributed call. A flow is a set of tensors whose rows the ranks hold by a
// sharding: the rows that a rank needs are fetched before it computes, and what it computed for them returns to
// their holders.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "distributed/call/call.h"
#include "distributed/messages/messages.h"

namespace saccade::distributed {

/// Contiguous numbers [heads, rows, dim], whose memory is used again as long as it suffices.
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
  std::int64_t heads = 1;    ///< heads of a tensor that belong to a kv head
  bool clears_gaps = false;  ///< rows that are not needed, but for which there is room, are 0
  /// Ascending runs; empty if the rank has no unit in the step.
  std::function<std::vector<Run>(int rank, std::int64_t step)> rows;

  /// Those that `holder` holds.
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

  /// Begins to receive what this rank needs in a step, and to send what others need. `room`: rows for which there
  /// must be room besides those that are needed, as kernels are called with them; may be empty.
  void post(std::int64_t step, Run room = {});
  /// Waits until the rows of a step are there.
  void wait(std::int64_t step);
  /// Waits until all messages are sent.
  void finish();

  /// Rows of the sequence in tensor i, [heads, rows, dim]. Those that are not needed hold anything.
  TensorView rows(std::size_t i, std::int64_t step, Run rows) const;

  std::array<Batch*, 4> open() {
    return {&slots_[0].receives, &slots_[0].sends, &slots_[1].receives, &slots_[1].sends};
  }

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

/// Returns results for rows to their holders, which add up what several ranks computed, in the order of the ranks.
/// Every rank calls every function for every step, in ascending order.
class Reduce {
 public:
  /// `tensors`: [batch, heads, rows, dim], those of this rank; `dtypes`: what their results are computed in.
  Reduce(Messages& messages, Needs needs, std::vector<MutableTensorView> tensors, std::vector<DType> dtypes);

  /// Sends this rank's results of a step, and begins to receive those of others. `results`: for each tensor
  /// [heads, rows, dim] from row `first` of the sequence on.
  void post(std::int64_t step, const std::vector<TensorView>& results, std::int64_t first);
  /// Waits for the results of a step and writes their sums into the tensors; rows that nobody needed become 0.
  void wait(std::int64_t step);
  /// Waits until all messages are sent.
  void finish();

  std::array<Batch*, 4> open() {
    return {&slots_[0].receives, &slots_[0].sends, &slots_[1].receives, &slots_[1].sends};
  }

 private:
  /// What a rank computed for some rows that this rank holds.
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
  /// Adds up the parts of a unit in a tensor and writes the sum.
  void add(const Slot& slot, std::size_t tensor, const Plan::Unit& unit, std::int64_t step);

  Messages& messages_;
  Needs needs_;
  std::vector<MutableTensorView> tensors_;
  std::vector<DType> dtypes_;
  std::array<Slot, 2> slots_;
};

}  // namespace saccade::distributed
