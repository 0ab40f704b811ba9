// All steps of attention, for all rows or some of them, both exactly and as naive code computes them.
#include <algorithm>
#include <cmath>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "reference/arguments.h"
#include "reference/row.h"
#include "saccade/quantize.h"
#include "saccade/reference.h"

namespace saccade::reference {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw std::invalid_argument("[reference::attention] " + what);
}

/// Every row, head by head, in the order of lse and weights.
std::vector<RowIndex> all_rows(const Arguments& a) {
  std::vector<RowIndex> rows;
  const std::int64_t outer = a.is_packed ? a.num_heads : a.batch, inner = a.is_packed ? a.batch : a.num_heads;
  for (std::int64_t i = 0; i < outer; ++i) {
    for (std::int64_t j = 0; j < inner; ++j) {
      const std::int64_t batch = a.is_packed ? j : i, head = a.is_packed ? i : j;
      for (std::int64_t row = 0; row < a.sequences[static_cast<std::size_t>(batch)].seqlen_q; ++row)
        rows.push_back({batch, head, row});
    }
  }
  return rows;
}

void check_rows(std::span<const RowIndex> rows, const Arguments& a) {
  for (const RowIndex& index : rows) {
    const bool exists = index.batch >= 0 && index.batch < a.batch && index.head >= 0 && index.head < a.num_heads &&
                        index.row >= 0 && index.row < a.sequences[static_cast<std::size_t>(index.batch)].seqlen_q;
    if (!exists)
      refuse("there is no row " + std::to_string(index.row) + " of batch entry " + std::to_string(index.batch) +
             " and head " + std::to_string(index.head));
  }
}

/// Results of some rows: o and bound [rows, head_dim_v], lse [rows], the rest [rows, seqlen_k].
AttentionResult results_of(const Arguments& a, std::size_t count) {
  const auto rows = static_cast<std::int64_t>(count);
  AttentionResult result;
  result.o = Tensor(DType::f64, {rows, a.head_dim_v});
  result.lse = Tensor(DType::f64, {rows});
  result.weights = Tensor(DType::f64, {rows, a.seqlen_k});
  result.scores = Tensor(DType::f64, {rows, a.seqlen_k});
  return result;
}

/// The numbers of one row of a result.
template <class MaybeConstTensor>
auto row_of(MaybeConstTensor& result, std::size_t row) {
  const auto length = static_cast<std::size_t>(result.rank() == 1 ? 1 : result.shape(1));
  return result.template values<double>().subspan(row * length, length);
}

template <class T>
AttentionResult exact_rows(const Arguments& a, const AttentionOptions& options, std::span<const RowIndex> rows) {
  AttentionResult result = results_of(a, rows.size());
  result.logits = Tensor(DType::f64, result.weights.shape());
  result.bound = Tensor(DType::f64, result.o.shape());
  result.score_bound = Tensor(DType::f64, result.weights.shape());
  result.magnitudes = Tensor(DType::f64, result.weights.shape());
  result.lse_bound = Tensor(DType::f64, result.lse.shape());
  const DotProduct dot_product = usual_dot_product(a.head_dim);
  const NaiveRounding no_rounding;
  RowOfAttention<T> row(a, options, no_rounding);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    row.at(rows[i]);
    row.attend(dot_product);
    row.find_bounds();
    std::ranges::copy(row.o, row_of(result.o, i).begin());
    row_of(result.lse, i).front() = static_cast<double>(row.lse);
    std::ranges::copy(options.weights_after_dropout ? row.weights : row.probabilities,
                      row_of(result.weights, i).begin());
    std::ranges::copy(row.scores(), row_of(result.scores, i).begin());
    std::ranges::copy(row.logits, row_of(result.logits, i).begin());
    std::ranges::copy(row.bound, row_of(result.bound, i).begin());
    std::ranges::copy(row.score_bound, row_of(result.score_bound, i).begin());
    std::ranges::copy(row.magnitudes, row_of(result.magnitudes, i).begin());
    row_of(result.lse_bound, i).front() = static_cast<double>(row.lse_bound);
  }
  return result;
}

/// Replaces each number by that of `other` if it is farther from the exact number.
template <class T>
void take_farther(std::span<double> worst, std::span<const T> other, std::span<const double> exact) {
  for (std::size_t i = 0; i < worst.size(); ++i) {
    const auto number = static_cast<double>(other[i]);
    if (std::abs(number - exact[i]) > std::abs(worst[i] - exact[i])) worst[i] = number;
  }
}

/// The same of o, lse, weights and scores.
void take_farther(AttentionResult& worst, const AttentionResult& other, const AttentionResult& exact) {
  using Result = Tensor AttentionResult::*;
  for (const Result result :
       {&AttentionResult::o, &AttentionResult::lse, &AttentionResult::weights, &AttentionResult::scores})
    take_farther<double>((worst.*result).values<double>(), (other.*result).values<double>(),
                         (exact.*result).values<double>());
}

template <class T>
AttentionResult naive_rows(const Arguments& a, const AttentionOptions& options, std::span<const RowIndex> rows,
                           const AttentionResult& exact, const NaiveRounding& rounding) {
  AttentionResult worst = results_of(a, rows.size());
  const std::vector<DotProduct> ways = naive_dot_products(a.head_dim, rows.size(), rounding.min_orders);
  RowOfAttention<T> row(a, options, rounding);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    row.at(rows[i]);
    for (const DotProduct& way : ways) {
      row.attend(way);
      const auto take = [&](Tensor& to, std::span<const T> numbers, const Tensor& wanted) {
        if (&way == &ways.front()) {
          std::ranges::copy(numbers, row_of(to, i).begin());
        } else {
          take_farther<T>(row_of(to, i), numbers, row_of(wanted, i));
        }
      };
      take(worst.o, row.o, exact.o);
      take(worst.lse, std::span(&row.lse, 1), exact.lse);
      take(worst.weights, options.weights_after_dropout ? row.weights : row.probabilities, exact.weights);
      take(worst.scores, row.scores(), exact.scores);
    }
  }
  return worst;
}

