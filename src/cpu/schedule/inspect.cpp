#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "core/ceil_div.h"
#include "core/parallel.h"
#include "core/threads/platform.h"
#include "cpu/policy/threads.h"
#include "cpu/schedule/schedules.h"
#include "cpu/schedule/turns.h"

namespace saccade::cpu {
namespace {

/// The sums over the rows of each head. Its blocks of rows wait to add to them in a fixed order. The last block
/// writes the results.
class Totals {
 public:
  /// For threads that take blocks head by head in ascending order: at most `threads` + 1 heads are in progress at
  /// a time.
  Totals(const InspectParams& wanted, int threads)
      : wanted_(wanted),
        p_(wanted.attention),
        received_(wanted.received.data ? p_.seqlen_k : 0),
        cells_(wanted.pool_rows * wanted.pool_keys),
        heads_(static_cast<std::size_t>(p_.batch * p_.num_heads)),
        turns_(std::ssize(heads_)),
        idle_(std::min(heads_.size(), static_cast<std::size_t>(threads) + 1)),
        memory_(idle_.size() * size_of_head() * sizeof(double)) {
    auto* next = reinterpret_cast<double*>(memory_.data());
    for (double*& sums : idle_) sums = std::exchange(next, next + size_of_head());
  }

  /// Adds the sums of the head's block number `turn`, after those of all lower blocks.
  void add(std::int64_t batch, std::int64_t head, std::int64_t turn, bool is_last, const InspectSums& sums) {
    const std::int64_t index = batch * p_.num_heads + head;
    Head& to = heads_[static_cast<std::size_t>(index)];
    turns_.wait(index, turn);
    if (turn == 0) to.sums = begin();
    to.distance += sums.distance;
    to.rows += sums.rows_with_weight;
    if (sums.received) add_received(sums, to.sums);
    if (sums.cells) add_cells(sums, to.sums + received_);
    if (is_last) end(batch, head, to);
    turns_.pass(index);
  }

 private:
  struct Head {
    double distance = 0.0;
    std::int64_t rows = 0;   // the rows that have a distance
    double* sums = nullptr;  // [received_], [cells_], and space for one number per column of cells
  };

  std::size_t size_of_head() const { return static_cast<std::size_t>(received_ + cells_ + wanted_.pool_keys); }

  double* begin() {
    const threads::Lock lock(mutex_);
    double* const sums = idle_.back();
    idle_.pop_back();
    std::fill_n(sums, received_ + cells_, 0.0);
    return sums;
  }

  void add_received(const InspectSums& sums, double* received) const {
    double* const out = received + sums.first_key;
    const auto add_all = [&](const auto* numbers) {
      for (std::int64_t j = 0; j < sums.end_key - sums.first_key; ++j) out[j] += static_cast<double>(numbers[j]);
    };
    with_f32_or_f64(wanted_.received.dtype,
                    [&](auto number) { add_all(static_cast<const decltype(number)*>(sums.received)); });
  }

  void add_cells(const InspectSums& sums, double* cells) const {
    double* const out = cells + sums.first_cell_row * wanted_.pool_keys;
    for (std::int64_t i = 0; i < sums.cell_rows * wanted_.pool_keys; ++i) {
      const double x = sums.cells[i];
      if (!wanted_.pool_max || x != x)
        out[i] += x;  // NaN stays
      else if (out[i] < x)
        out[i] = x;
    }
  }

  void end(std::int64_t batch, std::int64_t head, const Head& from) {
    if (received_ > 0)
      write({from.sums, static_cast<std::size_t>(p_.keys(batch))}, wanted_.received, batch, head,
            p_.first_key(batch));
    if (wanted_.mean_distance.data) {
      const double mean = from.rows == 0 ? 0.0 : from.distance / static_cast<double>(from.rows);
      write({&mean, 1}, wanted_.mean_distance, batch, head);
    }
    if (cells_ > 0) {
      double* const cells = from.sums + received_;
      if (!wanted_.pool_max) divide_cells(batch, cells, cells + cells_);
      write({cells, static_cast<std::size_t>(cells_)}, wanted_.pooled, batch, head);
    }
    const threads::Lock lock(mutex_);
    idle_.push_back(from.sums);
  }

  /// Writes to the numbers of a head, from index `first` on.
  static void write(std::span<const double> from, const StridedHeads<void>& to, std::int64_t batch,
                    std::int64_t head, std::int64_t first = 0) {
    with_f32_or_f64(to.dtype, [&](auto number) {
      std::ranges::transform(from, to.row<decltype(number)>(batch, head, 0) + first,
                             [](double x) { return static_cast<decltype(number)>(x); });
    });
  }

  /// Turns sums into means. `keys_of` has space for one number per column of cells.
  void divide_cells(std::int64_t batch, double* cell, double* keys_of) const {
    for (std::int64_t c = 0; c < wanted_.pool_keys; ++c)
      keys_of[c] = static_cast<double>(length(p_.keys(batch), wanted_.pool_keys, c));
    for (std::int64_t r = 0; r < wanted_.pool_rows; ++r, cell += wanted_.pool_keys) {
      const auto rows = static_cast<double>(length(p_.rows(batch), wanted_.pool_rows, r));
      for (std::int64_t c = 0; c < wanted_.pool_keys; ++c) cell[c] /= std::max(rows * keys_of[c], 1.0);
    }
  }

  /// The number of i in [0, seqlen) with floor(i * cells / seqlen) == c.
  static std::int64_t length(std::int64_t seqlen, std::int64_t cells, std::int64_t c) {
    return ceil_div((c + 1) * seqlen, cells) - ceil_div(c * seqlen, cells);
  }

