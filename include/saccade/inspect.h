// What attention looks at, without the matrix: statistics of the weights at the speed of attention, in memory
// proportional to what is asked for.
#pragma once

#include <cstdint>
#include <vector>

#include "saccade/attention.h"
#include "saccade/tensor.h"

namespace saccade {

/// How the weights of a cell of the pooled map become one number.
enum class Pooling : std::uint8_t { mean, max };

/// What inspect() is asked for; fill it with designated initialisers. Everything is off unless asked for.
///
/// Shapes are written for q of rank 4. As with AttentionOptions::lse, axes that q does not have are left out, and
/// batch comes before heads whatever the layout. In a packed batch [batch, num_heads, seqlen_q] is
/// [num_heads, total_q], and [batch, num_heads, seqlen_k] is [num_heads, total_k].
struct InspectOptions {
  /// Query rows whose weights are wanted in full, in any order, each once: 0 <= row < seqlen_q.
  std::vector<std::int64_t> rows{};
  /// The keys with the largest weights of each row, at most this many; 0: none.
  std::int64_t top_k = 0;
  /// The element type of their indices, i32 or i64.
  DType index_dtype = DType::i64;
  /// The entropy of each row in nats, -sum of w ln w: ln n where n keys share the row evenly, 0 where one has it
  /// all.
  bool entropy = false;
  /// The largest weight of each row.
  bool max_weight = false;
  /// The attention that each key receives: its column's sum over the rows.
  bool received = false;
  /// How far each row looks: the sum of w |p - j| over its keys j, in positions, and the mean over each head's
  /// rows.
  bool distance = false;
  /// The size of a map of the whole matrix; 0: none. Cell (floor(i pool_rows / seqlen_q),
  /// floor(j pool_keys / seqlen_k)) pools the weight of row i and key j. The mean counts hidden keys as 0; a cell
  /// that has no weight to pool (a map larger than the matrix) is 0. In a packed batch each document has a map of
  /// its own lengths.
  std::int64_t pool_rows = 0, pool_keys = 0;
  Pooling pooling = Pooling::mean;
  /// What attention() or decode() reported as lse for the same q, k and options; without it inspect() computes the
  /// denominators, which is half of its work. Weights are exp(s - lse): they carry lse's rounding, a relative
  /// error of up to |lse| times its eps / 2.
  TensorView lse{};
};

/// What inspect() found: what was not asked for is an empty tensor. Numbers are f32, or f64 for f64 inputs.
struct Inspection {
  Tensor rows;      ///< [batch, num_heads, rows asked for, seqlen_k]
  Tensor top_keys;  ///< [batch, num_heads, seqlen_q, top_k], largest weight first, of equal ones the lower index
  Tensor top_weights;    ///< the same shape; a row with fewer keys of weight > 0 ends in key -1, weight 0
  Tensor entropy;        ///< [batch, num_heads, seqlen_q]
  Tensor max_weight;     ///< [batch, num_heads, seqlen_q]
  Tensor received;       ///< [batch, num_heads, seqlen_k]
  Tensor distance;       ///< [batch, num_heads, seqlen_q]
  Tensor mean_distance;  ///< [batch, num_heads], [1] where q has neither: the mean over the rows that see a key
  Tensor pooled;         ///< [batch, num_heads, pool_rows, pool_keys], with those axes for packed batches too
};

/// Statistics of the weights w = softmax(scale * q k^T + ...) that attention() would use, with all of its options;
/// each row of tiles is computed, folded into the statistics and forgotten.
///
/// Shapes and element types of q and k, and errors, are those of attention(). Its dropout does not apply: weights
/// are as softmax made them. Its options weights and scores are refused; its lse is written where given, but
/// refused beside InspectOptions::lse.
///
/// A hidden key has weight 0; blocks of hidden keys cost nothing. A row that sees nothing has weights, entropy and
/// distance 0 and no top keys. A row whose softmax is NaN is NaN (its top keys are -1), and so are the sums and
/// cells of the keys that it sees, and its head's mean distance; nothing else is. With a sink the weights of a row
/// sum to less than 1; entropy and distance are of these weights.
///
/// Sums over rows are kept in f64, those over keys compensated, and both added up in a fixed order: results do not
/// depend on threads.
///
/// Throws std::invalid_argument as attention() does, for rows that do not exist or are named twice, sizes below 0,
/// one pool size without the other, and an index_dtype that is not i32 or i64 or too small for seqlen_k. Safe to
/// call from several threads at once.
Inspection inspect(const TensorView& q, const TensorView& k, const InspectOptions& wanted,
                   const AttentionOptions& options = {});

}  // namespace saccade
