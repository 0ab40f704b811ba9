#include "saccade/inspect.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <mutex>
#include <numeric>
#include <span>
#include <utility>

#include "attention/arguments.h"
#include "core/check.h"
#include "core/parallel.h"
#include "cpu/kernels.h"

namespace saccade {
namespace {

constexpr std::string_view kName = "inspect";

std::int64_t blocks_of(std::int64_t n, std::int64_t size) { return (n + size - 1) / size; }

// ---- Arguments and results -----------------------------------------------------------------------------------

void check_wanted(const InspectOptions& wanted, const AttentionOptions& options, std::int64_t rows,
                  std::int64_t keys) {
  if (options.weights || options.scores)
    refuse(kName, "weights and scores are not computed here: use attention()");
  if (wanted.lse && options.lse) refuse(kName, "lse was given both as an input and as an output");
  if (wanted.top_k < 0) refuse(kName, "top_k must be 0 or more, got ", wanted.top_k);
  if (wanted.index_dtype != DType::i32 && wanted.index_dtype != DType::i64)
    refuse(kName, "index_dtype must be i32 or i64, but it is ", name_of(wanted.index_dtype));
  if (wanted.index_dtype == DType::i32 && keys > std::numeric_limits<std::int32_t>::max())
    refuse(kName, "index_dtype must be i64 for ", keys, " keys");
  if (wanted.pool_rows < 0 || wanted.pool_keys < 0 || (wanted.pool_rows == 0) != (wanted.pool_keys == 0))
    refuse(kName, "pool_rows and pool_keys must both be 0 or both be above, got ", wanted.pool_rows, " and ",
           wanted.pool_keys);
  constexpr std::int64_t kLargestMap = 1 << 20;
  if (wanted.pool_rows > kLargestMap || wanted.pool_keys > kLargestMap)
    refuse(kName, "pool_rows and pool_keys must be at most ", kLargestMap, ", got ", wanted.pool_rows, " and ",
           wanted.pool_keys);
  for (const std::int64_t row : wanted.rows)
    if (row < 0 || row >= rows) refuse(kName, "rows contains ", row, " but q has ", rows, " rows");
}

/// Every tensor that is wanted, and the kernels' view of them.
class Results {
 public:
  Results(const TensorView& q, const TensorView& k, const InspectOptions& wanted, const AttentionOptions& options,
          const AttentionParams& p)
      : wanted_(wanted),
        p_(p),
        rank_(q.rank),
        dtype_(q.dtype == DType::f64 ? DType::f64 : DType::f32),
        rows_of_q_(p.cu_seqlens_q ? q.shape[0] : p.seqlen_q),
        keys_of_k_(p.cu_seqlens_k ? k.shape[0] : p.seqlen_k) {
    check_wanted(wanted, options, rows_of_q_, p.seqlen_k);
    params.attention = p;
    params.attention.v = p.k;  // has the element type that the arithmetic is chosen by, and is not read
    params.attention.head_dim_v = 0;
    if (wanted.lse) take_lse();
    if (!wanted.rows.empty()) add_rows();
    if (wanted.top_k > 0) {
      params.top_k = wanted.top_k;
      params.top_keys = add(inspection.top_keys, wanted.index_dtype, false, rows_of_q_, wanted.top_k);
      params.top_weights = add(inspection.top_weights, dtype_, false, rows_of_q_, wanted.top_k);
    }
    if (wanted.entropy) params.entropy = add(inspection.entropy, dtype_, false, rows_of_q_);
    if (wanted.max_weight) params.max_weight = add(inspection.max_weight, dtype_, false, rows_of_q_);
    if (wanted.distance) {
      params.distance = add(inspection.distance, dtype_, false, rows_of_q_);
      const Shape heads = shape_of(true, {});
      inspection.mean_distance = Tensor(dtype_, heads.empty() ? Shape{1} : heads);
    }
    if (wanted.received) params.received = add(inspection.received, dtype_, !p.cu_seqlens_k, keys_of_k_);
    params.pool_rows = wanted.pool_rows;
    params.pool_keys = wanted.pool_keys;
    params.pool_max = wanted.pooling == Pooling::max;
    if (wanted.pool_rows > 0)
      inspection.pooled = Tensor(dtype_, shape_of(true, {wanted.pool_rows, wanted.pool_keys}));
  }

  InspectParams params;
  Inspection inspection;

 private:
  bool has_batch(bool per_document) const { return p_.cu_seqlens_q ? per_document : rank_ > 3; }

