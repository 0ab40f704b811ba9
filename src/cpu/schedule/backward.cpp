#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <vector>

#include "core/ceil_div.h"
#include "core/parallel.h"
#include "core/progress.h"
#include "cpu/policy/threads.h"
#include "cpu/schedule/schedules.h"
#include "cpu/schedule/turns.h"

namespace saccade::cpu {
namespace {

/// The order in which blocks add to the gradients of a mask that is broadcast over heads, rows or keys. Blocks
/// that add to the same place do so by block of keys, then head, then block of rows.
class MaskOrder {
 public:
  MaskOrder(const BackwardParams& b, std::int64_t query_blocks, std::int64_t key_blocks)
      : p_(b.attention),
        group_(p_.num_heads / p_.num_kv_heads),
        query_blocks_(query_blocks),
        key_blocks_(key_blocks),
        heads_share_((p_.batch > 1 && b.dmask.batch_stride == 0) ||
                     (p_.num_heads > 1 && b.dmask.head_stride == 0)),
        rows_share_(query_blocks > 1 && b.dmask.row_stride == 0),
        keys_share_(key_blocks > 1 && b.dmask.column_stride == 0),
        is_wanted_(b.dmask_data != nullptr) {}

  /// If not, each block of keys adds to different places.
  bool is_needed() const { return is_wanted_ && (heads_share_ || keys_share_); }

  std::int64_t places() const {
    if (!is_needed()) return 0;
    return (heads_share_ ? 1 : p_.batch * p_.num_heads) * (keys_share_ ? 1 : key_blocks_) *
           (rows_share_ ? 1 : query_blocks_);
  }
  std::int64_t place(const KeyBlock& keys, std::int64_t head, std::int64_t block) const {
    const std::int64_t row = heads_share_ ? 0 : keys.batch * p_.num_heads + head;
    return (row * (keys_share_ ? 1 : key_blocks_) + (keys_share_ ? 0 : keys.block)) *
               (rows_share_ ? 1 : query_blocks_) +
           (rows_share_ ? 0 : block);
  }
  std::int64_t turn(const KeyBlock& keys, std::int64_t head, std::int64_t block) const {
    std::int64_t turn = heads_share_ ? keys.batch * p_.num_kv_heads + keys.kv_head : 0;
    if (keys_share_) turn = turn * key_blocks_ + keys.block;
    if (heads_share_) turn = turn * group_ + head % group_;
    return rows_share_ ? turn * query_blocks_ + block : turn;
  }

 private:
  const AttentionParams& p_;
  std::int64_t group_, query_blocks_, key_blocks_;
  bool heads_share_, rows_share_, keys_share_, is_wanted_;
};

/// Blocks of keys of kv heads. Threads take heads, or the blocks of a head, in ascending order, so the blocks that
/// a block waits for are always in progress, parked or done.
class BackwardSchedule {
 public:
  BackwardSchedule(const BackwardKernels& kernels, const BackwardParams& params)
      : kernels_(kernels),
        b_(params),
        threads_(attention_threads(params.attention)),
        plan_(kernels.plan(params)),
        group_(p_.num_heads / p_.num_kv_heads),
        most_query_blocks_(ceil_div(p_.seqlen_q, plan_.block_q)),
        most_key_blocks_(ceil_div(p_.seqlen_k, plan_.block_k)),
        mask_order_(params, most_query_blocks_, most_key_blocks_),
        dq_turns_(params.wants_rows() ? p_.batch * p_.num_heads * most_query_blocks_ : 0),
        mask_turns_(mask_order_.places()),
        statistics_(static_cast<std::size_t>(p_.batch * p_.num_heads * most_query_blocks_) * plan_.statistics),
        is_finite_(static_cast<std::size_t>(p_.batch * p_.num_kv_heads)),
        dslopes_(params.dslopes.data ? static_cast<std::size_t>(p_.batch * p_.num_heads * most_key_blocks_) : 0) {
    for (std::atomic<bool>& finite : is_finite_) finite = true;
  }

