// Statistics of the attention weights of one block of query rows. Two passes over the key blocks that its rows can
// see:
//
//   m, l: the largest score, the sum of exp(s - m) of each row    left out where the caller knows lse
//   w = exp(s - m) / l, folded into                               fold_rows
//     entropy, distance, largest weight of the row                a lane each, compensated from block to block
//     the sums over rows of each key                              the rows of one row of cells at a time
//     the best keys of the row                                    only where a block beats the worst of them
#pragma once

#include "cpu/attention/row_statistics.h"
#include "cpu/attention/scores.h"
#include "cpu/attention/softmax.h"
#include "cpu/attention/tile.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

// ---- One block of query rows ---------------------------------------------------------------------------------

/// A tile of query rows and the keys [first_key, first_key + kFoldColumns).
struct InspectStep {
  int tile, rows;
  std::int64_t row, first_key;
  Scalar* scores;         // [kFoldColumns / kBlockK][kTileRows][kBlockK]
  unsigned subtiles = 0;  // a bit for each subtile of the keys with scores

  /// Calls f(begin, end) for the columns of each run of adjacent subtiles.
  template <class F>
  SACCADE_INLINE void for_each_run(const F& f) const {
    for (unsigned left = subtiles; left != 0;) {
      const int begin = std::countr_zero(left), end = begin + std::countr_one(left >> begin);
      f(begin * kKeySubtile, end * kKeySubtile);
      left = left >> end << end;
    }
  }
};

inline constexpr std::int64_t kStepScores = kTileRows * kFoldColumns;

/// Steps of a block of rows whose scores are kept from the pass that finds denominators to the pass that folds.
inline constexpr std::int64_t kKeptSteps = kKeptScores / (kStepScores * std::int64_t{sizeof(Scalar)});

/// The most steps of keys that a tile of a block of `rows` rows may see.
inline std::int64_t fold_steps(const AttentionParams& p, std::int64_t rows) {
  const std::int64_t left = p.window_left, right = p.causal ? 0 : p.window_right;
  const bool is_window = left >= 0 && left < p.seqlen_k && right >= 0 && right < p.seqlen_k;
  const std::int64_t keys = is_window ? std::min(p.seqlen_k, left + right + rows) : p.seqlen_k;
  return (keys + kFoldColumns - 1) / kFoldColumns + 1;  // the first step may begin before the first key
}

/// The plan of a forward pass, with as many rows to a block as can keep their scores.
template <ForwardPlan (*plan)(const AttentionParams&)>
ForwardPlan plan_inspect(const AttentionParams& p) {
  ForwardPlan result = plan(p);
  const std::int64_t kept_rows = kKeptSteps / fold_steps(p, result.block_q) * kTileRows;
  if (kept_rows >= kFewestKeptRows) result.block_q = std::min(result.block_q, kept_rows);
  return result;
}

/// The memory of one thread's work on a block of rows. Scores: where they come from. `rows`: those that the memory
/// was sized for, also for a shorter last block, for fewer rows could keep scores where more could not.
template <class Scores>
class InspectScratch : public Scores::Scratch {
 public:
  InspectScratch(const InspectParams& wanted, std::int64_t rows, void* memory)
      : Scores::Scratch(wanted.attention, tiles_of(rows), memory) {
    const AttentionParams& p = wanted.attention;
    const std::int64_t tiles = tiles_of(rows);
    const std::int64_t steps = fold_steps(p, rows) * tiles;
    keeps_scores = !wanted.lse.data && steps <= kKeptSteps;
    const std::int64_t kept = keeps_scores ? steps : 1;
    scores = this->template take<Scalar>(kept * kStepScores);
    subtiles = this->template take<unsigned>(kept);
    weights = this->template take<Scalar>(kTileRows * kFoldColumns);
    column_sum = this->template take<Scalar>(kFoldColumns);
    column_max = this->template take<Scalar>(kFoldColumns);
    softmax = this->template take<RowState>(tiles);
    statistics = this->template take<RowStatistics>(tiles);
    cell_rows = this->template take<std::int64_t>(tiles * kTileRows);
    if (wanted.received.data)
      received = this->template take<Scalar>(round_up(p.seqlen_k, kFoldColumns) + kFoldColumns);
    if (wanted.pool_rows > 0) cells = this->template take<double>(most_cell_rows(wanted, rows) * wanted.pool_keys);
    best_keys = this->template take<RankedKey>(rows * BestKeys::slots(wanted.top_k));
  }

