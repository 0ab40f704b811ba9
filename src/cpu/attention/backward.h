// The gradients of attention: FlashAttention-2's backward pass (arXiv:2307.08691, section 3.1.2). One block of
// keys is combined with one block of query rows after another:
//
//   S = Q K^T, finished as in the forward pass            score_tiles, finish
//   P = exp(S - lse)                                      PendingExp, inside the next tile's product
//   dP = dO V^T                                           score_tiles
//   dS = P (dP - delta)                                   PendingGradient, inside the next tile's product
//   dV += P^T dO,  dK += dS^T Q,  dQ += dS K              value_product
//
// with delta = rowsum(dO * O). Dropout multiplies dP, and the P in dV, by its factors (0 or 1 / (1 - p)).
#pragma once

#include "cpu/attention/backward_shared.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// Computes dS of a tile from dP, in place. A weight of 0, such as a hidden key's, gives 0, whatever its value is.
template <bool kDrops>
struct PendingGradient {
  Scalar* gradients = nullptr;            // [kTileRows][kBlockK]
  const Scalar* probabilities = nullptr;  // the same
  const Scalar* kept = nullptr;           // the same after dropout, not scaled
  const Scalar* delta = nullptr;          // [kTileRows]
  const Scalar* keep_scale = nullptr;     // 1 / (1 - dropout_p)

  SACCADE_INLINE PendingGradient from(int column) const {
    return {gradients + column, probabilities + column, kept + column, delta, keep_scale};
  }

  template <int kVectors>
  struct Row {
    Vec x[kVectors];

    SACCADE_INLINE void begin(const PendingGradient& work, int row) {
      SACCADE_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        x[v] = load(work.gradients + row * kBlockK + v * kWidth);
        if constexpr (kDrops) {
          const Vec factor = mul(load(work.kept + row * kBlockK + v * kWidth), broadcast_from(work.keep_scale));
          const Vec p = load(work.probabilities + row * kBlockK + v * kWidth);
          x[v] = sub(select(equal(factor, zero()), zero(), mul(factor, x[v])),
                     mul(p, broadcast_from(work.delta + row)));
          x[v] = select(equal(p, zero()), zero(), x[v]);  // here, so that p needs no register between the halves
        } else {
          x[v] = sub(x[v], broadcast_from(work.delta + row));
        }
      }
    }
    SACCADE_INLINE void end(const PendingGradient& work, int row) {
      SACCADE_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        if constexpr (!kDrops) {
          const Vec p = load(work.probabilities + row * kBlockK + v * kWidth);
          x[v] = select(equal(p, zero()), zero(), mul(p, x[v]));
        }
        store(work.gradients + row * kBlockK + v * kWidth, x[v]);
      }
    }
  };
};

/// Tiles in a block of query rows, and tiles of keys in a subtile.
inline constexpr int kQueryTiles = kBlockQ / kTileRows;
inline constexpr int kKeyTiles = (kKeySubtile + kTileRows - 1) / kTileRows;

/// Scratch memory for one block of keys.
class BackwardScratch : public ScratchSlices {
 public:
  BackwardScratch(const BackwardParams& params, void* memory) : ScratchSlices(memory) {
    const AttentionParams& p = params.attention;
    subtiles = take<Subtiles>(kQueryTiles);
    if (params.wants_rows()) key_rows = take<Scalar>(kBlockK * packed_value_columns(p.head_dim));
    gradients = take<Scalar>(kBlockQ * kBlockK);
    sums = take<Scalar>(tile_size(std::max(p.head_dim, p.head_dim_v)));
    parked = bytes();
    keys = take<Scalar>(packed_key_size(p.head_dim));
    values = take<Scalar>(packed_key_size(p.head_dim_v));
    queries = take<Scalar>(packed_query_size(p.head_dim));
    douts = take<Scalar>(packed_query_size(p.head_dim_v));
    if (params.wants_keys()) {
      query_rows = take<Scalar>(kBlockQ * packed_value_columns(p.head_dim));
      dout_rows = take<Scalar>(kBlockQ * packed_value_columns(p.head_dim_v));
    }
    probabilities = take<Scalar>(kBlockQ * kBlockK);
    kept = p.dropout_p > 0.0 ? take<Scalar>(kBlockQ * kBlockK) : probabilities;
    if (p.softcap != 0.0 || params.score_modifier_backward) softcapped = take<Scalar>(kBlockQ * kBlockK);
    mask = take<Scalar>(kTileRows * kBlockK);
    unused = take<Scalar>(kTileRows * kWidth);
    if (!params.wants_keys()) return;
    dk = take<Scalar>(kKeySubtiles * kKeyTiles * tile_size(p.head_dim));
    dv = take<Scalar>(kKeySubtiles * kKeyTiles * tile_size(p.head_dim_v));
  }