  void run() {
    find_statistics();
    const std::int64_t kv_heads = p_.batch * p_.num_kv_heads;
    const std::size_t dq_of_kv_head =
        b_.wants_rows() ? static_cast<std::size_t>(group_ * most_query_blocks_) * plan_.dq : 0;
    const std::int64_t together = std::clamp<std::int64_t>(
        static_cast<std::int64_t>(kDqBytes / std::max<std::size_t>(dq_of_kv_head, 1)), 1, kv_heads);
    const Workspace dq(static_cast<std::size_t>(together) * dq_of_kv_head);
    for (std::int64_t first = 0; first < kv_heads; first += together) {
      const std::int64_t heads = std::min(together, kv_heads - first);
      add_heads(first, heads, dq.data(), dq_of_kv_head);
    }
    parallel_for(1, kv_heads, 0, [&](std::int64_t unit, std::byte*) {
      if (!is_finite_[static_cast<std::size_t>(unit)]) compute_masked_safe(unit, dq.data());
    });
    if (b_.dslopes.data) write_dslopes();
  }

 private:
  std::int64_t key_blocks(std::int64_t batch) const { return ceil_div(p_.keys(batch), plan_.block_k); }
  std::int64_t query_blocks(std::int64_t batch) const { return ceil_div(p_.rows(batch), plan_.block_q); }
  /// The index of a block of rows, counted over all heads.
  std::int64_t number(std::int64_t batch, std::int64_t head, std::int64_t block) const {
    return (batch * p_.num_heads + head) * most_query_blocks_ + block;
  }
  QueryRows rows_of(std::int64_t batch, std::int64_t head, std::int64_t block) const {
    return {batch, head, block * plan_.block_q, plan_.block_q};
  }
  std::byte* statistics_of(std::int64_t number) const {
    return statistics_.data() + static_cast<std::size_t>(number) * plan_.statistics;
  }

  /// The key blocks that any row of a block of rows may see by its position.
  KeyRange seen(std::int64_t batch, std::int64_t block) const {
    if (block >= query_blocks(batch)) return {};
    const std::int64_t row = block * plan_.block_q;
    const KeyRange keys = Visibility(p_, batch).visible(row, std::min(plan_.block_q, p_.rows(batch) - row));
    if (keys.begin >= keys.end) return {};
    return {keys.begin / plan_.block_k, ceil_div(keys.end, plan_.block_k)};
  }

  /// Also writes the results of rows that see no key.
  void find_statistics() {
    std::vector<double> from_rows(static_cast<std::size_t>(p_.batch * p_.num_heads * most_query_blocks_));
    const auto count = static_cast<std::int64_t>(from_rows.size());
    parallel_for(threads_for(count, threads_), count, 0, [&](std::int64_t item, std::byte*) {
      const std::int64_t head = item / most_query_blocks_, block = item % most_query_blocks_;
      const std::int64_t batch = head / p_.num_heads;
      if (block >= query_blocks(batch)) return;
      const QueryRows rows = rows_of(batch, head % p_.num_heads, block);
      from_rows[static_cast<std::size_t>(item)] = kernels_.statistics(b_, rows, statistics_of(item));
      const KeyRange blocks = seen(batch, block);
      if (b_.wants_rows() && blocks.begin == blocks.end) kernels_.write(b_, rows, nullptr);
    });
    if (!b_.dsink.data) return;
    for (std::int64_t head = 0; head < p_.num_heads; ++head) {
      double sum = 0.0;
      for (std::int64_t batch = 0; batch < p_.batch; ++batch) {
        for (std::int64_t block = 0; block < most_query_blocks_; ++block)
          sum += from_rows[static_cast<std::size_t>(number(batch, head, block))];
      }
      write(b_.dsink, 0, head, sum);
    }
  }

  void add_rows(const RowsWork& work) {
    if (work.turn == 0) clear_dq(work.dq, work.rows);
    if (work.any) kernels_.rows(b_, work.keys, work.rows, false, work.scratch, work.dq);
    if (work.is_last && !kernels_.write(b_, work.rows, work.dq)) mark_not_finite(work.keys);
  }

  void mark_not_finite(const KeyBlock& keys) {
    is_finite_[static_cast<std::size_t>(keys.batch * p_.num_kv_heads + keys.kv_head)] = false;
  }