/// The results of all rows in the shapes that attention() writes.
AttentionResult in_shape_of(const TensorView& q, const Arguments& a, const AttentionOptions& options,
                            AttentionResult result) {
  const Shape in_order = a.is_packed ? Shape{a.num_heads, a.q.shape[2]} : Shape{a.batch, a.num_heads, a.seqlen_q};
  const auto with = [](Shape shape, std::int64_t last) {
    shape.push_back(last);
    return shape;
  };
  for (Tensor* output : {&result.o, &result.bound}) {
    if (output->rank() == 0) continue;
    *output = std::move(*output).reshaped(with(in_order, a.head_dim_v));
    const bool rows_go_first = a.is_packed || options.layout == Layout::bshd;
    if (rows_go_first) *output = Tensor::copy_of(output->view().transposed(-2, -3));
    *output = std::move(*output).reshaped(with(Shape(q.dims().begin(), q.dims().end() - 1), a.head_dim_v));
  }
  const Shape rows(in_order.begin() + (a.is_packed ? 0 : 4 - q.rank), in_order.end());
  for (Tensor* of_row : {&result.lse, &result.lse_bound}) {
    if (of_row->rank() > 0) *of_row = std::move(*of_row).reshaped(rows);
  }
  for (Tensor* square :
       {&result.weights, &result.scores, &result.logits, &result.score_bound, &result.magnitudes}) {
    if (square->rank() > 0) *square = std::move(*square).reshaped(with(rows, a.seqlen_k));
  }
  return result;
}

/// The inverse: the o, lse, weights and scores of such a result, as results of all rows.
AttentionResult as_rows(const AttentionResult& result, const Arguments& a, const AttentionOptions& options) {
  const auto rows = static_cast<std::int64_t>(result.lse.size());
  const bool is_rank_2 = result.lse.rank() == 1, is_swapped = a.is_packed || options.layout == Layout::bshd;
  AttentionResult flat;
  flat.o = is_swapped && !is_rank_2 ? Tensor::copy_of(result.o.view().transposed(-2, -3)) : result.o;
  flat.o = std::move(flat.o).reshaped({rows, a.head_dim_v});
  flat.lse = result.lse.reshaped({rows});
  flat.weights = result.weights.reshaped({rows, a.seqlen_k});
  flat.scores = result.scores.reshaped({rows, a.seqlen_k});
  return flat;
}

bool is_any_f64(const TensorView& q, const TensorView& k, const TensorView& v) {
  return q.dtype == DType::f64 || k.dtype == DType::f64 || v.dtype == DType::f64;
}

}  // namespace

AttentionResult attention_of_rows(const TensorView& q, const TensorView& k, const TensorView& v,
                                  const AttentionOptions& options, std::span<const RowIndex> rows,
                                  std::optional<DType> precision) {
  if (precision && *precision != DType::f64 && *precision != DType::f32)
    refuse("precision is " + std::string(name_of(*precision)) + ", not f64 or f32");
  const Arguments a = checked_arguments(q, k, v, options);
  check_rows(rows, a);
  if (precision == DType::f32) return exact_rows<float>(a, options, rows);
  if (precision == DType::f64 || !is_any_f64(q, k, v)) return exact_rows<double>(a, options, rows);
  return exact_rows<long double>(a, options, rows);
}

AttentionResult attention(const TensorView& q, const TensorView& k, const TensorView& v,
                          const AttentionOptions& options, std::optional<DType> precision) {
  const Arguments a = checked_arguments(q, k, v, options);
  return in_shape_of(q, a, options, attention_of_rows(q, k, v, options, all_rows(a), precision));
}

DType NaiveRounding::coarsest() const {
  if (o == DType::bf16 || exponentials == DType::bf16) return DType::bf16;
  if (o == DType::f16 || exponentials == DType::f16) return DType::f16;
  return o.value_or(DType::f32);
}

AttentionResult naive_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                                const AttentionOptions& options, const AttentionResult& exact,
                                const NaiveRounding& rounding) {
  const Arguments a = checked_arguments(q, k, v, options, DType::f32);
  check_rows(rounding.rows, a);
  const bool is_all = rounding.rows.empty();
  const std::vector<RowIndex> all = is_all ? all_rows(a) : std::vector<RowIndex>();
  const std::span<const RowIndex> rows = is_all ? all : rounding.rows;
  const AttentionResult wanted = is_all ? as_rows(exact, a, options) : exact;
  const auto computed = [&](const Arguments& arguments, const AttentionOptions& with) {
    return is_any_f64(q, k, v) ? naive_rows<double>(arguments, with, rows, wanted, rounding)
                               : naive_rows<float>(arguments, with, rows, wanted, rounding);
  };
  AttentionResult worst = computed(a, options);
  if (options.k_rotated) {  // some code transforms the keys back, other code the queries
    const Tensor transformed = hadamard(q);
    AttentionOptions plain = options;
    plain.k_rotated = false;
    take_farther(worst, computed(checked_arguments(transformed, k, v, plain, DType::f32), plain), wanted);
  }
  return is_all ? in_shape_of(q, a, options, std::move(worst)) : std::move(worst);
}

}  // namespace saccade::reference