  /// Size of a tile of accumulated rows, in numbers, in the order of output_index().
  static std::int64_t tile_size(std::int64_t dim) { return kTileRows * round_up(dim, kTileColumns); }

  std::size_t parked;            // bytes up to the end of sums
  Subtiles* subtiles;            // [kQueryTiles]: the subtiles that each tile of rows sees
  Scalar* keys;                  // packed, transposed
  Scalar* values;                // the same
  Scalar* key_rows = nullptr;    // for dq: not transposed; used where keys need conversion
  Scalar* queries;               // of one tile, packed
  Scalar* douts;                 // the same
  Scalar* query_rows = nullptr;  // as key_rows, for dk and dv
  Scalar* dout_rows = nullptr;   // the same
  Scalar* probabilities;         // [kBlockQ][kBlockK]; first holds the scores
  Scalar* gradients;             // of the probabilities, then of the logits, then of the scores
  Scalar* kept;                  // probabilities after dropout, not scaled
  Scalar* softcapped = nullptr;  // scores before the score modifier
  Scalar* mask;                  // [kTileRows][kBlockK], of ScoreFinisher; then scores of rows whose lse is NaN
  Scalar* unused;                // row maxima and sums, not used
  Scalar* sums;                  // of a tile's product with gaps
  Scalar* dk = nullptr;          // [subtile][kKeyTiles] tiles; nullptr: not requested
  Scalar* dv = nullptr;          // the same
};

/// What turns a natural logit into one of base 2, and takes it away.
inline constexpr Scalar kExpFactor = kLog2E, kMinusLog2E = -kLog2E;

/// The statistics of a block of rows.
struct RowNumbers {
  const Scalar* numbers;
  const Scalar* lse(int tile) const { return numbers + tile * kTileRows; }
  const Scalar* deltas(int tile) const { return numbers + kBlockQ + tile * kTileRows; }
};

/// One block of keys and one block of rows of a query head.
class BackwardBlock {
 public:
  BackwardBlock(const BackwardParams& params, const KeyBlock& keys, const QueryRows& rows, void* memory)
      : b_(params),
        p_(params.attention),
        batch_(keys.batch),
        kv_head_(keys.kv_head),
        head_(rows.head),
        first_key_(keys.block * kBlockK),
        row_(rows.row),
        rows_(static_cast<int>(std::min(rows.rows, p_.rows(batch_) - rows.row))),
        readable_(readable_keys(p_, batch_)),
        visibility_(p_, batch_),
        finisher_(p_, visibility_, batch_, head_),
        unit_(score_unit(p_)),
        of_logits_(b_, visibility_, finisher_, batch_, head_),
        scratch_(params, memory) {}