  /// Processes kv heads [first, first + heads). dq: the gradients of the rows of each, dq_of_kv_head bytes.
  void add_heads(std::int64_t first, std::int64_t heads, std::byte* dq, std::size_t dq_of_kv_head) {
    const int threads = threads_for(heads * most_key_blocks_, threads_);
    // A thread that has a head to itself never waits. Threads share the remaining heads, so that all end together.
    // They take the first block of each head, then the second, unless the mask's gradients need another order: the
    // fewer threads share a head at a time, the fewer of its blocks wait for each other.
    const bool by_heads = mask_order_.is_needed();
    const std::int64_t alone = by_heads ? 0 : heads / threads * threads, shared = heads - alone;
    const std::int64_t items = alone + shared * most_key_blocks_;
    // While something is parked, its thread must not wait for another sum's turn, nor be left by an exception.
    const bool parks = shared > 0 && !by_heads && !p_.score_modifier && b_.wants_rows();
    std::atomic<std::int64_t> next = 0;
    run_on_threads(threads, [&](int) {
      const std::int64_t places = parks ? RowsOfThread::places(plan_.parked) : 0;
      const Workspace memory(plan_.scratch + static_cast<std::size_t>(places) * plan_.parked);
      RowsOfThread rows(
          dq_turns_, memory.data() + plan_.scratch, places, plan_.parked,
          [this](const RowsWork& work) { add_rows(work); },
          [this](const RowsWork& work, std::byte* to) {
            return kernels_.park(b_, work.keys, work.rows, work.scratch, to);
          });
      const auto add = [&](std::int64_t at, std::int64_t block) {
        const std::int64_t unit = first + at;
        add_block({unit / p_.num_kv_heads, unit % p_.num_kv_heads, block}, memory.data(),
                  dq + static_cast<std::size_t>(at) * dq_of_kv_head, rows);
      };
      for (std::int64_t item; (item = next.fetch_add(1, std::memory_order_relaxed)) < items; poll_progress()) {
        const std::int64_t index = item - alone;
        if (index < 0)
          for (std::int64_t block = 0; block < most_key_blocks_; ++block) add(item, block);
        else if (by_heads)
          add(index / most_key_blocks_, index % most_key_blocks_);
        else
          add(alone + index % shared, index / shared);
      }
      rows.finish();
    });
  }

  /// Processes one block of keys of a kv head; dq: the gradients of its rows.
  void add_block(const KeyBlock& keys, std::byte* scratch, std::byte* dq, RowsOfThread& of_thread) {
    const bool exists = keys.block < key_blocks(keys.batch);
    if (!exists && !mask_order_.is_needed()) return;
    std::exception_ptr error;  // from a score modifier: other blocks still wait for this block
    const auto attempt = [&error](const auto& f) {
      if (error) return;
      try {
        f();
      } catch (...) {
        error = std::current_exception();
      }
    };
    if (exists) kernels_.begin(b_, keys, scratch);
    for (std::int64_t i = 0; i < group_; ++i) {
      const std::int64_t head = keys.kv_head * group_ + i;
      double dslope = 0.0;
      for (std::int64_t block = 0; block < most_query_blocks_; ++block) {
        poll_progress();
        const KeyRange blocks = seen(keys.batch, block);
        const bool meet = exists && blocks.begin <= keys.block && keys.block < blocks.end;
        if (!meet && !mask_order_.is_needed()) continue;
        const QueryRows rows = rows_of(keys.batch, head, block);
        const std::int64_t index = number(keys.batch, head, block);
        bool any = false;
        if (meet) attempt([&] { any = kernels_.logits(b_, keys, rows, statistics_of(index), scratch, dslope); });
        if (b_.dmask_data) add_to_mask(keys, rows, block, any, scratch);
        if (!meet) continue;
        if (any) attempt([&] { kernels_.keys(b_, keys, rows, false, scratch); });
        if (!b_.wants_rows()) continue;
        std::byte* const own = dq + static_cast<std::size_t>(i * most_query_blocks_ + block) * plan_.dq;
        of_thread.add({.keys = keys,
                       .rows = rows,
                       .index = index,
                       .turn = keys.block - blocks.begin,
                       .is_last = keys.block + 1 == blocks.end,
                       .any = any && !error,
                       .scratch = scratch,
                       .dq = own});
      }
      if (!dslopes_.empty())
        dslopes_[static_cast<std::size_t>((keys.batch * p_.num_heads + head) * most_key_blocks_ + keys.block)] =
            dslope;
    }
    if (exists && !kernels_.end(b_, keys, scratch)) mark_not_finite(keys);
    if (error) std::rethrow_exception(error);
  }

  /// Sets the gradients of a block of rows to 0, those of its tiles that have rows.
  void clear_dq(std::byte* dq, const QueryRows& rows) const {
    const std::int64_t count = std::min(plan_.block_q, p_.rows(rows.batch) - rows.row);
    const std::size_t of_a_tile = plan_.dq / static_cast<std::size_t>(plan_.block_q / plan_.tile_q);
    std::memset(dq, 0, static_cast<std::size_t>(ceil_div(count, plan_.tile_q)) * of_a_tile);
  }

