// Attention written to be read: every step by itself, then all of them together, in double precision and without
// a single trick. The fast code is tested against this page; a learner may begin with it.
//
//     scores   = queries keys^T            how alike are a query and a key?
//     weights  = softmax(scale * scores)   each query spreads a total of 1 over the keys
//     contexts = weights values            ... and takes that mixture of the values
//
// The steps take tensors of any element type and any strides and return new f64 ones. All of them throw
// std::invalid_argument for shapes that do not fit together, and name both.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "saccade/attention.h"
#include "saccade/tensor.h"

namespace saccade::reference {

/// The dot product: a_0 b_0 + a_1 b_1 + ...
double dot(std::span<const double> a, std::span<const double> b);

/// The matrix product of a [m, k] and b [k, n]: [m, n].
Tensor matmul(const TensorView& a, const TensorView& b);

/// Rows become columns: [m, n] to [n, m].
Tensor transpose(const TensorView& a);

/// The dot products of one query [head_dim] with each of keys [seqlen_k, head_dim]: [seqlen_k].
Tensor scores_of_query(const TensorView& query, const TensorView& keys);

/// The dot products of each query [seqlen_q, head_dim] with each key [seqlen_k, head_dim], one pair at a time:
/// [seqlen_q, seqlen_k].
Tensor scores_by_loop(const TensorView& queries, const TensorView& keys);

/// The same as a matrix product: queries keys^T.
Tensor scores(const TensorView& queries, const TensorView& keys);

/// Every number times `factor`. Scores grow with head_dim, so one divides them by its square root.
Tensor scaled(const TensorView& x, double factor);

/// Every number divided by the sum along dimension `dim` (negative ones count from the end).
Tensor normalized_by_sum(const TensorView& x, int dim = -1);

/// exp(x) divided by its sum along `dim`, as the formula says: from x = 710 on exp overflows and gives NaN.
Tensor softmax_naive(const TensorView& x, int dim = -1);

/// The same value without the overflow: the largest number of each line is subtracted first, which changes
/// nothing else. A line that is -inf throughout gives zeros.
Tensor softmax(const TensorView& x, int dim = -1);

/// Which keys a query may see when none may look ahead: bool [seqlen_q, seqlen_k], true = attend.
Tensor causal_mask(std::int64_t seqlen_q, std::int64_t seqlen_k, Causal causal = Causal::top_left);

/// The scores where the mask (bool, true = attend, broadcast from the right) is true, -inf elsewhere. It selects:
/// multiplying by a mask of -inf, as one reads now and then, makes NaN of 0 * -inf.
Tensor masked(const TensorView& scores, const TensorView& mask);

/// The weights where `keep` (bool, of the same shape) is true, times 1 / (1 - p) so that the expected sum stays;
/// 0 elsewhere. `p` is the probability of dropping, 0 <= p < 1.
Tensor dropout(const TensorView& weights, const TensorView& keep, double p);

/// The mixture of values [seqlen_k, head_dim_v] that each row of weights [seqlen_q, seqlen_k] asks for:
/// [seqlen_q, head_dim_v].
Tensor context_vectors(const TensorView& weights, const TensorView& values);

/// Everything that one call of attention() computed on the way. All f64; "..." is batch and num_heads, or only
/// num_heads, or nothing, as q's rank has it. A packed batch has the shapes that attention.h says: o
/// [total_q, num_heads, head_dim_v], lse [num_heads, total_q], the rest [num_heads, total_q, seqlen_k].
///
/// Keys that are not there (beyond a document's end; in pages, beyond the length) have a score of -inf at every
/// stage and a weight of 0. Other hidden keys keep their raw and softcapped scores, whatever is in them; pages
/// left of every row's window are read for that only where options.scores is given.
struct AttentionResult {
  Tensor o;        ///< the context vectors, in q's layout with head_dim_v
  Tensor lse;      ///< [..., seqlen_q]: natural logarithm of each softmax denominator, -inf where it is empty
  Tensor weights;  ///< [..., seqlen_q, seqlen_k]: the softmax; after dropout if options.weights_after_dropout
  Tensor scores;   ///< [..., seqlen_q, seqlen_k]: at the stage options.score_stage; raw unless given
  Tensor logits;   ///< [..., seqlen_q, seqlen_k]: what the softmax is taken of, -inf where hidden
  Tensor bound;    ///< as o: the weights times |v|; rounding errors of o are in proportion to it, not to o
};

/// One row of q by its place: the batch entry (or document), the head and the row of that sequence.
struct RowIndex {
  std::int64_t batch = 0, head = 0, row = 0;
};

/// Attention with every option of saccade::attention(), on tensors of any element type. Where options.lse,
/// options.weights and options.scores point, options.num_threads and options.score_block_effect do not matter
/// here: all results are in what is returned. The score modifier is given one row at a time.
///
/// A logit of -inf hides its key, whichever step made it so; a hidden key is never multiplied, so that NaN and Inf
/// in it go nowhere.
///
/// Computed more precisely than any kernel does it: in f64, or, where q, k or v is f64, in long double (80 bits on
/// x86; no more than f64 on machines that have no wider type). `precision`, f64 or f32, rounds every single
/// operation to that type instead: the same maths, as unfused code of that precision does it.
///
/// Throws std::invalid_argument as saccade::attention() does. Memory: seqlen_q * seqlen_k, three times.
AttentionResult attention(const TensorView& q, const TensorView& k, const TensorView& v,
                          const AttentionOptions& options = {}, std::optional<DType> precision = {});

/// The same for some rows only, in the order in which they are listed, when all of them would take too long or too
/// much memory: o and bound are [rows, head_dim_v], lse is [rows], the rest [rows, seqlen_k]. Throws
/// std::invalid_argument for a row that does not exist.
AttentionResult attention_of_rows(const TensorView& q, const TensorView& k, const TensorView& v,
                                  const AttentionOptions& options, std::span<const RowIndex> rows,
                                  std::optional<DType> precision = {});

/// What naive code rounds beyond its arithmetic, where a kernel may round too.
struct NaiveRounding {
  /// The element type of o, to which it is rounded once, at the end; not given: that of the arithmetic.
  std::optional<DType> o{};
  /// The type of the exponentials (relative to the row's largest logit) that are multiplied with v; not given:
  /// that of the arithmetic. bf16 where q, k and v are all bf16 and the machine multiplies bf16.
  std::optional<DType> exponentials{};
  /// The rows of attention_of_rows(), if `exact` comes from there.
  std::span<const RowIndex> rows{};

