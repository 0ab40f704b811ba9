#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "core/ceil_div.h"
#include "core/parallel.h"
#include "cpu/policy/threads.h"
#include "cpu/schedule/forward_state.h"
#include "cpu/schedule/grouped_rows.h"
#include "cpu/schedule/schedules.h"

namespace saccade::cpu {
namespace {

/// The work on one kv head of one batch entry: query blocks of a group of heads, over shared key blocks.
struct ForwardUnit {
  std::int64_t batch = 0, kv_head = 0;
  KeyRange readable;
  std::int64_t first_block = 0, key_blocks = 0;
  std::int64_t query_blocks = 0;  // of each head
  double pairs = 0.0;             // pairs_of() the unit, if units differ
  std::size_t packed_bytes = 0;
};

/// Divides the work of one call among threads.
class ForwardSchedule {
 public:
  /// `states`: nullptr in a call with all keys.
  ForwardSchedule(const ForwardKernels& kernels, const AttentionParams& params, const HeadStates* states)
      : kernels_(kernels),
        p_(params),
        states_(states),
        threads_(attention_threads(params)),
        plan_(kernels.plan(params)),
        group_(p_.num_heads / p_.num_kv_heads),
        is_unequal_(p_.kv_lengths || p_.kv_starts || p_.cu_seqlens_q) {
    for (std::int64_t b = 0; b < p_.batch; ++b) {
      for (std::int64_t h = 0; h < p_.num_kv_heads; ++h) add(b, h);
    }
    // The longest first, so that threads end with short ones.
    if (is_unequal_) std::ranges::stable_sort(sharing_, std::ranges::greater(), &ForwardUnit::pairs);
  }

  void run() const {
    run_alone();
    if (sharing_.empty()) return;
    // Threads take whole heads while every thread gets one, and share the remaining heads, so that no thread waits
    // for another's last head. If sequence lengths differ, whole heads need many rounds to even out, and the
    // longest must not take longer than all others.
    const auto units = static_cast<std::int64_t>(sharing_.size());
    const int threads = threads_for(units * group_ * most_blocks(sharing_.front()), threads_);
    const std::int64_t rounds = units / threads;
    const bool even_out = !is_unequal_ || (rounds >= 8 && sharing_.front().pairs * threads <= pairs_of(sharing_));
    const std::int64_t whole = even_out ? rounds * threads : 0;
    if (whole > 0) run_heads(threads, whole);
    if (whole < units) run_shared(whole);
  }

 private:
  void add(std::int64_t batch, std::int64_t kv_head) {
    ForwardUnit unit{batch, kv_head, readable_keys(p_, batch)};
    unit.query_blocks = ceil_div(p_.rows(batch), plan_.block_q);
    if (unit.query_blocks == 0 || (states_ && unit.readable.begin >= unit.readable.end)) return;
    if (unit.readable.begin < unit.readable.end) {
      unit.first_block = unit.readable.begin / plan_.block_k;
      unit.key_blocks = ceil_div(unit.readable.end, plan_.block_k) - unit.first_block;
    }
    if (is_unequal_) unit.pairs = pairs_of(unit);
    unit.packed_bytes = plan_.packed_block * static_cast<std::size_t>(unit.key_blocks);
    const bool shares = group_ * most_blocks(unit) > 1 && unit.key_blocks > 0;
    const std::size_t most = plan_.most_packed > 0 ? plan_.most_packed : kPackedBytes;
    (shares && unit.packed_bytes <= most ? sharing_ : alone_).push_back(unit);
  }

  void pack(const ForwardUnit& unit, std::int64_t block, std::byte* packed) const {
    kernels_.pack_block(p_, unit.batch, unit.kv_head, unit.first_block + block, unit.readable,
                        packed + static_cast<std::size_t>(block) * plan_.packed_block);
  }

  /// The first of the unit's key blocks that attend(unit, block, rows, ...) needs. Later blocks of a head need no
  /// lower ones.
  std::int64_t first_key_block(const ForwardUnit& unit, std::int64_t block, std::int64_t rows) const {
    if (p_.saves_hidden()) return 0;
    const std::int64_t row = first_row(unit, block, rows), count = std::min(rows, p_.rows(unit.batch) - row);
    const std::int64_t key = Visibility(p_, unit.batch).visible(row, count).begin;
    return std::clamp<std::int64_t>(key / plan_.block_k - unit.first_block, 0, unit.key_blocks);
  }

  std::int64_t first_row(const ForwardUnit& unit, std::int64_t block, std::int64_t rows) const {
    const std::int64_t blocks = ceil_div(p_.rows(unit.batch), rows);
    return (blocks - 1 - block % blocks) * rows;
  }