  /// Packs the keys and values of the block and sets their gradients to 0.
  void begin() {
    const auto pack = [&](const KvSource& source, std::int64_t dim, Scalar* packed, Scalar* rows) {
      with_elements(source, [&](const auto& all) {
        pack_key_block(all, first_key_, readable_, dim, packed);
        if (rows && !is_in_place(source)) pack_values(all, first_key_, readable_, dim, rows);
      });
    };
    pack(p_.key_source(batch_, kv_head_), p_.head_dim, scratch_.keys, scratch_.key_rows);
    pack(p_.value_source(batch_, kv_head_), p_.head_dim_v, scratch_.values, nullptr);
    if (!b_.wants_keys()) return;
    const std::int64_t keys = std::min<std::int64_t>(kBlockK, p_.keys(batch_) - first_key_);
    const std::int64_t tiles = (keys + kKeySubtile - 1) / kKeySubtile * kKeyTiles;
    std::fill_n(scratch_.dk, tiles * scratch_.tile_size(p_.head_dim), Scalar{0});
    std::fill_n(scratch_.dv, tiles * scratch_.tile_size(p_.head_dim_v), Scalar{0});
  }

  /// Computes the probabilities and the gradients of the logits. Returns whether there are any.
  bool find_logits(RowNumbers numbers, double& dslope) {
    if (b_.wants_keys()) convert_rows();
    const bool any = p_.dropout_p > 0.0 ? find_gradients<true>(numbers) : find_gradients<false>(numbers);
    if (any && b_.dslopes.data) dslope += gradient_of_slope();
    return any;
  }

  /// Adds the gradients of the logits to the gradients of the mask.
  void add_to_mask() {
    for_each_run([&](int tile, int begin, int end) {
      of_logits_.add_to_mask(tile_row(tile), tile_rows(tile), {first_key_, begin, end},
                             tile_of(scratch_.gradients, tile));
    });
  }

  /// Turns the gradients of the logits into gradients of the products, and adds to dk and dv if they are
  /// requested.
  void add_to_keys(bool masked_safe) {
    if (scratch_.softcapped) differentiate_scores();
    if (!b_.wants_keys()) return;
    for (int subtile = 0; subtile < kKeySubtiles; ++subtile) {
      poll_progress();
      add_to_subtile(subtile, masked_safe);
    }
  }

  /// dq += dS K, where dq has kQueryTiles tiles.
  void add_to_rows(Scalar* dq, bool masked_safe) {
    for (int tile = 0; tile < tiles(); ++tile) {
      poll_progress();
      const KeyRange seen = visibility_.visible(tile_row(tile), tile_rows(tile));
      const auto column = [this](std::int64_t key) {
        return static_cast<int>(std::clamp<std::int64_t>(key - first_key_, 0, kBlockK));
      };
      Runs runs;
      scratch_.subtiles[tile].for_each_run([&](int, int begin, int end) {
        runs.add(std::max(begin, column(seen.begin)), std::min(end, column(seen.end)));
      });
      ValueRows keys{.data = scratch_.key_rows, .stride = packed_value_columns(p_.head_dim)};
      if (const KvSource source = p_.key_source(batch_, kv_head_); is_in_place(source)) {
        keys.data = row_in_place(source, first_key_);
        keys.stride = source.row_stride;
      }
      multiply<FactorRows>(tile_rows(tile), tile_of(scratch_.gradients, tile),
                           tile_of(scratch_.probabilities, tile), runs, keys, p_.head_dim,
                           dq + tile * scratch_.tile_size(p_.head_dim), masked_safe);
    }
  }

  /// Copies what add_to_rows() reads to the beginning of other scratch memory.
  void park(void* memory) const {
    const BackwardScratch to(b_, memory);
    std::copy_n(scratch_.subtiles, tiles(), to.subtiles);
    for (int tile = 0; tile < tiles(); ++tile)
      if (scratch_.subtiles[tile].count > 0)
        std::copy_n(tile_of(scratch_.gradients, tile), kTileRows * kBlockK, tile_of(to.gradients, tile));
    if (!is_in_place(p_.key_source(batch_, kv_head_)))
      std::copy_n(scratch_.key_rows, kBlockK * packed_value_columns(p_.head_dim), to.key_rows);
  }