  const InspectParams& wanted_;
  const AttentionParams& p_;
  std::int64_t received_, cells_;  // numbers of a head
  std::vector<Head> heads_;        // [batch, num_heads]
  TicketSequencer turns_;          // of each head
  threads::Mutex mutex_;
  std::vector<double*> idle_;  // sums that no head is using
  Workspace memory_;           // of all sums
};

/// Blocks of rows, head by head. Threads take them in ascending order, so the blocks that a block waits for are
/// always in progress or done.
class InspectSchedule {
 public:
  InspectSchedule(const InspectKernels& kernels, const InspectParams& wanted)
      : kernels_(kernels), wanted_(wanted) {}

  void run() {
    std::vector<Heads> together;
    std::size_t bytes = 0;
    for (std::int64_t kv_head = 0; kv_head < p_.batch * p_.num_kv_heads; ++kv_head) {
      Heads heads = heads_of(kv_head);
      if (heads.row_blocks == 0) continue;
      if (bytes + heads.packed_bytes > kPackedBytes) {
        run_together(together, bytes);
        together.clear();
        bytes = 0;
      }
      heads.packed = bytes;
      bytes += heads.packed_bytes;
      together.push_back(heads);
    }
    run_together(together, bytes);
  }

 private:
  /// The query heads of a kv head, in blocks of rows, and its keys.
  struct Heads {
    std::int64_t batch, kv_head;
    KeyRange readable;
    std::int64_t first_block = 0, key_blocks = 0;
    std::int64_t block_rows = 0, row_blocks = 0;  // of each head
    std::size_t packed_bytes = 0, packed = 0;     // 0 bytes: too many keys; each block of rows packs them
  };

  Heads heads_of(std::int64_t index) const {
    Heads heads{index / p_.num_kv_heads, index % p_.num_kv_heads, {}};
    heads.readable = readable_keys(p_, heads.batch);
    if (heads.readable.begin < heads.readable.end) {
      heads.first_block = heads.readable.begin / plan_.block_k;
      heads.key_blocks = ceil_div(heads.readable.end, plan_.block_k) - heads.first_block;
    }
    heads.packed_bytes = plan_.packed_block * static_cast<std::size_t>(heads.key_blocks);
    if (heads.packed_bytes > kPackedBytes) heads.packed_bytes = 0;
    heads.block_rows = heads.packed_bytes > 0 ? plan_.block_q : plan_.block_q_alone;
    heads.row_blocks = ceil_div(p_.rows(heads.batch), heads.block_rows);
    return heads;
  }

  void run_together(const std::vector<Heads>& together, std::size_t bytes) {
    std::vector<Piece> keys, rows;
    std::size_t scratch_bytes = 0;
    for (const Heads& heads : together) {
      scratch_bytes = std::max(scratch_bytes, kernels_.scratch(wanted_, heads.block_rows));
      for (std::int64_t block = 0; block < (heads.packed_bytes > 0 ? heads.key_blocks : 0); ++block)
        keys.push_back({&heads, 0, block});
      for (std::int64_t head = 0; head < group_; ++head) {
        for (std::int64_t block = 0; block < heads.row_blocks; ++block)
          rows.push_back({&heads, heads.kv_head * group_ + head, block});
      }
    }
    const Workspace packed(bytes);
    const auto key_pieces = static_cast<std::int64_t>(keys.size()),
               row_pieces = static_cast<std::int64_t>(rows.size());
    parallel_for(threads_for(key_pieces, threads_), key_pieces, 0, [&](std::int64_t item, std::byte*) {
      const auto& [heads, head, block] = keys[static_cast<std::size_t>(item)];
      kernels_.pack_block(p_, heads->batch, heads->kv_head, heads->first_block + block, heads->readable,
                          packed.data() + heads->packed + static_cast<std::size_t>(block) * plan_.packed_block);
    });
    parallel_for(threads_for(row_pieces, threads_), row_pieces, scratch_bytes,
                 [&](std::int64_t item, std::byte* scratch) {
                   const auto& [heads, head, block] = rows[static_cast<std::size_t>(item)];
                   const std::byte* blocks = heads->packed_bytes > 0 ? packed.data() + heads->packed : nullptr;
                   const QueryRows work{heads->batch, head, block * heads->block_rows, heads->block_rows};
                   const bool is_last = block + 1 == heads->row_blocks;
                   try {
                     totals_.add(heads->batch, head, block, is_last,
                                 kernels_.inspect(wanted_, work, {blocks, heads->first_block}, scratch));
                   } catch (...) {  // from a score modifier: other blocks still wait for this block
                     totals_.add(heads->batch, head, block, is_last, InspectSums{});
                     throw;
                   }
                 });
  }

  struct Piece {
    const Heads* heads;
    std::int64_t head, block;
  };

  const InspectKernels& kernels_;
  const InspectParams& wanted_;
  const AttentionParams& p_ = wanted_.attention;
  int threads_ = threads_for(p_.batch * p_.num_heads * p_.seqlen_q, attention_threads(p_));
  Totals totals_{wanted_, threads_};
  ForwardPlan plan_ = kernels_.plan(p_);
  std::int64_t group_ = p_.num_heads / p_.num_kv_heads;
};

}  // namespace

void run_inspect(const InspectKernels& kernels, const InspectParams& p) { InspectSchedule(kernels, p).run(); }

}  // namespace saccade::cpu