  /// The keys that the rows of a block may see.
  double keys_of(const ForwardUnit& unit, std::int64_t block, std::int64_t rows) const {
    const std::int64_t row = first_row(unit, block, rows), count = std::min(rows, p_.rows(unit.batch) - row);
    const KeyRange keys = Visibility(p_, unit.batch).visible(row, count);
    return static_cast<double>(std::max<std::int64_t>(keys.end - keys.begin, 0));
  }
  double pairs_of(const ForwardUnit& unit, std::int64_t block, std::int64_t rows) const {
    const std::int64_t left = p_.rows(unit.batch) - first_row(unit, block, rows);
    return static_cast<double>(std::min(rows, left)) * keys_of(unit, block, rows);
  }
  /// Those in all blocks of the heads of the group.
  double pairs_of(const ForwardUnit& unit) const {
    double pairs = 0.0;
    for (std::int64_t block = 0; block < unit.query_blocks; ++block) pairs += pairs_of(unit, block, plan_.block_q);
    return pairs * static_cast<double>(group_);
  }
  double pairs_of(std::span<const ForwardUnit> units) const {
    if (!is_unequal_) return static_cast<double>(units.size()) * pairs_of(units.front());
    return std::accumulate(units.begin(), units.end(), 0.0,
                           [](double pairs, const ForwardUnit& unit) { return pairs + unit.pairs; });
  }

  /// `block` counts blocks of `rows` rows over the heads of the group. The last blocks of a head come first: with
  /// a causal mask they are the longest.
  void attend(const ForwardUnit& unit, std::int64_t block, std::int64_t rows, const std::byte* packed,
              std::byte* scratch) const {
    const std::int64_t blocks = ceil_div(p_.rows(unit.batch), rows);
    const std::int64_t head = unit.kv_head * group_ + block / blocks;
    const QueryRows work{unit.batch, head, first_row(unit, block, rows), rows};
    const PackedKeys keys{packed, unit.first_block};
    if (states_) return kernels_.resume(p_, work, keys, states_->of(unit.batch, head), scratch);
    kernels_.attend(p_, work, keys, scratch);
  }

  /// Units whose keys are not packed in advance, because no blocks would share them or because they are too many.
  /// Their blocks of rows are larger, to reuse more of what they pack, as long as there is a block for every
  /// thread.
  void run_alone() const {
    if (alone_.empty()) return;
    std::int64_t rows = 0;
    for (const ForwardUnit& unit : alone_) rows += group_ * p_.rows(unit.batch);
    const std::int64_t of_a_thread = rows / (4 * threads_for(rows, threads_));
    const std::int64_t block_q =
        std::clamp(of_a_thread / plan_.block_q * plan_.block_q, plan_.block_q, plan_.block_q_alone);
    std::vector<std::int64_t> ends;  // of each unit's items
    for (const ForwardUnit& unit : alone_)
      ends.push_back((ends.empty() ? 0 : ends.back()) + group_ * ceil_div(p_.rows(unit.batch), block_q));
    const std::size_t scratch_bytes = block_q > plan_.block_q ? plan_.scratch_alone : plan_.scratch;
    parallel_for(threads_for(ends.back(), threads_), ends.back(), scratch_bytes,
                 [&](std::int64_t item, std::byte* scratch) {
                   const auto at = static_cast<std::size_t>(std::ranges::upper_bound(ends, item) - ends.begin());
                   attend(alone_[at], item - (at > 0 ? ends[at - 1] : 0), block_q, nullptr, scratch);
                 });
  }

  /// The first `count` sharing units, one thread for each, so that its keys stay in that core's cache. They are
  /// packed right before the first rows that see them: packed all at once, those of a long head had left the
  /// cache, which cost 2% of a window of 256 keys (Zen 5).
  void run_heads(int threads, std::int64_t count) const {
    std::size_t packed_bytes = 0;
    for (const ForwardUnit& unit : sharing_) packed_bytes = std::max(packed_bytes, unit.packed_bytes);
    parallel_for(threads, count, packed_bytes + plan_.scratch, [&](std::int64_t index, std::byte* scratch) {
      const ForwardUnit& unit = sharing_[static_cast<std::size_t>(index)];
      std::int64_t unpacked = unit.key_blocks;
      for (std::int64_t block = 0; block < group_ * unit.query_blocks; ++block) {
        for (const std::int64_t first = first_key_block(unit, block, plan_.block_q); unpacked > first;)
          pack(unit, --unpacked, scratch);
        attend(unit, block, plan_.block_q, scratch, scratch + packed_bytes);
      }
    });
  }