  bool keeps_scores;          // of all steps, from the first pass to the second
  Scalar* scores;             // [steps, if kept][kFoldColumns / kBlockK][kTileRows][kBlockK]
  unsigned* subtiles;         // [steps, if kept]
  Scalar* weights;            // [kTileRows][kFoldColumns]
  Scalar* column_sum;         // [kFoldColumns]
  Scalar* column_max;         // [kFoldColumns]
  RowState* softmax;          // [tiles]
  RowStatistics* statistics;  // [tiles]
  std::int64_t* cell_rows;    // [rows]
  Scalar* received = nullptr;
  double* cells = nullptr;
  RankedKey* best_keys;  // [rows][slots of top_k]

 private:
  static std::int64_t tiles_of(std::int64_t rows) { return (rows + kTileRows - 1) / kTileRows; }

  /// Documents of a packed batch differ in length: one block may contain all rows of cells of the shortest one.
  static std::int64_t most_cell_rows(const InspectParams& wanted, std::int64_t rows) {
    if (wanted.attention.cu_seqlens_q) return wanted.pool_rows;
    const std::int64_t seqlen = std::max<std::int64_t>(wanted.attention.seqlen_q, 1);
    return std::min(wanted.pool_rows, (rows * wanted.pool_rows + seqlen - 1) / seqlen + 1);
  }
};

template <class Scores>
class InspectBlock {
 public:
  InspectBlock(const InspectParams& wanted, const QueryRows& work, const PackedKeys& packed, void* memory)
      : wanted_(wanted),
        p_(wanted.attention),
        batch_(work.batch),
        head_(work.head),
        row_(work.row),
        rows_(static_cast<int>(std::min(work.rows, p_.rows(work.batch) - work.row))),
        tiles_((rows_ + kTileRows - 1) / kTileRows),
        visibility_(p_, work.batch),
        unit_(score_unit(p_)),
        scratch_(wanted, work.rows, memory),
        scores_(p_, work, packed, visibility_, scratch_) {}

  InspectSums run() {
    begin();
    if (wanted_.lse.data)
      take_denominators();
    else
      compute_denominators();
    begin_sums();
    walk(false, [this](const InspectStep& step, const Scalar*) { fold(step); });
    end_cell_row();
    for (int i = 0; i < rows_; ++i) end_row(i);
    return sums_;
  }

 private:
  int tile_rows(int tile) const { return std::min(kTileRows, rows_ - tile * kTileRows); }

  std::int64_t tile_row(int tile) const { return row_ + tile * kTileRows; }

  void begin() {
    for (int tile = 0; tile < tiles_; ++tile) {
      scores_.pack_queries(tile, tile_row(tile), tile_rows(tile));
      scratch_.softmax[tile].reset();
      scratch_.statistics[tile].reset(wanted_.top_k > 0);
    }
  }

  /// Calls visit(step, row_max) for every tile of rows and the keys of each step that it sees, with their scores;
  /// `with_maxima`: row_max is needed, as in the first pass of two. The second takes kept scores.
  template <class Visit>
  void walk(bool with_maxima, Visit visit) {
    const KeyRange range = visibility_.visible(row_, rows_);
    const bool is_kept = scratch_.keeps_scores && !with_maxima;
    std::int64_t place = 0;
    for (std::int64_t first_key = range.begin / kFoldColumns * kFoldColumns; first_key < range.end;
         first_key += kFoldColumns) {
      for (int tile = 0; tile < tiles_; ++tile) {
        InspectStep step{tile, tile_rows(tile), tile_row(tile), first_key, scratch_.scores + place * kStepScores};
        alignas(64) Scalar row_max[kTileRows * kWidth];
        for (int i = 0; i < kTileRows * kWidth; i += kWidth) store(row_max + i, broadcast(-kInfinity));
        if (!is_kept) scratch_.subtiles[place] = scores_.compute(step, range, step.scores, row_max, with_maxima);
        step.subtiles = scratch_.subtiles[place];
        if (scratch_.keeps_scores) ++place;
        if (step.subtiles != 0) visit(step, row_max);
      }
    }
  }

  // ---- Denominators ------------------------------------------------------------------------------------------

