// Statistics of the attention weights without storing the matrix: as fast as attention itself, in memory
// proportional to the size of the results.
#pragma once

#include <cstdint>
#include <vector>

#include "saccade/attention.h"
#include "saccade/tensor.h"

#pragma GCC visibility push(default)
namespace saccade {

/// How the pooled map reduces the weights of a cell to one number.
enum class Pooling : std::uint8_t { mean, max };

/// What inspect() computes; fill it with designated initializers. By default it computes nothing.
///
/// Shapes are those for q of rank 4. As with AttentionOptions::lse, axes that q does not have are absent, and
/// batch comes before heads in every layout. In a packed batch [batch, num_heads, seqlen_q] is
/// [num_heads, total_q], and [batch, num_heads, seqlen_k] is [num_heads, total_k].
struct InspectOptions {
  /// Query rows whose weights to return in full, in any order, without duplicates: 0 <= row < seqlen_q.
  std::vector<std::int64_t> rows{};
  /// The number of keys to return for each row, those with the largest weights, among up to 2^32 keys; 0: none.
  std::int64_t top_k = 0;
  /// The element type of their indices, i32 or i64.
  DType index_dtype = DType::i64;
  /// The entropy of each row in nats, -sum of w ln w: ln n if n keys have equal weights, 0 if one key has all the
  /// weight.
  bool entropy = false;
  /// The largest weight of each row.
  bool max_weight = false;
  /// The attention that each key receives: the sum of its column.
  bool received = false;
  /// The mean attention distance of each row, the sum of w |p - j| over its keys j, in positions, and its mean
  /// over the rows of each head.
  bool distance = false;
  /// The size of a map of the whole matrix; 0: none. Cell (floor(i pool_rows / seqlen_q), floor(j pool_keys /
  /// seqlen_k)) pools the weight of row i and key j. The mean counts hidden keys as 0. A cell without weights (in
  /// a map larger than the matrix) is 0. In a packed batch each document has its own map, scaled to its lengths.
  std::int64_t pool_rows = 0, pool_keys = 0;
  Pooling pooling = Pooling::mean;  ///< how a cell of the map follows from its weights
  /// The lse of attention() or decode() for the same q, k and options. Without it inspect() computes the
  /// denominators itself, which is half of its work. Weights are exp(s - lse), so they inherit lse's rounding, a
  /// relative error of up to |lse| times its eps / 2.
  TensorView lse{};
};

/// The results of inspect(); those not requested are empty tensors. Numbers are f32, or f64 for f64 inputs.
struct Inspection {
  Tensor rows;         ///< [batch, num_heads, requested rows, seqlen_k]
  Tensor top_keys;     ///< [batch, num_heads, seqlen_q, top_k], largest weight first; ties: lower index first
  Tensor top_weights;  ///< the same shape; a row with fewer keys of weight > 0 is padded with key -1 and weight 0
  Tensor entropy;      ///< [batch, num_heads, seqlen_q]
  Tensor max_weight;   ///< [batch, num_heads, seqlen_q]
  Tensor received;     ///< [batch, num_heads, seqlen_k]
  Tensor distance;     ///< [batch, num_heads, seqlen_q]
  Tensor mean_distance;  ///< [batch, num_heads], [1] where q has neither: over the rows whose max_weight is not 0
  Tensor pooled;         ///< [batch, num_heads, pool_rows, pool_keys], with these axes also for packed batches
};

/// Statistics of the weights w = softmax(scale * q k^T + ...) that attention() would use, with all of its options.
/// Computes one row of tiles at a time, adds it to the statistics and discards it.
///
/// Shapes and element types of q and k, and errors, are those of attention(). Dropout does not apply: weights are
/// those straight after the softmax. attention()'s options weights and scores are errors here. Its lse is written
/// if given, but is an error together with InspectOptions::lse.
///
/// A hidden key has weight 0; blocks of hidden keys cost nothing. A row that sees no key has weights, entropy and
/// distance 0 and no top keys. A row whose softmax is NaN has NaN results (its top keys are -1). The sums and
/// cells of the keys that it sees and its head's mean distance are then NaN too, but nothing else. With a sink the
/// weights of a row sum to less than 1; entropy and distance use these weights.
///
/// Sums over rows are in f64, sums over keys are compensated, and both have a fixed order: results do not depend
/// on threads.
///
/// Throws std::invalid_argument as attention() does, for rows that do not exist or occur twice, sizes below 0, one
/// pool size without the other, and an index_dtype that is not i32 or i64 or too small for seqlen_k. Safe to call
/// from several threads at once.
Inspection inspect(const TensorView& q, const TensorView& k, const InspectOptions& wanted,
                   const AttentionOptions& options = {});

}  // namespace saccade
#pragma GCC visibility pop
