#include "saccade/attention.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "attention/arguments.h"
#include "core/check.h"
#include "core/parallel.h"
#include "cpu/kernels.h"

namespace saccade {
namespace {

/// Packed blocks may take this many bytes at a time (half of the last-level cache of the machines measured). A
/// head with more of them packs block by block, again for every kBlockQAlone query rows.
constexpr std::size_t kPackedBytes = std::size_t{16} << 20;

std::int64_t blocks_of(std::int64_t n, std::int64_t size) { return (n + size - 1) / size; }

/// The work on one kv head of one batch entry: query blocks of a group of heads, over key blocks that they share.
struct Unit {
  std::int64_t batch = 0, kv_head = 0;
  KeyRange readable;
  std::int64_t first_block = 0, key_blocks = 0;
  std::int64_t query_blocks = 0;  // of each head
  std::size_t packed_bytes = 0;
};

/// One call's work as the threads see it.
class Schedule {
 public:
  Schedule(const cpu::AttentionKernels& kernels, const AttentionParams& params)
      : kernels_(kernels),
        p_(params),
        plan_(kernels.plan_forward(params)),
        group_(p_.num_heads / p_.num_kv_heads) {
    for (std::int64_t b = 0; b < p_.batch; ++b) {
      for (std::int64_t h = 0; h < p_.num_kv_heads; ++h) add(b, h);
    }
  }

  void run(int requested) const {
    run_alone(requested);
    if (sharing_.empty()) return;
    // Whole heads as long as there is one for every thread; the rest is shared, so that no thread waits for
    // another's last head. Where lengths make heads unequal that takes many heads to even out.
    const auto units = static_cast<std::int64_t>(sharing_.size());
    const int threads = threads_for(requested, units * group_ * most_blocks(sharing_.front()));
    const bool unequal = p_.kv_lengths || p_.cu_seqlens_q;
    const std::int64_t rounds = units / threads;
    const std::int64_t whole = rounds >= (unequal ? 8 : 1) ? rounds * threads : 0;
    if (whole > 0) run_heads(threads, whole);
    if (whole < units) run_shared(requested, whole);
  }

 private:
  void add(std::int64_t batch, std::int64_t kv_head) {
    Unit unit{batch, kv_head, readable_keys(p_, batch)};
    unit.query_blocks = blocks_of(p_.rows(batch), plan_.block_q);
    if (unit.query_blocks == 0) return;
    if (unit.readable.begin < unit.readable.end) {
      unit.first_block = unit.readable.begin / plan_.block_k;
      unit.key_blocks = blocks_of(unit.readable.end, plan_.block_k) - unit.first_block;
    }
    unit.packed_bytes = plan_.packed_block * static_cast<std::size_t>(unit.key_blocks);
    const bool shares = group_ * most_blocks(unit) > 1 && unit.key_blocks > 0;
    (shares && unit.packed_bytes <= kPackedBytes ? sharing_ : alone_).push_back(unit);
  }

  void pack(const Unit& unit, std::int64_t block, std::byte* packed) const {
    kernels_.pack_block(p_, unit.batch, unit.kv_head, unit.first_block + block, unit.readable,
                        packed + static_cast<std::size_t>(block) * plan_.packed_block);
  }

  /// `block` counts blocks of `rows` rows over the heads of the group. The last ones of a head come first: under a
  /// causal mask they are the longest.
  void attend(const Unit& unit, std::int64_t block, std::int64_t rows, const std::byte* packed,
              std::byte* scratch) const {
    const std::int64_t blocks = blocks_of(p_.rows(unit.batch), rows);
    const std::int64_t row = (blocks - 1 - block % blocks) * rows;
    const std::int64_t head = unit.kv_head * group_ + block / blocks;
    kernels_.forward(p_, {unit.batch, head, row, rows}, {packed, unit.first_block}, scratch);
  }

