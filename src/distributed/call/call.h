// The common state of distributed calls: the rank's tensors in one form, and the plan.
#pragma once

#include <exception>
#include <functional>
#include <memory>

#include "distributed/call/agreement.h"
#include "distributed/call/key_rows.h"
#include "distributed/call/piece.h"

namespace saccade::distributed {

/// The tensors of one rank, [batch, heads, rows, dim]; a packed batch is one entry.
struct LocalTensors {
  TensorView q, k, v, o;
  KeyRows key_rows, value_rows;  // k and v again, with their scales
};

/// The options under which a rank's tensors alone form a valid call: scale, layout and threads.
AttentionOptions own_options(const AttentionOptions& options);

/// lse of a rank as [batch, heads, rows, 1].
template <class View>
View as_column(View lse) {
  lse = with_rank(lse, 3);
  lse.shape[lse.rank] = 1;
  lse.strides[lse.rank++] = 1;
  return lse;
}

// Checks of a rank's arguments, which throw as attention() does.

/// Checks that the tensors, and options.lse, have compatible shapes and types.
void check_tensors(std::string_view function, const TensorView& q, const TensorView& k, const TensorView& v,
                   const TensorView& o, const AttentionOptions& options);
/// Checks that a tensor has the rows of this rank's shard.
void check_rows(std::string_view function, std::string_view name, const TensorView& tensor,
                const AttentionOptions& options, const Sharding& sharding, int rank);

/// What this rank throws while it computes. If the caller's functions may throw, all ranks agree on how the call
/// ends, and until then this rank sends what others wait for. Otherwise only memory may run out: it leaves the
/// call at once, as a rank that is gone.
class RankError {
 public:
  RankError(const Messages& messages, const AttentionOptions& options);

  /// Calls f, unless an earlier one has thrown.
  template <class F>
  void attempt(const F& f) {
    if (error_) return;
    try {
      f();
    } catch (const CommunicationError&) {
      throw;
    } catch (...) {
      if (!is_agreed_on_) throw;
      error_ = std::current_exception();
    }
  }

  /// Ends the call's messages: throws on every rank if any rank caught something.
  void end(Messages& messages, std::string_view function) const;

 private:
  bool is_agreed_on_;
  std::exception_ptr error_;
};

/// Checks a call's arguments, agrees on them with the other ranks, and plans it.
class Call {
 public:
  /// `check`: further checks of this rank's arguments, covered by the same agreement. Throws the same on every
  /// rank.
  Call(
      Messages& messages, std::string_view function, const TensorView& q, const TensorView& k, const TensorView& v,
      const TensorView& o, const ParallelConfig& division, const AttentionOptions& options,
      const std::function<void()>& check = [] {});
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  void end() { error.end(messages, function); }

  std::int64_t steps() const { return plan->steps(); }
  int rank() const { return messages.rank(); }
  /// What this rank does in a step.
  Plan::Unit unit(std::int64_t step) const { return plan->unit(rank(), step); }
  /// The number of query heads per kv head.
  std::int64_t group() const { return params().num_heads / std::max<std::int64_t>(params().num_kv_heads, 1); }
  Run query_heads(const Plan::Unit& unit) const { return {unit.kv_head * group(), (unit.kv_head + 1) * group()}; }
  bool is_packed() const { return params().cu_seqlens_q != nullptr; }
  const AttentionParams& params() const { return whole->params; }  ///< of the whole problem, without memory

  std::string_view function;
  Messages& messages;
  const AttentionOptions& options;
  RankError error;
  Sizes sizes;
  std::unique_ptr<Plan> plan;
  std::unique_ptr<WholeProblem> whole;
  LocalTensors local{};
};

}  // namespace saccade::distributed