 private:
  int tiles() const { return (rows_ + kTileRows - 1) / kTileRows; }
  int tile_rows(int tile) const { return std::min(kTileRows, rows_ - tile * kTileRows); }
  std::int64_t tile_row(int tile) const { return row_ + tile * kTileRows; }
  template <class T>
  static T* tile_of(T* numbers, int tile) {
    return numbers + tile * kTileRows * kBlockK;
  }

  /// Calls f(tile, begin, end) for each run of adjacent columns that a tile of rows computes.
  template <class F>
  void for_each_run(const F& f) const {
    for (int tile = 0; tile < tiles(); ++tile) {
      scratch_.subtiles[tile].for_each_run([&](int, int begin, int end) { f(tile, begin, end); });
    }
  }

  /// Converts the block's rows of q and dout, for dk and dv, where they need it.
  void convert_rows() {
    const auto convert = [&](const StridedHeads<const void>& matrix, std::int64_t dim, Scalar* rows) {
      if (matrix.dtype == dtype_of<Scalar>) return;
      with_storage(matrix.dtype, [&](auto type) {
        using T = decltype(type);
        const StridedRows<T> all{p_.row_of<T>(matrix, batch_, head_, row_), matrix.row_stride};
        pack_values(all, 0, {0, rows_}, dim, rows);
      });
    };
    convert(p_.q, p_.head_dim, scratch_.query_rows);
    convert(b_.dout, p_.head_dim_v, scratch_.dout_rows);
  }

  /// Packs a tile's rows of q or dout.
  void pack_tile(int tile, const StridedHeads<const void>& matrix, std::int64_t dim, Scalar factor,
                 Scalar* packed) {
    with_storage(matrix.dtype, [&](auto type) {
      pack_queries(p_.row_of<decltype(type)>(matrix, batch_, head_, tile_row(tile)), matrix.row_stride,
                   tile_rows(tile), dim, factor, packed);
    });
  }

  /// Works tile by tile, which keeps a tile's numbers in the L1 cache. Computes the scores, interleaved with the
  /// pending gradients of the previous tile; then the products of dout and values, interleaved with the
  /// exponentials. Returns whether there are any gradients.
  template <bool kDrops>
  bool find_gradients(RowNumbers numbers) {
    const Scalar keep_scale = static_cast<Scalar>(1.0 / (1.0 - p_.dropout_p));
    PendingGradient<kDrops> gradient;
    const Subtiles* before = nullptr;  // subtiles of the tile whose gradients are pending
    for (int tile = 0; tile < tiles(); ++tile) {
      poll_progress();
      const Subtiles& subtiles = scratch_.subtiles[tile] =
          finisher_.plan(tile_row(tile), tile_rows(tile), first_key_, scratch_.mask);
      if (subtiles.count == 0) continue;
      pack_tile(tile, p_.q, p_.head_dim, unit_.query_factor, scratch_.queries);
      pack_tile(tile, b_.dout, p_.head_dim_v, 1, scratch_.douts);
      const int count = subtiles.count * kTilesOfASubtile;
      Scalar* const scores = tile_of(scratch_.probabilities, tile);
      score_tiles_beside(
          tile_rows(tile), work_of(tile, p_.q, scratch_.queries, p_.head_dim, scratch_.keys, scores), count,
          gradient, before ? before->index.data() : nullptr, before ? before->count * kTilesOfASubtile : 0);
      if (subtiles.partial != 0)
        finisher_.finish(tile_row(tile), tile_rows(tile), first_key_, subtiles, scratch_.mask, scores,
                         scratch_.unused, scratch_.softcapped ? tile_of(scratch_.softcapped, tile) : nullptr);
      Scalar* const gradients = tile_of(scratch_.gradients, tile);
      const unsigned nan_rows = find_nan_rows(numbers.lse(tile), tile_rows(tile));
      if (nan_rows != 0) keep_scores(nan_rows, scores);
      const auto find_probabilities = [&](auto exp) {
        score_tiles_beside(tile_rows(tile),
                           work_of(tile, b_.dout, scratch_.douts, p_.head_dim_v, scratch_.values, gradients),
                           count, exp, subtiles.index.data(), count);
      };
      if (unit_.natural == 1)
        find_probabilities(PendingExp<true>{scores, scores, numbers.lse(tile), scratch_.unused, &kExpFactor});
      else
        find_probabilities(
            PendingExp<false, true>{scores, scores, numbers.lse(tile), scratch_.unused, &kMinusLog2E});
      if (nan_rows != 0) clear_hidden(nan_rows, scores);
      if constexpr (kDrops) drop(tile);
      gradient = {gradients, scores, tile_of(scratch_.kept, tile), numbers.deltas(tile), &keep_scale};
      before = &subtiles;
    }
    for (int i = 0; before && i < before->count * kTilesOfASubtile; i += kTilesOfASubtile)
      finish_subtile(gradient.from(column_of(before->index.data(), i)));
    return before != nullptr;
  }