  void compute_denominators() {
    walk(true, [this](const InspectStep& step, const Scalar* row_max) {
      alignas(64) Scalar alpha[kTileRowsPadded];
      RowState& state = scratch_.softmax[step.tile];
      state.raise(row_max, unit_.exp_factor, alpha);
      step.for_each_run([&](int begin, int end) {
        for (int column = begin; column < end; column += kKeySubtile)
          with_scaling(unit_.exp_factor, [&](auto scaled) {
            finish_subtile(PendingExp<decltype(scaled)::value>{step.scores + place_of_score(column),
                                                               scratch_.weights + column % kBlockK, state.m,
                                                               state.l, &unit_.exp_factor});
          });
      });
    });
    for (int i = 0; i < rows_; ++i) {
      const RowState& state = scratch_.softmax[i / kTileRows];
      const Scalar m = state.m[i % kTileRows], l = state.sum(i % kTileRows);
      const Scalar sink = static_cast<Scalar>(p_.sink(head_));
      if (p_.lse.data)
        *p_.row_of<Scalar>(p_.lse, batch_, head_, row_ + i) = finish_row(m * unit_.natural, l, sink).lse();
      if (l == 0) continue;  // the row sees nothing, and its weights are exp2(-inf)
      const Scalar own = std::log2(l), of_sink = (sink - m * unit_.natural) * kLog2E;
      const Scalar low = std::min(own, of_sink), high = std::max(own, of_sink);
      scratch_.statistics[i / kTileRows].set_denominator(
          i % kTileRows, m, sink == -kInfinity || own != own ? own : high + std::log2(1 + std::exp2(low - high)));
    }
  }

  void take_denominators() {
    for (int i = 0; i < rows_; ++i) {
      const Scalar lse = *p_.row_of<const Scalar>(wanted_.lse, batch_, head_, row_ + i);
      if (lse == -kInfinity) continue;
      const Scalar m = lse / unit_.natural;
      const double rest = static_cast<double>(lse) - static_cast<double>(m) * static_cast<double>(unit_.natural);
      scratch_.statistics[i / kTileRows].set_denominator(i % kTileRows, m, static_cast<Scalar>(rest * kLog2E));
    }
  }

  // ---- Sums --------------------------------------------------------------------------------------------------

  void begin_sums() {
    const KeyRange range = visibility_.visible(row_, rows_);
    sums_.first_key = range.begin / kFoldColumns * kFoldColumns;
    sums_.end_key = std::max(range.end, sums_.first_key);
    if (wanted_.received.data) {
      sums_.received = scratch_.received;
      std::fill_n(scratch_.received, round_up(sums_.end_key, kFoldColumns) - sums_.first_key, Scalar{0});
    }
    const std::int64_t rows = p_.rows(batch_);
    for (int i = 0; i < rows_; ++i) scratch_.cell_rows[i] = (row_ + i) * wanted_.pool_rows / rows;
    if (wanted_.pool_rows > 0) {
      sums_.cells = scratch_.cells;
      sums_.first_cell_row = scratch_.cell_rows[0];
      sums_.cell_rows = scratch_.cell_rows[rows_ - 1] + 1 - sums_.first_cell_row;
      std::fill_n(sums_.cells, sums_.cell_rows * wanted_.pool_keys, 0.0);
    }
    std::fill_n(scratch_.column_sum, kFoldColumns, Scalar{0});
    std::fill_n(scratch_.column_max, kFoldColumns, Scalar{0});
    std::fill_n(scratch_.best_keys, rows_ * BestKeys::slots(wanted_.top_k), RankedKey{0});
  }

  void fold(const InspectStep& step) {
    if (step.first_key != block_key_) begin_key_block(step.first_key);
    RowStatistics& statistics = scratch_.statistics[step.tile];
    step.for_each_run([&](int begin, int end) {
      if (statistics.is_nan) spread_nan(step, begin, end, statistics.is_nan);
      unsigned better = fold_columns(step, begin, end, statistics);
      if (wanted_.row_count > 0) save_rows(step, begin, end);
      for (; better != 0; better &= better - 1)  // each bit
        gather_best(step, std::countr_zero(better), begin, end, statistics);
    });
  }

  unsigned fold_columns(const InspectStep& step, int begin, int end, RowStatistics& statistics) {
    const std::int64_t* const cell_rows = scratch_.cell_rows + step.tile * kTileRows;
    unsigned better = 0;
    for (int i = 0, next; i < step.rows; i = next) {
      if (cell_rows[i] != cell_row_) end_cell_row();
      cell_row_ = cell_rows[i];
      columns_begin_ = std::min(columns_begin_, begin);
      columns_end_ = std::max(columns_end_, end);
      next = i + 1;
      while (next < std::min(step.rows, i + kFoldRows) && cell_rows[next] == cell_row_) ++next;
      Scalar position[kFoldRows];
      for (int r = i; r < next; ++r)
        position[r - i] = static_cast<Scalar>(step.row + r + visibility_.offset - step.first_key);
      const FoldStep some{.begin = begin,
                          .end = end,
                          .scores = step.scores + i * kBlockK,
                          .weights = scratch_.weights + i * kFoldColumns,
                          .position = position,
                          .factor = unit_.exp_factor,
                          .column_sum = scratch_.column_sum,
                          .column_max = scratch_.column_max,
                          .rows = statistics,
                          .first_row = i};
      better |= wanted_.pool_max ? fold_some_rows<true>(next - i, some) : fold_some_rows<false>(next - i, some);
    }
    return better;
  }