  /// [batch, num_heads, lengths...] without the axes that q does not have. In a packed batch the first is there
  /// only for what is one for each document.
  Shape shape_of(bool per_document, std::initializer_list<std::int64_t> lengths) const {
    Shape shape;
    if (has_batch(per_document)) shape.push_back(p_.batch);
    if (rank_ > 2) shape.push_back(p_.num_heads);
    shape.insert(shape.end(), lengths);
    return shape;
  }

  /// Makes a tensor [..., rows, row_length], or [..., rows] of single numbers, and returns the kernels' view of
  /// it.
  HeadedMatrix<void> add(Tensor& tensor, DType dtype, bool per_document, std::int64_t rows,
                         std::int64_t row_length = 0) const {
    tensor = Tensor(dtype,
                    row_length > 0 ? shape_of(per_document, {rows, row_length}) : shape_of(per_document, {rows}));
    const std::int64_t length = std::max<std::int64_t>(row_length, 1);
    return {tensor.data(), dtype, has_batch(per_document) ? p_.num_heads * rows * length : 0, rows * length,
            length};
  }

  void take_lse() {
    const TensorView& lse = wanted_.lse;
    check_dtype(kName, "lse", lse, dtype_);
    const Shape wanted = shape_of(false, {rows_of_q_});
    if (!std::ranges::equal(lse.dims(), wanted))
      refuse(kName, "lse must have shape ", to_string(wanted), ", but it has shape ", to_string(lse.dims()));
    if (lse.data == nullptr && lse.size() > 0) refuse(kName, "lse has no data (null pointer)");
    const auto stride = [&](int from_last) {
      return lse.rank >= from_last ? lse.strides[static_cast<std::size_t>(lse.rank - from_last)] : 0;
    };
    params.lse = {lse.data, dtype_, stride(3), stride(2), stride(1)};
  }

  void add_rows() {
    places_.resize(wanted_.rows.size());
    std::iota(places_.begin(), places_.end(), std::int64_t{0});
    const auto row_at = [this](std::int64_t place) { return wanted_.rows[static_cast<std::size_t>(place)]; };
    std::ranges::sort(places_, {}, row_at);
    std::ranges::transform(places_, std::back_inserter(rows_), row_at);
    const auto twice = std::ranges::adjacent_find(rows_);
    if (twice != rows_.end()) refuse(kName, "rows contains ", *twice, " twice");
    params.rows = rows_.data();
    params.row_places = places_.data();
    params.row_count = static_cast<std::int64_t>(rows_.size());
    inspection.rows = Tensor(dtype_, shape_of(false, {params.row_count, p_.seqlen_k}));
    const std::int64_t head = params.row_count * p_.seqlen_k;
    params.row_weights = {inspection.rows.data(), dtype_, has_batch(false) ? p_.num_heads * head : 0, head,
                          p_.seqlen_k};
  }

  const InspectOptions& wanted_;
  const AttentionParams& p_;
  int rank_;
  DType dtype_;
  std::int64_t rows_of_q_, keys_of_k_;
  std::vector<std::int64_t> rows_, places_;
};

// ---- Sums over rows ------------------------------------------------------------------------------------------

/// The sums over the rows of each head, to which its blocks of rows add in a fixed order: whoever is early waits.
/// The last block leaves the results.
class Totals {
 public:
  /// For threads that take blocks head by head in ascending order: so many heads, and one more, are at work at a
  /// time.
  Totals(const InspectParams& wanted, int threads, Inspection& out)
      : wanted_(wanted),
        p_(wanted.attention),
        out_(out),
        received_(wanted.received.data ? p_.seqlen_k : 0),
        cells_(wanted.pool_rows * wanted.pool_keys),
        heads_(static_cast<std::size_t>(p_.batch * p_.num_heads)),
        idle_(std::min(heads_.size(), static_cast<std::size_t>(threads) + 1)),
        memory_(idle_.size() * size_of_head() * sizeof(double)) {
    auto* next = reinterpret_cast<double*>(memory_.data());
    for (double*& sums : idle_) sums = std::exchange(next, next + size_of_head());
  }

  /// Adds the sums of the head's block number `turn`, after those of all blocks with lower numbers.
  void add(std::int64_t batch, std::int64_t head, std::int64_t turn, bool is_last, const InspectSums& sums) {
    Head& to = heads_[static_cast<std::size_t>(batch * p_.num_heads + head)];
    for (std::int64_t now; (now = to.turn.load(std::memory_order_acquire)) != turn;) to.turn.wait(now);
    if (turn == 0) to.sums = begin();
    to.distance += sums.distance;
    to.rows += sums.rows_with_weight;
    if (sums.received) add_received(sums, to.sums);
    if (sums.cells) add_cells(sums, to.sums + received_);
    if (is_last) end(batch, head, to);
    to.turn.store(turn + 1, std::memory_order_release);
    to.turn.notify_all();
  }