  /// The rows (bit i: row i) whose lse is NaN. exp(-inf - NaN) is NaN, but hidden keys must have weights of 0:
  /// keep_scores() saves the scores of such rows, which tell clear_hidden() the hidden keys.
  static unsigned find_nan_rows(const Scalar* lse, int rows) {
    unsigned nan_rows = 0;
    for (int i = 0; i < rows; ++i) nan_rows |= static_cast<unsigned>(lse[i] != lse[i]) << i;
    return nan_rows;
  }
  __attribute__((noinline)) void keep_scores(unsigned rows, const Scalar* scores) {
    for (; rows != 0; rows &= rows - 1) {
      const int row = std::countr_zero(rows);
      std::copy_n(scores + row * kBlockK, kBlockK, scratch_.mask + row * kBlockK);
    }
  }
  __attribute__((noinline)) void clear_hidden(unsigned rows, Scalar* probabilities) {
    for (; rows != 0; rows &= rows - 1) {
      const int begin = std::countr_zero(rows) * kBlockK;
      for (int at = begin; at < begin + kBlockK; ++at)
        if (scratch_.mask[at] == -kInfinity) probabilities[at] = 0;
    }
  }

  /// The product of a tile's rows of `matrix` (packed in `rows`) with `columns`.
  ScoreWork work_of(int tile, const StridedHeads<const void>& matrix, const Scalar* rows, std::int64_t dim,
                    const Scalar* columns, Scalar* scores) const {
    return {.queries = rows,
            .keys = columns,
            .steps = dim,
            .subtiles = scratch_.subtiles[tile].index.data(),
            .partial = ~0u,  // the maxima are not needed
            .scores = scores,
            .row_max = scratch_.unused,
            .ahead = prefetch_rows(tile, matrix, dim)};
  }

  /// The same tile's rows of the next block, to prefetch: they have left the near caches since the last block of
  /// keys. The prefetch raises the first two products from 0.89 to 0.92 of the peak (head_dim 128, Zen 4).
  PrefetchRows prefetch_rows(int tile, const StridedHeads<const void>& matrix, std::int64_t dim) const {
    const std::int64_t row = tile_row(tile) + kBlockQ;
    if (row + kTileRows > p_.rows(batch_)) return {};
    return with_storage(matrix.dtype, [&](auto type) -> PrefetchRows {
      constexpr auto kBytes = static_cast<std::int64_t>(sizeof(type));
      return {reinterpret_cast<const std::byte*>(p_.row_of<decltype(type)>(matrix, batch_, head_, row)),
              matrix.row_stride * kBytes, dim * kBytes};
    });
  }

  void drop(int tile) {
    const Dropout dropout(p_);
    const Subtiles& subtiles = scratch_.subtiles[tile];
    const int begin = subtiles.index[0] * kKeySubtile;
    const int end = (subtiles.index[static_cast<std::size_t>(subtiles.count - 1)] + 1) * kKeySubtile;
    for (int i = 0; i < tile_rows(tile); ++i) {
      const Scalar* const from = tile_of(scratch_.probabilities, tile) + i * kBlockK;
      Scalar* const to = tile_of(scratch_.kept, tile) + i * kBlockK;
      std::copy(from, from + kBlockK, to);
      dropout.apply(to, begin, end, p_.dropout_head(batch_, head_), p_.dropout_row(tile_row(tile) + i),
                    first_key_);
    }
  }