  /// Handles rows whose softmax is NaN: NaN for the keys that they see, nothing for the others.
  void spread_nan(const InspectStep& step, int begin, int end, unsigned is_nan) {
    const Vec hidden = broadcast(-kInfinity), nan = broadcast(std::numeric_limits<Scalar>::quiet_NaN());
    for (int i = 0; i < step.rows; ++i)
      for (int j = begin; is_nan >> i & 1u && j < end; j += kWidth) {
        Scalar* const s = step.scores + i * kBlockK + place_of_score(j);
        store(s, select(equal(load(s), hidden), hidden, nan));
      }
  }

  void save_rows(const InspectStep& step, int begin, int end) const {
    const std::int64_t first = p_.first_row(batch_) + step.row;
    const std::int64_t columns = std::min<std::int64_t>(end, p_.keys(batch_) - step.first_key) - begin;
    const std::int64_t* const rows_end = wanted_.rows + wanted_.row_count;
    for (const std::int64_t* row = std::lower_bound(wanted_.rows, rows_end, first);
         row != rows_end && *row < first + step.rows; ++row) {
      const Scalar* const from = scratch_.weights + (*row - first) * kFoldColumns + begin;
      std::copy_n(from, std::max<std::int64_t>(columns, 0),
                  wanted_.row_weights.row<Scalar>(batch_, head_, wanted_.row_places[row - wanted_.rows]) +
                      step.first_key + begin);
    }
  }

  void gather_best(const InspectStep& step, int i, int begin, int end, RowStatistics& statistics) {
    BestKeys best = best_of(step.tile * kTileRows + i);
    const Scalar* const weights = scratch_.weights + i * kFoldColumns;
    Scalar worst = statistics.worst[i];
    if (worst == 0) worst = BestKeys::bound(statistics.largest + i * kWidth, best.k);
    ColumnsAbove better(weights, begin, end, worst);
    best.merge(better, weights, step.first_key);
    worst = std::max(worst, best.worst());
    statistics.worst[i] = worst;
  }

  BestKeys best_of(int i) const {
    return {scratch_.best_keys + i * BestKeys::slots(wanted_.top_k), wanted_.top_k};
  }

  void begin_key_block(std::int64_t first_key) {
    end_cell_row();
    block_key_ = first_key;
    if (wanted_.pool_rows > 0) find_cells();
  }

  /// Adds the complete sums over rows of a block's columns to the sums of keys and of cells.
  void end_cell_row() {
    if (columns_begin_ >= columns_end_) return;
    if (wanted_.received.data) {
      Scalar* const received = scratch_.received + (block_key_ - sums_.first_key);
      for (int j = columns_begin_; j < columns_end_; j += kWidth)
        store(received + j, add(load(received + j), load(scratch_.column_sum + j)));
    }
    if (wanted_.pool_rows > 0) pool_columns();
    for (int j = columns_begin_; j < columns_end_; j += kWidth) {
      store(scratch_.column_sum + j, zero());
      store(scratch_.column_max + j, zero());
    }
    columns_begin_ = kFoldColumns;
    columns_end_ = 0;
  }

  /// Finds the cells that contain keys of the block, and the columns at which they begin.
  void find_cells() {
    const std::int64_t keys = p_.keys(batch_), end = std::min<std::int64_t>(block_key_ + kFoldColumns, keys);
    block_cells_ = 0;
    for (std::int64_t key = block_key_; key < end; ++block_cells_) {
      cells_[block_cells_] = key * wanted_.pool_keys / keys;
      cell_columns_[block_cells_] = static_cast<int>(key - block_key_);
      // The next cell's first key, rounded up.
      key = ((cells_[block_cells_] + 1) * keys + wanted_.pool_keys - 1) / wanted_.pool_keys;
    }
    cell_columns_[block_cells_] = static_cast<int>(end - block_key_);
  }