  /// Units whose keys are not packed ahead: nothing would share them, or they are too many. Rows are then taken in
  /// larger blocks, which share what is packed on the way, as far as there is a block for every thread.
  void run_alone(int requested) const {
    if (alone_.empty()) return;
    std::int64_t rows = 0;
    for (const Unit& unit : alone_) rows += group_ * p_.rows(unit.batch);
    const std::int64_t of_a_thread = rows / (4 * threads_for(requested, rows));
    const std::int64_t block_q =
        std::clamp(of_a_thread / plan_.block_q * plan_.block_q, plan_.block_q, plan_.block_q_alone);
    std::vector<std::int64_t> ends;  // of each unit's items
    for (const Unit& unit : alone_)
      ends.push_back((ends.empty() ? 0 : ends.back()) + group_ * blocks_of(p_.rows(unit.batch), block_q));
    const std::size_t scratch_bytes = block_q > plan_.block_q ? plan_.scratch_alone : plan_.scratch;
    parallel_for(threads_for(requested, ends.back()), ends.back(), scratch_bytes,
                 [&](std::int64_t item, std::byte* scratch) {
                   const auto at = static_cast<std::size_t>(std::ranges::upper_bound(ends, item) - ends.begin());
                   attend(alone_[at], item - (at > 0 ? ends[at - 1] : 0), block_q, nullptr, scratch);
                 });
  }

  /// The first `count` sharing units, each whole by one thread: its keys stay in that core's cache.
  void run_heads(int threads, std::int64_t count) const {
    std::size_t packed_bytes = 0;
    for (const Unit& unit : sharing_) packed_bytes = std::max(packed_bytes, unit.packed_bytes);
    parallel_for(threads, count, packed_bytes + plan_.scratch, [&](std::int64_t index, std::byte* scratch) {
      const Unit& unit = sharing_[static_cast<std::size_t>(index)];
      for (std::int64_t block = 0; block < unit.key_blocks; ++block) pack(unit, block, scratch);
      for (std::int64_t block = 0; block < group_ * unit.query_blocks; ++block)
        attend(unit, block, plan_.block_q, scratch, scratch + packed_bytes);
    });
  }