  double gradient_of_slope() const {
    double sum = 0.0;
    for_each_run([&](int tile, int begin, int end) {
      of_logits_.add_to_slope(tile_row(tile), tile_rows(tile), {first_key_, begin, end},
                              tile_of(scratch_.gradients, tile), sum);
    });
    return sum;
  }

  void differentiate_scores() {
    for (int tile = 0; tile < tiles(); ++tile) {
      const Subtiles& subtiles = scratch_.subtiles[tile];
      for (int n = 0; n < subtiles.count; ++n) {
        const int begin = subtiles.index[static_cast<std::size_t>(n)] * kKeySubtile;
        of_logits_.differentiate(tile_row(tile), tile_rows(tile), {first_key_, begin, begin + kKeySubtile},
                                 subtiles.is_modified(n), tile_of(scratch_.softcapped, tile),
                                 tile_of(scratch_.probabilities, tile), tile_of(scratch_.gradients, tile));
      }
    }
  }

  /// The steps of a product, in ascending order: runs of rows, or of keys.
  struct Runs {
    int count = 0;
    std::array<std::pair<int, int>, std::max(kQueryTiles, kKeySubtiles)> of = {};  // [begin, end)

    void add(int begin, int end) {
      if (begin >= end) return;
      if (count > 0 && of[static_cast<std::size_t>(count - 1)].second == begin)
        of[static_cast<std::size_t>(count - 1)].second = end;
      else
        of[static_cast<std::size_t>(count++)] = {begin, end};
    }
  };

  /// Adds the rows' contributions to dk and dv of a subtile.
  void add_to_subtile(int subtile, bool masked_safe) {
    Runs runs;
    for (int tile = 0; tile < tiles(); ++tile) {
      if (scratch_.subtiles[tile].set() >> subtile & 1u)
        runs.add(tile * kTileRows, std::min(rows_, (tile + 1) * kTileRows));
    }
    const auto rows_of = [&](const StridedHeads<const void>& matrix, const Scalar* converted, std::int64_t dim) {
      if (matrix.dtype == dtype_of<Scalar>)
        return ValueRows{p_.row_of<Scalar>(matrix, batch_, head_, row_), matrix.row_stride};
      return ValueRows{converted, packed_value_columns(dim)};
    };
    const ValueRows douts = rows_of(b_.dout, scratch_.dout_rows, p_.head_dim_v);
    const ValueRows queries = rows_of(p_.q, scratch_.query_rows, p_.head_dim);
    const std::int64_t existing = p_.keys(batch_) - first_key_;
    for (int tile = 0; tile < kKeyTiles; ++tile) {
      const int column = subtile * kKeySubtile + tile * kTileRows,
                keys = std::min(kTileRows, kKeySubtile - tile * kTileRows);
      if (column >= existing) break;
      const std::int64_t number = subtile * kKeyTiles + tile;
      multiply<FactorColumns>(keys, scratch_.kept + column, scratch_.probabilities + column, runs, douts,
                              p_.head_dim_v, scratch_.dv + number * scratch_.tile_size(p_.head_dim_v),
                              masked_safe);
      multiply<FactorColumns>(keys, scratch_.gradients + column, scratch_.probabilities + column, runs, queries,
                              p_.head_dim, scratch_.dk + number * scratch_.tile_size(p_.head_dim), masked_safe);
    }
  }