  double sum_of_columns(int begin, int end) const {
    double sums[4] = {};  // four chains, so that none waits for another
    int j = begin;
    for (; j + 4 <= end; j += 4) {
      SACCADE_UNROLL
      for (int i = 0; i < 4; ++i) sums[i] += static_cast<double>(scratch_.column_sum[j + i]);
    }
    for (; j < end; ++j) sums[0] += static_cast<double>(scratch_.column_sum[j]);
    return sums[0] + sums[1] + (sums[2] + sums[3]);
  }

  void pool_columns() {
    double* const cells = scratch_.cells + (cell_row_ - sums_.first_cell_row) * wanted_.pool_keys;
    for (int i = 0; i < block_cells_; ++i) {
      const int begin = std::max(cell_columns_[i], columns_begin_);
      const int end = std::min(cell_columns_[i + 1], columns_end_);
      double& cell = cells[cells_[i]];
      const double sum = sum_of_columns(begin, end);
      if (!wanted_.pool_max || sum != sum) {
        cell += sum;  // NaN stays
        continue;
      }
      Scalar largest = 0;
      for (int j = begin; j < end; ++j) largest = std::max(largest, scratch_.column_max[j]);
      if (cell < static_cast<double>(largest)) cell = static_cast<double>(largest);
    }
  }

  // ---- Results of a row --------------------------------------------------------------------------------------

  void end_row(int i) {
    const RowStatistics& statistics = scratch_.statistics[i / kTileRows];
    const int row = i % kTileRows;
    const bool is_nan = statistics.is_nan >> row & 1u;
    const auto result = [is_nan](Scalar x) { return is_nan ? std::numeric_limits<Scalar>::quiet_NaN() : x; };
    const auto write = [&](const StridedHeads<void>& to, Scalar x) {
      if (to.data) *p_.row_of<Scalar>(to, batch_, head_, row_ + i) = x;
    };
    const Scalar largest = result(reduce_max(load(statistics.largest + row * kWidth)));
    const Scalar distance = result(total_of_lanes(statistics.distance + row * kSumLanes));
    const Scalar entropy = -kLn2 * total_of_lanes(statistics.entropy + row * kSumLanes);
    write(wanted_.entropy, result(std::max(Scalar{0}, entropy)));  // rounding may leave -1e-8
    write(wanted_.max_weight, largest);
    write(wanted_.distance, distance);
    if (wanted_.top_k > 0) write_best(i, result(0));
    if (largest == 0) return;
    sums_.distance += static_cast<double>(distance);
    ++sums_.rows_with_weight;
  }

  void write_best(int i, Scalar missing) {
    BestKeys best = best_of(i);
    best.sort();
    Scalar* const weights = p_.row_of<Scalar>(wanted_.top_weights, batch_, head_, row_ + i);
    for (std::int64_t n = 0; n < wanted_.top_k; ++n) {
      const bool is_found = best.keys[n] != 0;
      const std::int64_t key = is_found ? key_of(best.keys[n]) : -1;
      weights[n] = is_found ? weight_of(best.keys[n]) : missing;
      if (wanted_.top_keys.dtype == DType::i32)
        p_.row_of<std::int32_t>(wanted_.top_keys, batch_, head_, row_ + i)[n] = static_cast<std::int32_t>(key);
      else
        p_.row_of<std::int64_t>(wanted_.top_keys, batch_, head_, row_ + i)[n] = key;
    }
  }

  const InspectParams& wanted_;
  const AttentionParams& p_;
  std::int64_t batch_, head_, row_;
  int rows_, tiles_;
  Visibility visibility_;
  ScoreUnit unit_;
  InspectScratch<Scores> scratch_;
  Scores scores_;

  InspectSums sums_{};
  // The current sums over rows: the rows are those of cell_row_ (all rows if no map is requested), the columns
  // those of the block at block_key_.
  std::int64_t cell_row_ = -1, block_key_ = -1;
  int columns_begin_ = kFoldColumns, columns_end_ = 0;
  int block_cells_ = 0;  // cells that contain keys of the block
  std::int64_t cells_[kFoldColumns];
  int cell_columns_[kFoldColumns + 1];
};

template <class Scores>
InspectSums inspect(const InspectParams& wanted, const QueryRows& work, const PackedKeys& packed, void* scratch) {
  return InspectBlock<Scores>(wanted, work, packed, scratch).run();
}

/// Bytes of scratch memory for blocks of `rows` rows.
template <class Scores>
std::size_t inspect_scratch(const InspectParams& wanted, std::int64_t rows) {
  return InspectScratch<Scores>(wanted, rows, nullptr).bytes();
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
