// The order in which blocks add to sums that they share: fixed, whichever thread computes which block.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "core/parallel.h"
#include "core/progress.h"
#include "core/threads/platform.h"
#include "cpu/kernels.h"

namespace saccade::cpu {

class TicketSequencer {
 public:
  explicit TicketSequencer(std::int64_t count) : now_(static_cast<std::size_t>(count)) {}

  bool has_come(std::int64_t index, std::int64_t turn) const {
    return now_[static_cast<std::size_t>(index)].load(std::memory_order_acquire) == turn;
  }
  void wait(std::int64_t index, std::int64_t turn) { wait_for(now_[static_cast<std::size_t>(index)], turn); }
  void pass(std::int64_t index) {
    std::atomic<std::int64_t>& now = now_[static_cast<std::size_t>(index)];
    now.fetch_add(1, std::memory_order_acq_rel);
    threads::wake_all(now);
  }

 private:
  std::vector<std::atomic<std::int64_t>> now_;
};

/// What a block of keys adds to the gradients of a block of rows.
struct RowsWork {
  KeyBlock keys;
  QueryRows rows;
  std::int64_t index = 0, turn = 0;  // of the block of rows, over all heads; of the block of keys among its turns
  bool is_last = false;              // the last turn
  bool any = false;                  // false: it only passes the turn
  std::byte* scratch = nullptr;      // that of the kernels, or what they have parked
  std::byte* dq = nullptr;
};

/// What a thread adds to gradients of rows. If a turn has not come, the thread parks the work and goes on: with a
/// causal mask, a block of keys would wait for each one before it to reach its first rows. It waits only while the
/// turn before is being added, or for its oldest work where its places are full. A thread takes blocks in an order
/// in which those of a head ascend, so threads never wait in a circle.
class RowsOfThread {
 public:
  using Add = std::function<void(const RowsWork&)>;
  using Park = std::function<bool(const RowsWork&, std::byte* to)>;

  /// How many works of `bytes` a thread may park. With S 4096 and 64 threads for 8 causal heads, f32 on vectors
  /// needs 24.
  static std::int64_t places(std::size_t bytes) {
    constexpr std::size_t kMost = std::size_t{8} << 20;
    return static_cast<std::int64_t>(std::min<std::size_t>(kMost / std::max<std::size_t>(bytes, 1), 32));
  }

  /// add() adds a work; park() copies what it needs of its scratch memory to `to`, `bytes` long, or returns false.
  /// `memory`: of `places` works. With 0 places nothing is parked.
  RowsOfThread(TicketSequencer& turns, std::byte* memory, std::int64_t places, std::size_t bytes, Add add,
               Park park)
      : turns_(turns),
        memory_(memory),
        places_(places),
        bytes_(bytes),
        add_(std::move(add)),
        park_(std::move(park)),
        parked_(static_cast<std::size_t>(places)) {}

  /// Adds the work, or parks it.
  void add(const RowsWork& work) {
    catch_up();
    if (!has_come(work) && !turns_.has_come(work.index, before(work) - 1)) {
      if (try_to_park(work)) return;
      finish();
    }
    turns_.wait(work.index, before(work));
    add_now(work);
  }

  /// Returns when all that is parked has been added.
  void finish() {
    while (oldest_ < end_) add_oldest();
  }

 private:
  struct Parked {
    RowsWork work;
    bool is_added = false;
  };

  Parked& place(std::int64_t number) { return parked_[static_cast<std::size_t>(number % places_)]; }

  /// A turn passes twice: before and after its work is added.
  static std::int64_t before(const RowsWork& work) { return 2 * work.turn; }
  bool has_come(const RowsWork& work) const { return turns_.has_come(work.index, before(work)); }
  void add_now(const RowsWork& work) {
    turns_.pass(work.index);
    add_(work);
    turns_.pass(work.index);
    poll_progress();
  }

  void add_oldest() {
    const Parked& parked = place(oldest_++);
    if (parked.is_added) return;
    turns_.wait(parked.work.index, before(parked.work));
    add_now(parked.work);
  }

  /// Adds what is parked and whose turn has come.
  void catch_up() {
    for (std::int64_t i = oldest_; i < end_; ++i) {
      Parked& parked = place(i);
      if (parked.is_added || !has_come(parked.work)) continue;
      add_now(parked.work);
      parked.is_added = true;
    }
    while (oldest_ < end_ && place(oldest_).is_added) ++oldest_;
  }

  bool try_to_park(RowsWork work) {
    if (places_ == 0) return false;
    if (oldest_ == end_) oldest_ = end_ = 0;  // the first places are in a cache
    if (end_ - oldest_ == places_) add_oldest();
    std::byte* const to = memory_ + static_cast<std::size_t>(end_ % places_) * bytes_;
    if (work.any && !park_(work, to)) return false;
    work.scratch = to;
    place(end_++) = {work, false};
    return true;
  }

  TicketSequencer& turns_;
  std::byte* memory_;
  std::int64_t places_;
  std::size_t bytes_;
  Add add_;
  Park park_;
  std::vector<Parked> parked_;
  std::int64_t oldest_ = 0, end_ = 0;  // of those in use
};

}  // namespace saccade::cpu