  /// o += factors * rows over the steps of `runs`, in chains. `masked_safe` skips products where the probability
  /// is 0.
  template <class Order>
  void multiply(int count, const Scalar* factors, const Scalar* probabilities, const Runs& runs,
                const ValueRows& all_rows, std::int64_t dim, Scalar* o, bool masked_safe) {
    constexpr bool kOverRows = Order::kRow == 1;
    constexpr int kSteps = kOverRows ? kBlockQ : kBlockK, kChain = kOverRows ? kRowChain : kValueChain;
    const auto multiply_run = [&](int begin, int end, AccumulateMode how, Scalar* to) {
      if (begin >= end) return;
      const ValueRows rows{all_rows.data + begin * all_rows.stride, all_rows.stride, end - begin,
                           kChain - begin % kChain, kChain};
      const Scalar* const from = factors + begin * Order::kStep;
      if (masked_safe)
        return multiply_masked_safe<Order>(count, from, probabilities + begin * Order::kStep, rows, dim);
      with_rows(count, [&](auto constant) {
        value_product<Order, decltype(constant)::value>(from, rows, dim, how, nullptr, to);
      });
    };
    if (runs.count == 1 && !masked_safe)
      return multiply_run(runs.of[0].first, runs.of[0].second, AccumulateMode::add, o);
    const std::int64_t size = scratch_.tile_size(dim);
    for (int chain = 0; chain < kSteps && runs.count > 0; chain += kChain) {
      std::fill_n(scratch_.sums, size, Scalar{0});
      for (int i = 0; i < runs.count; ++i) {
        const auto [begin, end] = runs.of[static_cast<std::size_t>(i)];
        multiply_run(std::max(begin, chain), std::min(end, chain + kChain), AccumulateMode::continue_chains,
                     scratch_.sums);
      }
      accumulate_tile(scratch_.sums, size, AccumulateMode::add, nullptr, o);
    }
  }

  /// Adds to scratch_.sums, skipping products where the probability is 0; the result has the same bits.
  template <class Order>
  void multiply_masked_safe(int count, const Scalar* factors, const Scalar* probabilities, const ValueRows& rows,
                            std::int64_t dim) {
    for (int i = 0; i < count; ++i) {
      for (std::int64_t step = 0; step < rows.steps; ++step) {
        const std::int64_t at = i * Order::kRow + step * Order::kStep;
        if (probabilities[at] == 0) continue;
        const Scalar* const row = rows.data + step * rows.stride;
        for (std::int64_t d = 0; d < dim; d += kWidth) {
          Scalar* const sum = scratch_.sums + output_index(i, d);
          const int n = static_cast<int>(std::min<std::int64_t>(kWidth, dim - d));
          store(sum, fma(broadcast(factors[at]), load_first(row + d, n), load(sum)));
        }
      }
    }
  }

  const BackwardParams& b_;
  const AttentionParams& p_;
  std::int64_t batch_, kv_head_, head_, first_key_, row_;
  int rows_;
  KeyRange readable_;
  Visibility visibility_;
  ScoreFinisher finisher_;
  ScoreUnit unit_;  // of the forward pass too: scores have its bits, so that their errors cancel those of lse
  LogitGradients of_logits_;
  BackwardScratch scratch_;
};

// ---- The entry points ----------------------------------------------------------------------------------------

inline BackwardPlan plan_backward(const BackwardParams& params) {
  const AttentionParams& p = params.attention;
  const std::int64_t dq = kQueryTiles * BackwardScratch::tile_size(p.head_dim);
  const BackwardScratch scratch(params, nullptr);
  return {.block_q = kBlockQ,
          .block_k = kBlockK,
          .statistics = static_cast<std::size_t>(2 * kBlockQ) * sizeof(Scalar),
          .dq = static_cast<std::size_t>(dq) * sizeof(Scalar),
          .tile_q = kTileRows,
          .scratch = scratch.bytes(),
          .parked = scratch.parked};
}

inline double backward_statistics(const BackwardParams& params, const QueryRows& work, void* statistics) {
  return write_statistics(params, work, kBlockQ, statistics);
}

inline void backward_begin(const BackwardParams& params, const KeyBlock& keys, void* scratch) {
  BackwardBlock(params, keys, QueryRows{.batch = keys.batch}, scratch).begin();
}

