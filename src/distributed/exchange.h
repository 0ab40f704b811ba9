// What travels before a step of a distributed call: the keys and values that a rank's rows see, and, where ranks
// share heads, the rows of the ranks of its group.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "distributed/call.h"
#include "distributed/messages.h"

namespace saccade::distributed {

/// Contiguous numbers [heads, rows, dim], whose memory is used again as long as it suffices.
class Room {
 public:
  void resize(DType dtype, std::int64_t heads, std::int64_t rows, std::int64_t dim);

  MutableTensorView numbers{};
  Buffer memory;

 private:
  std::size_t bytes_ = 0;
};

/// The place of rows of a sequence in a tensor that holds some runs of them, one after the other.
class RowIndex {
 public:
  explicit RowIndex(std::vector<Run> runs) : runs_(std::move(runs)) {}

  const std::vector<Run>& runs() const { return runs_; }
  std::int64_t rows() const;
  std::int64_t operator[](std::int64_t row) const;

 private:
  std::vector<Run> runs_;
};

/// Fetches the inputs of each step one step ahead. Every step is post()ed once, in order, and then waited for.
class Exchange {
 public:
  /// `keys`: k and v, [batch, num_kv_heads, keys, dim]; `rows`: what is needed of query rows, [batch, num_heads,
  /// rows, dim].
  Exchange(Messages& messages, const Plan& plan, std::vector<TensorView> keys, std::vector<TensorView> rows);

  /// Begins to send and receive the inputs of a step.
  void post(std::int64_t step);
  /// Waits until they have arrived.
  void wait(std::int64_t step);
  /// Waits for what is still being sent.
  void finish();

  /// Tensor i of the keys of a step, [1, keys, dim], from key first_key() of the sequence on. What the rank does
  /// not need is not initialised.
  TensorView keys(std::size_t i, std::int64_t step) const { return slot(step).keys[i].numbers; }
  std::int64_t first_key(std::int64_t step) const { return slot(step).first_key; }

  /// Tensor i of the rows that the rank computes in a step, for the query heads of the unit: [heads, rows, dim].
  TensorView rows(std::size_t i, std::int64_t step) const;
  /// Where they are.
  const RowIndex& row_index() const { return row_index_; }

  /// Sends results of the rows of a step, `from` [heads, rows, dim], to the ranks that hold the rows, and receives
  /// into `to`, [batch, num_heads, rows, dim]; to be called for every step and with all tensors in the same order
  /// on every rank.
  void return_rows(std::int64_t step, const TensorView& from, const MutableTensorView& to);

  /// What must be kept if the call fails.
  std::vector<Batch*> open();

  bool shares_rows() const { return plan_.group_size() > 1; }
  Run query_heads(const Plan::Unit& unit) const { return {unit.kv_head * group_, (unit.kv_head + 1) * group_}; }

 private:
  struct Slot {
    std::vector<Room> keys, rows;
    std::int64_t first_key = 0;
    Batch receives, sends;
  };
  Slot& slot(std::int64_t step) { return slots_[static_cast<std::size_t>(step % 2)]; }
  const Slot& slot(std::int64_t step) const { return slots_[static_cast<std::size_t>(step % 2)]; }

  void make_room(std::int64_t step);
  void receive(std::int64_t step, int from);
  void send(std::int64_t step, int to);
  void take_own(std::int64_t step);
  bool is_in_group(int other) const { return plan_.first_of_group(other) == plan_.first_of_group(rank_); }
  std::vector<Run> keys_from(int holder, int rank, std::int64_t step) const;
  TensorView own_keys(const TensorView& tensor, const Plan::Unit& unit, Run keys) const;
  MutableTensorView place_of_keys(std::int64_t step, std::size_t i, Run keys);
  std::string text_of(std::int64_t step) const;

  Messages& messages_;
  const Plan& plan_;
  std::vector<TensorView> keys_, rows_;
  int rank_;
  std::int64_t group_;  // query heads of a kv head
  RowIndex row_index_;
  std::array<Slot, 2> slots_;
  struct Result {
    Buffer memory;
    MutableTensorView from, to;
  };
  std::vector<Result> results_;  // received and not yet copied to their place
  Batch returns_;
};

}  // namespace saccade::distributed
