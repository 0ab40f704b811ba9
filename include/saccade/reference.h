// Attention as readable code: each step as a function, then all steps together, in double precision and without
// optimizations. The tests compare the fast code with this code; if you are new to attention, start here.
//
//     scores   = queries keys^T            how similar are a query and a key?
//     weights  = softmax(scale * scores)   each query spreads a total of 1 over the keys
//     contexts = weights values            ... and mixes the values in these proportions
//
// The steps accept tensors of any element type and any strides, and return new f64 tensors. All of them throw
// std::invalid_argument for shapes that do not fit together, and name both.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "saccade/attention.h"
#include "saccade/backward.h"
#include "saccade/tensor.h"

#pragma GCC visibility push(default)
namespace saccade::reference {

/// The dot product of a and b: a_0 b_0 + a_1 b_1 + ...
double dot(std::span<const double> a, std::span<const double> b);

/// The matrix product of a [m, k] and b [k, n]: [m, n].
Tensor matmul(const TensorView& a, const TensorView& b);

/// Rows become columns: a [m, n] to [n, m].
Tensor transpose(const TensorView& a);

/// The dot products of one query [head_dim] with each of keys [seqlen_k, head_dim]: [seqlen_k].
Tensor scores_of_query(const TensorView& query, const TensorView& keys);

/// The dot products of each of queries [seqlen_q, head_dim] with each of keys [seqlen_k, head_dim], one pair at a
/// time: [seqlen_q, seqlen_k].
Tensor scores_by_loop(const TensorView& queries, const TensorView& keys);

/// The same as a matrix product: queries keys^T.
Tensor scores(const TensorView& queries, const TensorView& keys);

/// Every number of x times `factor`. Scores grow with head_dim, so attention divides them by its square root.
Tensor scaled(const TensorView& x, double factor);

/// Every number of x divided by the sum along dimension `dim` (negative ones count from the end).
Tensor normalized_by_sum(const TensorView& x, int dim = -1);

/// exp(x) divided by its sum along `dim`, as the formula says: from x = 710 on exp overflows and gives NaN.
Tensor softmax_naive(const TensorView& x, int dim = -1);

/// The same without overflow: subtracts the largest number of each line of x along `dim` first, which does not
/// change the result. A line of only -inf gives zeros.
Tensor softmax(const TensorView& x, int dim = -1);

/// Which keys a query may see when no query may look ahead, with rows and keys aligned as `causal` says: bool
/// [seqlen_q, seqlen_k], true = attend.
Tensor causal_mask(std::int64_t seqlen_q, std::int64_t seqlen_k, Causal causal = Causal::top_left);

/// The scores where the mask (bool, true = attend, broadcast from the right) is true, -inf elsewhere. It selects,
/// because multiplying by a mask of -inf, as some texts do, gives NaN for 0 * -inf.
Tensor masked(const TensorView& scores, const TensorView& mask);

/// The weights where `keep` (bool, of the same shape) is true, times 1 / (1 - p) so that the expected sum is the
/// same; 0 elsewhere. `p` is the probability of dropping, 0 <= p < 1.
Tensor dropout(const TensorView& weights, const TensorView& keep, double p);

/// The weighted sum of values [seqlen_k, head_dim_v] by each row of weights [seqlen_q, seqlen_k]: [seqlen_q,
/// head_dim_v].
Tensor context_vectors(const TensorView& weights, const TensorView& values);

/// All intermediate results of one call of attention(), in f64. "..." is batch and num_heads, only num_heads, or
/// nothing, depending on q's rank. A packed batch has the shapes given in attention.h: o [total_q, num_heads,
/// head_dim_v], lse [num_heads, total_q], the rest [num_heads, total_q, seqlen_k].
///
/// Keys that do not exist (beyond a document's end, or in a page beyond the length) have a score of -inf at every
/// stage and a weight of 0. Other hidden keys keep their raw and softcapped scores, regardless of what they
/// contain. Pages to the left of every row's window are read for these scores only where options.scores is given.
struct AttentionResult {
  Tensor o;        ///< the context vectors, in q's layout with head_dim_v
  Tensor lse;      ///< [..., seqlen_q]: natural logarithm of each softmax denominator, -inf where it is empty
  Tensor weights;  ///< [..., seqlen_q, seqlen_k]: the softmax; after dropout if options.weights_after_dropout
  Tensor scores;   ///< [..., seqlen_q, seqlen_k]: at the stage options.score_stage; raw by default
  Tensor logits;   ///< [..., seqlen_q, seqlen_k]: the input of the softmax, -inf where hidden
  /// As o: the weights times |v|, or with options.v_rotated times the norm of v's block. Rounding errors of o are
  /// proportional to it, not to o.
  Tensor bound;
  /// As scores: |scale| times the sum of |q| |k| over the dimensions, 0 where no key exists. Rounding errors of
  /// raw and softcapped scores are proportional to it.
  Tensor score_bound;
  /// As logits: |score|, or score_bound times the softcap's slope if that is larger, plus |what ALiBi and the mask
  /// add|; 0 where hidden. Rounding errors of a logit, and relative ones of its weight, are proportional to it.
  Tensor magnitudes;
  Tensor lse_bound;  ///< as lse: |lse| plus the magnitudes' mean by the weights; errors are proportional to it
};

/// One row of q by its indices: the batch entry (or document), the head and the row of that sequence.
struct RowIndex {
  std::int64_t batch = 0, head = 0, row = 0;
};

/// Attention with every option of saccade::attention(), on tensors of any element type. The pointers options.lse,
/// options.weights and options.scores, options.num_threads and options.score_block_effect have no effect here: the
/// return value holds all results. The score modifier gets one row at a time.
///
/// A logit of -inf hides its key, whichever step produced it. A hidden key is never multiplied, so its NaN and Inf
/// do not spread.
///
/// More precise than any kernel: computes in f64, or in long double where q, k or v is f64 (80 bits on x86; just
/// f64 on machines without a wider type). `precision`, f64 or f32, instead rounds every single operation to that
/// type: the same math as unfused code of that precision.
///
/// Throws std::invalid_argument as saccade::attention() does. Memory: three times seqlen_q * seqlen_k.
AttentionResult attention(const TensorView& q, const TensorView& k, const TensorView& v,
                          const AttentionOptions& options = {}, std::optional<DType> precision = {});

/// The same attention of q to k and v, with these options and this precision, for some rows only, in the order of
/// the list, for problems where all rows would need too much time or memory. o and bound are [rows, head_dim_v],
/// lse is [rows], the rest [rows, seqlen_k]. Throws std::invalid_argument for a row that does not exist.
AttentionResult attention_of_rows(const TensorView& q, const TensorView& k, const TensorView& v,
                                  const AttentionOptions& options, std::span<const RowIndex> rows,
                                  std::optional<DType> precision = {});

/// Roundings that naive code does in addition to its arithmetic, where a kernel may round too.
struct NaiveRounding {
  /// The element type of o, which is rounded to it once, at the end; default: the type of the arithmetic.
  std::optional<DType> o{};
  /// The type of the exponentials (relative to the row's largest logit) that are multiplied by v; default: the
  /// type of the arithmetic. bf16 where q, k and v are all bf16 and the machine multiplies bf16.
  std::optional<DType> exponentials{};
  /// The bits of queries, counted from the first one of the largest number of a row; default: those of their type.
  /// 23 where q is f32, k i8 or i4, and the machine multiplies integers, by three digits of 8 bits with signs.
  std::optional<int> query_bits{};
  /// The bits of weights times the scales of values, counted from the first one of the row's largest; default:
  /// those of the type of the arithmetic. 24 where the machine multiplies integers: q is f32, and v i8 or i4.
  std::optional<int> weight_bits{};
  /// The head dimension is summed in 24 orders, in 6 to 23 where there are more than 42 rows, in 2 from 4096 rows;
  /// and in at least so many.
  std::size_t min_orders = 2;
  /// The rows of attention_of_rows(), if it computed `exact`.
  std::span<const RowIndex> rows{};