inline bool backward_logits(const BackwardParams& params, const KeyBlock& keys, const QueryRows& rows,
                            const void* statistics, void* scratch, double& dslope) {
  return BackwardBlock(params, keys, rows, scratch).find_logits({static_cast<const Scalar*>(statistics)}, dslope);
}

inline void backward_mask(const BackwardParams& params, const KeyBlock& keys, const QueryRows& rows,
                          void* scratch) {
  BackwardBlock(params, keys, rows, scratch).add_to_mask();
}

inline void backward_keys(const BackwardParams& params, const KeyBlock& keys, const QueryRows& rows,
                          bool masked_safe, void* scratch) {
  BackwardBlock(params, keys, rows, scratch).add_to_keys(masked_safe);
}

inline void backward_rows(const BackwardParams& params, const KeyBlock& keys, const QueryRows& rows,
                          bool masked_safe, void* scratch, void* dq) {
  BackwardBlock(params, keys, rows, scratch).add_to_rows(static_cast<Scalar*>(dq), masked_safe);
}

/// Writes rows [0, rows) of accumulated tiles. A tile has kTileRows of them; the last tile of each group of
/// `rows_of_group` rows may have fewer.
template <class Row>
bool write_tiles(const Scalar* tiles, std::int64_t rows, int rows_of_group, std::int64_t dim, Scalar scale,
                 DType dtype, const Row& row_of) {
  const int tiles_of_group = (rows_of_group + kTileRows - 1) / kTileRows;
  bool finite = true;
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int64_t within = i % rows_of_group;
    const Scalar* const tile =
        tiles + (i / rows_of_group * tiles_of_group + within / kTileRows) * BackwardScratch::tile_size(dim);
    with_storage(dtype, [&](auto type) {
      finite &= write_scaled(tile + within % kTileRows * kTileColumns, kTileRows * kTileColumns, dim, scale,
                             row_of(type, i), 0);
    });
  }
  return finite;
}

inline bool backward_park(const BackwardParams& params, const KeyBlock& keys, const QueryRows& rows, void* scratch,
                          void* to) {
  BackwardBlock(params, keys, rows, scratch).park(to);
  return true;
}

inline bool backward_end(const BackwardParams& params, const KeyBlock& keys, void* scratch) {
  if (!params.wants_keys()) return true;
  const AttentionParams& p = params.attention;
  const BackwardScratch memory(params, scratch);
  const std::int64_t first_key = keys.block * kBlockK;
  const std::int64_t count = std::min<std::int64_t>(kBlockK, p.keys(keys.batch) - first_key);
  const auto write = [&](const StridedHeads<void>& to, const Scalar* tiles, std::int64_t dim, double scale) {
    return write_tiles(
        tiles, count, kKeySubtile, dim, static_cast<Scalar>(scale), to.dtype, [&](auto type, std::int64_t j) {
          return to.row<decltype(type)>(keys.batch, keys.kv_head, p.first_key(keys.batch) + first_key + j);
        });
  };
  const bool dk = write(params.dk, memory.dk, p.head_dim, p.scale);
  const bool dv = write(params.dv, memory.dv, p.head_dim_v, 1.0 / (1.0 - p.dropout_p));
  return dk && dv;
}

inline bool backward_write(const BackwardParams& params, const QueryRows& work, const void* dq) {
  const AttentionParams& p = params.attention;
  const std::int64_t rows = std::min(work.rows, p.rows(work.batch) - work.row);
  const auto row_of = [&](auto type, std::int64_t i) {
    return p.row_of<decltype(type)>(params.dq, work.batch, work.head, work.row + i);
  };
  if (dq)
    return write_tiles(static_cast<const Scalar*>(dq), rows, kBlockQ, p.head_dim, static_cast<Scalar>(p.scale),
                       params.dq.dtype, row_of);
  with_storage(params.dq.dtype, [&](auto type) {
    for (std::int64_t i = 0; i < rows; ++i) std::fill_n(row_of(type, i), p.head_dim, decltype(type){});
  });
  return true;
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