  /// The sharing units from `begin` on: all threads pack as many as fit in memory, and then share their query
  /// blocks.
  void run_shared(std::int64_t begin) const {
    for (auto first = static_cast<std::size_t>(begin), last = first; first < sharing_.size(); first = last) {
      std::vector<Piece> keys, queries;
      std::size_t bytes = 0;
      for (; last < sharing_.size() && bytes + sharing_[last].packed_bytes <= kPackedBytes; ++last)
        bytes += sharing_[last].packed_bytes;
      const Workspace packed(bytes);
      const std::int64_t block_q = balanced_rows(std::span(sharing_).subspan(first, last - first));
      bytes = 0;
      for (std::size_t i = first; i < last; ++i) {
        const ForwardUnit& unit = sharing_[i];
        for (std::int64_t block = 0; block < unit.key_blocks; ++block) keys.push_back({&unit, block, bytes});
        for (std::int64_t block = 0; block < group_ * ceil_div(p_.rows(unit.batch), block_q); ++block)
          queries.push_back({&unit, block, bytes});
        bytes += unit.packed_bytes;
      }
      order(queries, block_q);
      const auto count = static_cast<std::int64_t>(queries.size());
      const int threads = threads_for(count, threads_);
      parallel_for(threads, static_cast<std::int64_t>(keys.size()), 0, [&](std::int64_t item, std::byte*) {
        const Piece& piece = keys[static_cast<std::size_t>(item)];
        pack(*piece.unit, piece.block, packed.data() + piece.packed);
      });
      parallel_for(threads, count, plan_.scratch, [&](std::int64_t item, std::byte* scratch) {
        const Piece& piece = queries[static_cast<std::size_t>(item)];
        attend(*piece.unit, piece.block, block_q, packed.data() + piece.packed, scratch);
      });
    }
  }

  /// The maximum number of blocks of query rows of one head, at the smallest size of balanced_rows().
  std::int64_t most_blocks(const ForwardUnit& unit) const {
    return ceil_div(p_.rows(unit.batch), plan_.block_q / 2);
  }

  /// The query rows of a block, from block_q down to half of it, with which the threads end at about the same
  /// time.
  std::int64_t balanced_rows(std::span<const ForwardUnit> units) const {
    const ForwardUnit& unit = units.front();
    const auto heads = static_cast<std::int64_t>(units.size()) * group_;
    const double of_a_thread = pairs_of(units) / threads_;
    double least = std::numeric_limits<double>::max();
    std::int64_t best = plan_.block_q;
    for (std::int64_t rows = plan_.block_q; rows >= plan_.block_q / 2; rows -= plan_.tile_q) {
      double keys = keys_of(unit, 0, rows);
      // Where heads are equal, some thread gets a piece of the last round, and others as long before it.
      const std::int64_t rounds = ceil_div(heads * ceil_div(p_.rows(unit.batch), rows), threads_);
      if (!is_unequal_)
        keys = std::max(keys, static_cast<double>(rounds) * keys_of(unit, (rounds - 1) * threads_ / heads, rows));
      const double end = std::max(of_a_thread, static_cast<double>(rows) * keys);
      if (end < least) best = rows, least = end;
    }
    return best;
  }

  struct Piece {
    const ForwardUnit* unit;
    std::int64_t block;
    std::size_t packed;  // offset of the unit's packed blocks
    double pairs = 0.0;  // pairs_of() the piece, where order() needs it
  };

  /// If every thread gets only some pieces, those with most work come first. Otherwise those of a head stay
  /// together, for its keys to stay in a cache.
  void order(std::vector<Piece>& queries, std::int64_t rows) const {
    constexpr std::int64_t kFew = 16;
    const bool differ = is_unequal_ || p_.hides_by_position();
    if (threads_ == 1 || !differ || static_cast<std::int64_t>(queries.size()) > kFew * threads_) return;
    for (Piece& piece : queries) piece.pairs = pairs_of(*piece.unit, piece.block, rows);
    std::ranges::stable_sort(queries, std::ranges::greater(), &Piece::pairs);
  }

  const ForwardKernels& kernels_;
  const AttentionParams& p_;
  const HeadStates* states_;
  int threads_;  // the limit of this call
  ForwardPlan plan_;
  std::int64_t group_;
  bool is_unequal_;  // the lengths of sequences
  std::vector<ForwardUnit> alone_, sharing_;
};

}  // namespace

void run_forward(const ForwardKernels& kernels, const AttentionParams& p) {
  if (!GroupedRows::suit(p)) return ForwardSchedule(kernels, p, nullptr).run();
  const GroupedRows grouped(p);
  ForwardSchedule(kernels, grouped.params(), nullptr).run();
  grouped.write();
}
void run_resume(const ForwardKernels& kernels, const AttentionParams& p, const HeadStates& states) {
  ForwardSchedule(kernels, p, &states).run();
}

}  // namespace saccade::cpu