  void add_to_mask(const KeyBlock& keys, const QueryRows& rows, std::int64_t block, bool any, std::byte* scratch) {
    const std::int64_t place = mask_order_.place(keys, rows.head, block);
    if (mask_order_.is_needed()) mask_turns_.wait(place, mask_order_.turn(keys, rows.head, block));
    if (any) kernels_.mask(b_, keys, rows, scratch);
    if (mask_order_.is_needed()) mask_turns_.pass(place);
  }

  /// Recomputes a kv head after a non-finite result: a weight of 0 may have been multiplied by a hidden NaN.
  void compute_masked_safe(std::int64_t unit, std::byte* dq) {
    const Workspace scratch(plan_.scratch);
    const std::int64_t batch = unit / p_.num_kv_heads, kv_head = unit % p_.num_kv_heads;
    const auto own = [&](std::int64_t i, std::int64_t block) {
      return dq + static_cast<std::size_t>(i * most_query_blocks_ + block) * plan_.dq;
    };
    for (std::int64_t i = 0; b_.wants_rows() && i < group_; ++i)
      for (std::int64_t block = 0; block < query_blocks(batch); ++block, poll_progress())
        clear_dq(own(i, block), rows_of(batch, kv_head * group_ + i, block));
    for (std::int64_t key_block = 0; key_block < key_blocks(batch); ++key_block) {
      const KeyBlock keys{batch, kv_head, key_block};
      kernels_.begin(b_, keys, scratch.data());
      for (std::int64_t i = 0; i < group_; ++i) {
        for (std::int64_t block = 0; block < query_blocks(batch); ++block) {
          const KeyRange blocks = seen(batch, block);
          if (key_block < blocks.begin || key_block >= blocks.end) continue;
          const QueryRows rows = rows_of(batch, kv_head * group_ + i, block);
          double dslope = 0.0;
          if (!kernels_.logits(b_, keys, rows, statistics_of(number(batch, rows.head, block)), scratch.data(),
                               dslope))
            continue;
          kernels_.keys(b_, keys, rows, true, scratch.data());
          if (b_.wants_rows()) kernels_.rows(b_, keys, rows, true, scratch.data(), own(i, block));
        }
      }
      kernels_.end(b_, keys, scratch.data());
    }
    for (std::int64_t i = 0; b_.wants_rows() && i < group_; ++i) {
      for (std::int64_t block = 0; block < query_blocks(batch); ++block)
        kernels_.write(b_, rows_of(batch, kv_head * group_ + i, block), own(i, block));
    }
  }

  static void write(const StridedHeads<void>& to, std::int64_t batch, std::int64_t head, double number) {
    with_f32_or_f64(to.dtype, [&](auto type) {
      *to.row<decltype(type)>(batch, head, 0) = static_cast<decltype(type)>(number);
    });
  }

  void write_dslopes() const {
    for (std::int64_t head = 0; head < p_.num_heads; ++head) {
      double sum = 0.0;
      for (std::int64_t batch = 0; batch < p_.batch; ++batch) {
        if (b_.dslopes_of_entries) sum = 0.0;
        for (std::int64_t block = 0; block < most_key_blocks_; ++block)
          sum += dslopes_[static_cast<std::size_t>((batch * p_.num_heads + head) * most_key_blocks_ + block)];
        if (b_.dslopes_of_entries) write(b_.dslopes, batch, head, sum);
      }
      if (!b_.dslopes_of_entries) write(b_.dslopes, 0, head, sum);
    }
  }

  const BackwardKernels& kernels_;
  const BackwardParams& b_;
  const AttentionParams& p_ = b_.attention;
  int threads_;
  BackwardPlan plan_;
  std::int64_t group_, most_query_blocks_, most_key_blocks_;
  MaskOrder mask_order_;
  TicketSequencer dq_turns_;  // for each block of rows: the order of its blocks of keys
  TicketSequencer mask_turns_;
  Workspace statistics_;
  std::vector<std::atomic<bool>> is_finite_;  // of each kv head
  std::vector<double> dslopes_;               // of each head and block of keys
};

}  // namespace

void run_backward(const BackwardKernels& kernels, const BackwardParams& p) { BackwardSchedule(kernels, p).run(); }

}  // namespace saccade::cpu