  /// The sharing units from `begin` on: as many as fit are packed by all threads, which then share their query
  /// blocks.
  void run_shared(int requested, std::int64_t begin) const {
    for (auto first = static_cast<std::size_t>(begin), last = first; first < sharing_.size(); first = last) {
      std::vector<Piece> keys, queries;
      std::size_t bytes = 0;
      for (; last < sharing_.size() && bytes + sharing_[last].packed_bytes <= kPackedBytes; ++last)
        bytes += sharing_[last].packed_bytes;
      const Workspace packed(bytes);
      const std::int64_t block_q =
          balanced_rows(sharing_[first], last - first, threads_for(requested, std::numeric_limits<int>::max()));
      bytes = 0;
      for (std::size_t i = first; i < last; ++i) {
        const Unit& unit = sharing_[i];
        for (std::int64_t block = 0; block < unit.key_blocks; ++block) keys.push_back({&unit, block, bytes});
        for (std::int64_t block = 0; block < group_ * blocks_of(p_.rows(unit.batch), block_q); ++block)
          queries.push_back({&unit, block, bytes});
        bytes += unit.packed_bytes;
      }
      const auto count = static_cast<std::int64_t>(queries.size());
      const int threads = threads_for(requested, count);
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

  /// Blocks of query rows of one head when they are as small as balanced_rows() makes them.
  std::int64_t most_blocks(const Unit& unit) const { return blocks_of(p_.rows(unit.batch), plan_.block_q / 2); }

  /// Query rows of a block, block_q or down to half of it, with which `threads` end at about the same time.
  std::int64_t balanced_rows(const Unit& unit, std::size_t units, int threads) const {
    std::int64_t best = plan_.block_q, least = std::numeric_limits<std::int64_t>::max();
    for (std::int64_t rows = plan_.block_q; rows >= plan_.block_q / 2; rows -= plan_.tile_q) {
      const auto blocks = static_cast<std::int64_t>(units) * group_ * blocks_of(p_.rows(unit.batch), rows);
      const std::int64_t of_a_thread = blocks_of(blocks, threads) * rows;
      if (of_a_thread < least) best = rows, least = of_a_thread;
    }
    return best;
  }

  struct Piece {
    const Unit* unit;
    std::int64_t block;
    std::size_t packed;  // offset of the unit's packed blocks
  };

  const cpu::AttentionKernels& kernels_;
  const AttentionParams& p_;
  cpu::ForwardPlan plan_;
  std::int64_t group_;
  std::vector<Unit> alone_, sharing_;
};

/// Below some 20 microseconds of work a second thread costs more than it does.
bool is_worth_threads(const AttentionParams& p) {
  double pairs = 0.0;
  for (std::int64_t b = 0; b < p.batch; ++b)
    pairs += static_cast<double>(p.rows(b)) * static_cast<double>(p.keys(b));
  return pairs * static_cast<double>(p.num_heads) * static_cast<double>(p.head_dim + p.head_dim_v) > 1 << 20;
}

/// Returns whether o is finite.
bool run_small(const cpu::KernelSet& kernels, const AttentionOperands& p, int requested) {
  constexpr std::int64_t kRows = 16;  // of a piece of work, and multiples of what kernels take at a time
  const std::int64_t heads = p.batch * p.num_heads, pieces = blocks_of(p.seqlen_q, kRows);
  // Some 15 microseconds for a thread, what waking it costs.
  const std::int64_t pieces_of_a_thread = std::max<std::int64_t>(1, 2048 / (p.head_dim + p.head_dim_v));
  if (heads * pieces <= pieces_of_a_thread) {
    bool finite = true;
    for (std::int64_t b = 0; b < p.batch; ++b) {
      for (std::int64_t h = 0; h < p.num_heads; ++h) finite &= kernels.forward_small(p, {b, h, 0, p.seqlen_q});
    }
    return finite;
  }
  const std::int64_t items = blocks_of(heads * pieces, pieces_of_a_thread);
  std::atomic<bool> finite = true;
  parallel_for(threads_for(requested, items), items, 0, [&](std::int64_t item, std::byte*) {
    const std::int64_t end = std::min(heads * pieces, (item + 1) * pieces_of_a_thread);
    for (std::int64_t i = item * pieces_of_a_thread; i < end; ++i) {
      const std::int64_t head = i / pieces;
      if (!kernels.forward_small(p, {head / p.num_heads, head % p.num_heads, i % pieces * kRows, kRows}))
        finite = false;
    }
  });
  return finite;
}

}  // namespace

void attention(const TensorView& q, const TensorView& k, const TensorView& v, const MutableTensorView& o,
               const AttentionOptions& options) {
  const AttentionOperands operands = check_operands(q, k, v, o, options, "attention");
  const cpu::KernelSet& kernels = cpu::active_kernels();
  // What has little to compute should not wait for options to be looked at one by one.
  if (has_operands_only(options) && kernels.is_small(operands) &&
      run_small(kernels, operands, options.num_threads))
    return;
  const AttentionArguments arguments(operands, q, k, options, "attention");
  const AttentionParams& p = arguments.params;
  if (p.batch == 0 || p.num_heads == 0 || p.seqlen_q == 0) return;
  Schedule(kernels.attention(p), p).run(is_worth_threads(p) ? options.num_threads : 1);
}

Tensor attention(const TensorView& q, const TensorView& k, const TensorView& v, const AttentionOptions& options) {
  Tensor o = output_like("attention", q, v);
  attention(q, k, v, o, options);
  return o;
}

Tensor alibi_slopes(std::int64_t num_heads) {
  if (num_heads < 0) refuse("alibi_slopes", "num_heads must be 0 or more, got ", num_heads);
  Tensor slopes(DType::f32, {num_heads});
  const auto even = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(num_heads)));
  for (std::int64_t i = 0; i < num_heads; ++i) {
    const double exponent = i < even ? static_cast<double>(i + 1) / static_cast<double>(even)
                                     : static_cast<double>(2 * (i - even) + 1) / static_cast<double>(2 * even);
    slopes.at<float>(i) = static_cast<float>(std::exp2(-8.0 * exponent));
  }
  return slopes;
}

}  // namespace saccade