 private:
  struct Head {
    std::atomic<std::int64_t> turn = 0;
    double distance = 0.0;
    std::int64_t rows = 0;   // that have a distance
    double* sums = nullptr;  // [received_], [cells_], and room for a number for each column of cells
  };

  std::size_t size_of_head() const { return static_cast<std::size_t>(received_ + cells_ + wanted_.pool_keys); }

  double* begin() {
    const std::lock_guard lock(mutex_);
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
    if (wanted_.received.dtype == DType::f64)
      add_all(static_cast<const double*>(sums.received));
    else
      add_all(static_cast<const float*>(sums.received));
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
    const std::int64_t number = batch * p_.num_heads + head;
    if (received_ > 0)
      write({from.sums, static_cast<std::size_t>(p_.keys(batch))}, out_.received,
            batch * wanted_.received.batch_stride + head * wanted_.received.head_stride + p_.first_key(batch));
    if (out_.mean_distance.size() > 0) {
      const double mean = from.rows == 0 ? 0.0 : from.distance / static_cast<double>(from.rows);
      write({&mean, 1}, out_.mean_distance, number);
    }
    if (cells_ > 0) {
      double* const cells = from.sums + received_;
      if (!wanted_.pool_max) divide_cells(batch, cells, cells + cells_);
      write({cells, static_cast<std::size_t>(cells_)}, out_.pooled, number * cells_);
    }
    const std::lock_guard lock(mutex_);
    idle_.push_back(from.sums);
  }

  static void write(std::span<const double> from, Tensor& to, std::int64_t at) {
    const auto place = static_cast<std::size_t>(at);
    if (to.dtype() == DType::f64)
      std::ranges::copy(from, to.values<double>().subspan(place).begin());
    else
      std::ranges::transform(from, to.values<float>().subspan(place).begin(),
                             [](double x) { return static_cast<float>(x); });
  }

  /// Sums become means. `keys_of` has room for a number for each column of cells.
  void divide_cells(std::int64_t batch, double* cell, double* keys_of) const {
    for (std::int64_t c = 0; c < wanted_.pool_keys; ++c)
      keys_of[c] = static_cast<double>(length(p_.keys(batch), wanted_.pool_keys, c));
    for (std::int64_t r = 0; r < wanted_.pool_rows; ++r, cell += wanted_.pool_keys) {
      const auto rows = static_cast<double>(length(p_.rows(batch), wanted_.pool_rows, r));
      for (std::int64_t c = 0; c < wanted_.pool_keys; ++c) cell[c] /= std::max(rows * keys_of[c], 1.0);
    }
  }

  /// How many i in [0, seqlen) have floor(i * cells / seqlen) == c.
  static std::int64_t length(std::int64_t seqlen, std::int64_t cells, std::int64_t c) {
    return blocks_of((c + 1) * seqlen, cells) - blocks_of(c * seqlen, cells);
  }

  const InspectParams& wanted_;
  const AttentionParams& p_;
  Inspection& out_;
  std::int64_t received_, cells_;  // numbers of a head
  std::vector<Head> heads_;        // [batch, num_heads]
  std::mutex mutex_;
  std::vector<double*> idle_;  // sums that no head uses
  Workspace memory_;           // of all sums
};

// ---- Schedule ------------------------------------------------------------------------------------------------

/// Packed keys may take this many bytes at a time, as in attention().
constexpr std::size_t kPackedBytes = std::size_t{16} << 20;

/// Blocks of rows, head by head, which threads take in ascending order: whom a block waits for is at work already.
class Schedule {
 public:
  Schedule(const cpu::AttentionKernels& kernels, const InspectParams& wanted, Totals& totals)
      : kernels_(kernels), wanted_(wanted), totals_(totals) {}

  void run(int requested) const {
    std::vector<Heads> together;
    std::size_t bytes = 0;
    for (std::int64_t kv_head = 0; kv_head < p_.batch * p_.num_kv_heads; ++kv_head) {
      Heads heads = heads_of(kv_head);
      if (heads.row_blocks == 0) continue;
      if (bytes + heads.packed_bytes > kPackedBytes) {
        run_together(requested, together, bytes);
        together.clear();
        bytes = 0;
      }
      heads.packed = bytes;
      bytes += heads.packed_bytes;
      together.push_back(heads);
    }
    run_together(requested, together, bytes);
  }