  /// The coarsest type of the intermediate results of o: `coarsest` of compare(). q, k and v do not count, because
  /// they are exact inputs.
  DType coarsest() const;
};

/// The worst result of unfused code for the same problem, the `naive` of compare(): attention() in f32 (f64 where
/// q, k or v is f64), with the head dimension summed in several orders, and with the scale (and the transform that
/// options.k_rotated asks for) applied to the queries or later. For each element it returns the result farthest
/// from `exact`. With few rows, the error of a single order depends on luck: in one of ten cases its largest error
/// is below half of the usual one. `rounding`: what else is rounded. No logits, bounds and magnitudes.
AttentionResult naive_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                                const AttentionOptions& options, const AttentionResult& exact,
                                const NaiveRounding& rounding = {});

/// The gradients of a number with respect to the inputs of attention(): all f64, with the shapes of q, k, v and
/// the options. Gradients of options that are not given, and of a mask that is not a float mask, are empty.
using AttentionGradients = GradientsOf<Tensor>;

/// The gradients, and `bound`, the same sums over absolute values, with weights times 1 + |lse| / 32, because lse
/// is rounded, and a little more, because weights may be too small for the type: errors are proportional to it.
struct AttentionBackwardResult {
  AttentionGradients gradients, bound;
};

/// The gradients of attention(q, k, v, options) for `dout` and `dlse`, the gradients of a number with respect to o
/// and lse (in their shapes, any element type; without dlse: 0). Step by step, from the end, with w the weights, z
/// the factor of dropout and p the softmax:
///
///     dv_j = sum_i w_ij dout_i              dw_ij = dout_i . v_j            dp_ij = z_ij dw_ij
///     dlogit_ij = p_ij (dp_ij - sum_l p_il dp_il + dlse_i)                 dmask_ij = dlogit_ij
///     dscore_ij = dlogit_ij times the derivatives of score modifier and softcap
///     dq_i = scale sum_j dscore_ij k_j      dk_j = scale sum_i dscore_ij q_i
///
/// A hidden key is in no sum. `precision` and errors are those of attention(), but block_table is an error.
AttentionBackwardResult attention_backward(const TensorView& q, const TensorView& k, const TensorView& v,
                                           const TensorView& dout, const AttentionOptions& options = {},
                                           std::optional<DType> precision = {}, const TensorView& dlse = {});

/// Roundings that naive code does for gradients in addition to its arithmetic: each gradient is rounded to its
/// type at the end.
struct GradientRounding {
  std::optional<DType> dq{}, dk{}, dv{};  ///< their types; default: that of the arithmetic
  NaiveRounding forward{};                ///< of the forward pass's o, which dout . o reads
};
/// The worst gradients of unfused f32 code (f64 where q, k or v is f64) over several orders of summing the head
/// dimension, and `rounding`: the `naive` of compare(). For each element it returns the one farthest from `exact`.
/// dout and dlse are those of attention_backward().
AttentionGradients naive_attention_backward(const TensorView& q, const TensorView& k, const TensorView& v,
                                            const TensorView& dout, const AttentionOptions& options,
                                            const AttentionGradients& exact, const GradientRounding& rounding = {},
                                            const TensorView& dlse = {});

}  // namespace saccade::reference
#pragma GCC visibility pop
