// When threads pay off on a CPU, and how much memory a call packs at a time. Block sizes, which depend on the
// instruction set, are in block_sizes.h. None of this changes a result.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "backend/layer_params.h"
#include "backend/visibility.h"
#include "core/parallel.h"

namespace saccade::cpu {

/// The limit for packed keys in bytes (half of the last-level cache of the measured machines). A head with more
/// keys packs them block by block, anew for every block of query rows.
inline constexpr std::size_t kPackedBytes = std::size_t{16} << 20;

/// The limit for unfinished gradients of rows in bytes; one kv head may need more.
inline constexpr std::size_t kDqBytes = std::size_t{24} << 20;

/// With fewer multiply-adds, some 20 microseconds, a second thread costs more than it saves: for attention, for a
/// matrix product, and, in numbers read, for the keys and values of decode.
inline constexpr double kWorthThreads = 1 << 20, kProductWorthThreads = 1 << 19, kReadingWorthThreads = 1 << 18;

/// The threads that a call with this much work may use.
inline int threads_worth(double work, double least) { return work > least ? max_threads() : 1; }

/// The number of pairs of a query row and a key of the same sequence, over batch and heads.
inline double pairs_of(const AttentionParams& p) {
  double pairs = 0.0;
  for (std::int64_t b = 0; b < p.batch; ++b)
    pairs += static_cast<double>(p.rows(b)) * static_cast<double>(p.keys(b));
  return pairs * static_cast<double>(p.num_heads);
}

inline int attention_threads(const AttentionParams& p) {
  return threads_worth(pairs_of(p) * static_cast<double>(p.head_dim + p.head_dim_v), kWorthThreads);
}

inline int decode_threads(const AttentionParams& p) {
  double numbers = 0.0;
  for (std::int64_t b = 0; b < p.batch; ++b) {
    const KeyRange keys = readable_keys(p, b);
    numbers += static_cast<double>(std::max<std::int64_t>(keys.end - keys.begin, 0));
  }
  numbers *= static_cast<double>(p.num_kv_heads) * static_cast<double>(p.head_dim + p.head_dim_v);
  return threads_worth(numbers, kReadingWorthThreads);
}

inline int product_threads(const ProductParams& p) {
  return threads_worth(static_cast<double>(p.rows) * static_cast<double>(p.depth) * static_cast<double>(p.columns),
                       kProductWorthThreads);
}

/// Small problems: the query rows of a unit of work, and the number of units that take a thread some 15
/// microseconds, the cost of waking it.
inline constexpr std::int64_t kSmallRows = 16;
inline std::int64_t small_pieces_of_a_thread(const AttentionOperands& p) {
  return std::max<std::int64_t>(1, 2048 / (p.head_dim + p.head_dim_v));
}

}  // namespace saccade::cpu