  /// The coarsest type in which numbers are kept on the way to o: `coarsest` of compare(). q, k and v do not
  /// count, for they are exact as they are.
  DType coarsest() const;
};

/// What unfused code makes of the same problem, at its worst: attention() in f32 (f64 where q, k or v is f64) with
/// the head dimension summed in several orders and the queries scaled before or their products after, and of each
/// number the result farthest from `exact`. It is the `naive` of compare(). One order alone is a matter of luck
/// where a problem has few rows: its largest error is below half of the usual one every tenth time. Logits and
/// bound are not computed.
AttentionResult naive_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                                const AttentionOptions& options, const AttentionResult& exact,
                                const NaiveRounding& rounding = {});

/// The gradients of a number with respect to what went into attention(), all f64 and in the shapes of q, k, v and
/// the options; those of options that are not given (of a mask: not given as numbers) are empty.
struct AttentionGradients {
  Tensor dq, dk, dv;
  Tensor dmask;          ///< summed over the dimensions in which the mask was repeated
  Tensor dsinks;         ///< [num_heads]
  Tensor dalibi_slopes;  ///< [num_heads] or [batch, num_heads]
};

/// The gradients, and the same sums with the magnitudes of their terms: rounding errors are in proportion to
/// those.
struct AttentionBackwardResult {
  AttentionGradients gradients, bound;
};

/// What `dout`, the gradient of a number with respect to o (in o's shape, any element type), makes of
/// attention()'s inputs. Step by step, from the end: with w the weights, z the factor of dropout and p the
/// softmax,
///
///     dv_j = sum_i w_ij dout_i              dw_ij = dout_i . v_j            dp_ij = z_ij dw_ij
///     dlogit_ij = p_ij (dp_ij - sum_l p_il dp_il)                          dmask_ij = dlogit_ij
///     dscore_ij = dlogit_ij times the derivatives of score modifier and softcap
///     dq_i = scale sum_j dscore_ij k_j      dk_j = scale sum_i dscore_ij q_i
///
/// A hidden key takes part in no sum. Precision and errors are those of attention(); block_table is refused.
AttentionBackwardResult attention_backward(const TensorView& q, const TensorView& k, const TensorView& v,
                                           const TensorView& dout, const AttentionOptions& options = {},
                                           std::optional<DType> precision = {});

/// What naive code rounds beyond its arithmetic on the way to gradients: each of them, at the end, to its type.
struct GradientRounding {
  std::optional<DType> dq{}, dk{}, dv{};
  NaiveRounding forward{};  ///< of the o that the forward pass left, from which dout . o is taken
};
/// What unfused code of f32 (f64 where q, k or v is f64) makes of the same gradients, at its worst over several
/// orders of summing the head dimension: the `naive` of compare().
AttentionGradients naive_attention_backward(const TensorView& q, const TensorView& k, const TensorView& v,
                                            const TensorView& dout, const AttentionOptions& options,
                                            const AttentionGradients& exact,
                                            const GradientRounding& rounding = {});

}  // namespace saccade::reference