 private:
  /// The query heads of a kv head, in blocks of rows, and its keys.
  struct Heads {
    std::int64_t batch, kv_head;
    KeyRange readable;
    std::int64_t first_block = 0, key_blocks = 0;
    std::int64_t block_rows = 0, row_blocks = 0;  // of each head
    std::size_t packed_bytes = 0, packed = 0;     // 0 bytes: too many, each block of rows packs them on its way
  };

  Heads heads_of(std::int64_t index) const {
    Heads heads{index / p_.num_kv_heads, index % p_.num_kv_heads, {}};
    heads.readable = readable_keys(p_, heads.batch);
    if (heads.readable.begin < heads.readable.end) {
      heads.first_block = heads.readable.begin / plan_.block_k;
      heads.key_blocks = blocks_of(heads.readable.end, plan_.block_k) - heads.first_block;
    }
    heads.packed_bytes = plan_.packed_block * static_cast<std::size_t>(heads.key_blocks);
    if (heads.packed_bytes > kPackedBytes) heads.packed_bytes = 0;
    heads.block_rows = heads.packed_bytes > 0 ? plan_.block_q : plan_.block_q_alone;
    heads.row_blocks = blocks_of(p_.rows(heads.batch), heads.block_rows);
    return heads;
  }

  void run_together(int requested, const std::vector<Heads>& together, std::size_t bytes) const {
    std::vector<Piece> keys, rows;
    std::int64_t most_rows = 0;
    for (const Heads& heads : together) {
      most_rows = std::max(most_rows, heads.block_rows);
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
    parallel_for(threads_for(requested, key_pieces), key_pieces, 0, [&](std::int64_t item, std::byte*) {
      const auto& [heads, head, block] = keys[static_cast<std::size_t>(item)];
      kernels_.pack_block(p_, heads->batch, heads->kv_head, heads->first_block + block, heads->readable,
                          packed.data() + heads->packed + static_cast<std::size_t>(block) * plan_.packed_block);
    });
    parallel_for(threads_for(requested, row_pieces), row_pieces, kernels_.inspect_scratch(wanted_, most_rows),
                 [&](std::int64_t item, std::byte* scratch) {
                   const auto& [heads, head, block] = rows[static_cast<std::size_t>(item)];
                   const std::byte* blocks = heads->packed_bytes > 0 ? packed.data() + heads->packed : nullptr;
                   const cpu::QueryRows work{heads->batch, head, block * heads->block_rows, heads->block_rows};
                   const bool is_last = block + 1 == heads->row_blocks;
                   try {
                     totals_.add(heads->batch, head, block, is_last,
                                 kernels_.inspect(wanted_, work, {blocks, heads->first_block}, scratch));
                   } catch (...) {  // a score modifier's: others still wait for this block's turn to pass
                     totals_.add(heads->batch, head, block, is_last, InspectSums{});
                     throw;
                   }
                 });
  }

  struct Piece {
    const Heads* heads;
    std::int64_t head, block;
  };

  const cpu::AttentionKernels& kernels_;
  const InspectParams& wanted_;
  Totals& totals_;
  const AttentionParams& p_ = wanted_.attention;
  cpu::ForwardPlan plan_ = kernels_.plan_forward(p_);
  std::int64_t group_ = p_.num_heads / p_.num_kv_heads;
};

}  // namespace

Inspection inspect(const TensorView& q, const TensorView& k, const InspectOptions& wanted,
                   const AttentionOptions& options) {
  const MutableTensorView o(const_cast<void*>(q.data), q.dtype, q.dims(), std::span(q.strides).first(q.rank));
  if (q.rank != k.rank && !options.block_table)
    refuse(kName, "q and k must have the same rank, but they have shapes ", to_string(q.dims()), " and ",
           to_string(k.dims()));
  const AttentionArguments arguments(q, k, k, o, options, kName);
  const AttentionParams& p = arguments.params;
  Results results(q, k, wanted, options, p);
  if (p.batch > 0 && p.num_heads > 0 && p.seqlen_q > 0) {
    // As in attention(): less work than this is not worth waking a thread.
    const double work = static_cast<double>(p.batch * p.num_heads) * static_cast<double>(p.seqlen_q) *
                        static_cast<double>(p.seqlen_k) * static_cast<double>(p.head_dim);
    const int threads = threads_for(work > 1 << 20 ? options.num_threads : 1, p.batch * p.num_heads * p.seqlen_q);
    Totals totals(results.params, threads, results.inspection);
    Schedule(cpu::active_kernels().attention(p), results.params, totals).run(threads);
  }
  return std::move(results.inspection);
}

}  // namespace saccade
