// One attention problem with all its tensors, and its comparison with the reference.
#pragma once

#include <saccade/attention.h>
#include <saccade/compare.h>
#include <saccade/reference.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cases/scattered_tensor.h"
#include "cases/score_functions.h"

namespace saccade::cases {

/// The views in `options` refer to the tensors in this struct. It may be moved, but not copied.
struct AttentionCase {
  ScatteredTensor q, k, v, o;
  Tensor mask, block_mask, kv_lengths, kv_starts, query_offsets, cu_seqlens_q, cu_seqlens_k, block_table;
  Tensor lse, weights, scores;
  std::vector<Tensor> head_numbers;  // of each option with one number per head, such as alibi_slopes
  std::array<Tensor, 4> scales;      // k_scale, v_scale, k_multipliers, v_multipliers
  std::unique_ptr<ScoreFunction> score_function;
  AttentionOptions options;
  bool has_few_rows = false;  ///< also calls decode()
};

/// Whether k and v are plain numbers, which gradients, states and distributed calls need: not quantized or
/// rotated.
bool has_plain_keys(const AttentionCase& c);

/// Types, shapes and options in one line.
std::string describe(const AttentionCase& c);

/// The roundings of o that naive code may do with these tensors on the active instruction set.
reference::NaiveRounding naive_rounding(const TensorView& q, const TensorView& k, const TensorView& v,
                                        const TensorView& o);

/// The bound of compare() for weights: a weight's relative error is that of exp(), plus the errors of its logit
/// and of lse; one below the smallest normal number of their element type may be 0.
Tensor bound_of_weights(const reference::AttentionResult& exact, DType dtype);

/// One result that was compared.
struct Finding {
  std::string result;  ///< "o of attention()", "lse of decode()"
  Comparison comparison;
};

/// A case and the reference's results for it, computed once for any number of checks.
class CheckedCase {
 public:
  /// `rows`: the rows to compare, if the reference would take too long for all of them (for a case of rank 4 or a
  /// packed case); empty: all rows, and weights and scores too. The case must outlive this object.
  explicit CheckedCase(AttentionCase& checked, std::vector<reference::RowIndex> rows = {});

  /// Calls attention(), and decode() if there are few rows, on the active instruction set and compares every
  /// result. Throws std::runtime_error if memory outside o was written.
  std::vector<Finding> run();

  /// Compares the results of the last call of `function`, "attention" or "decode", in the case. Where one is too
  /// far off, naive code is given more orders of summation: the largest error of the usual few depends on luck.
  /// Throws as run() does.
  std::vector<Finding> compare_last(const std::string& function);

 private:
  struct Naive {
    reference::NaiveRounding rounding;
    reference::AttentionResult result;
  };

  const Naive& naive_of_active_isa(std::size_t min_orders = 2);
  std::vector<Finding> compare_last_with(const Naive& naive, const std::string& function);
  bool is_packed() const;
  std::int64_t first_row_of(std::int64_t batch) const;
  Tensor rows_of_o() const;    // [rows, head_dim_v]
  Tensor rows_of_lse() const;  // [rows]

  AttentionCase& case_;
  std::vector<reference::RowIndex> rows_;
  reference::AttentionResult exact_;
  std::unique_ptr<Naive> naive_, naive_rounded_;
};

}  // namespace saccade::cases
