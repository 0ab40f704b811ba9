#include "cases/attention_case.h"

#include <saccade/decode.h>
#include <saccade/runtime.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

#include "cases/options.h"

namespace saccade::cases {
namespace {

/// Orders of summation that decide whether a result is wrong or the usual few were lucky.
constexpr std::size_t kOrdersInDoubt = 64;

void clear(AttentionCase& c) {
  c.o.clear();
  for (Tensor* result : {&c.lse, &c.weights, &c.scores}) {
    if (result->rank() > 0) fill(*result, std::numeric_limits<double>::quiet_NaN());
  }
}

std::string shape_text(const char* name, const ScatteredTensor& tensor) {
  return std::string(name) + " " + std::string(name_of(tensor.view().dtype)) + " " +
         to_string(tensor.view().dims()) + ", ";
}

}  // namespace

reference::NaiveRounding naive_rounding(const TensorView& q, const TensorView& k, const TensorView& v,
                                        const TensorView& o) {
  const auto multiplies = [](DType dtype) { return dtype == DType::bf16 || is_quantized(dtype); };
  const bool are_bf16 = q.dtype == DType::bf16 && multiplies(k.dtype) && multiplies(v.dtype);
  reference::NaiveRounding rounding{
      .o = o.dtype, .exponentials = {}, .query_bits = {}, .weight_bits = {}, .rows = {}};
  if (are_bf16 && multiplies_bf16(active_isa())) rounding.exponentials = DType::bf16;
  const auto is_integer = [](DType dtype) { return dtype == DType::i8 || dtype == DType::i4; };
  if (q.dtype == DType::f32 && multiplies_bf16(active_isa())) {
    if (is_integer(k.dtype)) rounding.query_bits = 23;
    if (is_integer(v.dtype)) rounding.weight_bits = 24;
  }
  return rounding;
}

bool has_plain_keys(const AttentionCase& c) {
  return !is_quantized(c.k.view().dtype) && !is_quantized(c.v.view().dtype) && !c.options.k_rotated &&
         !c.options.v_rotated;
}

std::string describe(const AttentionCase& c) {
  std::string line = shape_text("q", c.q) + shape_text("k", c.k) + shape_text("v", c.v) + shape_text("o", c.o);
  for (const AttentionOption& option : kAttentionOptions) {
    if (!is_set(option, c.options)) continue;
    const std::string value = value_text(option, c.options);
    line += std::string(option.name) + (value.empty() ? "" : " ") + value + ", ";
  }
  return line + (c.score_function ? c.score_function->name() : "no score function");
}

Tensor bound_of_weights(const reference::AttentionResult& exact, DType dtype) {
  const auto underflow = [](auto number) {
    using Limits = std::numeric_limits<decltype(number)>;
    return double{Limits::min()} / (kForward.eps_factor * double{Limits::epsilon()});
  };
  const double least = dtype == DType::f64 ? underflow(double{}) : underflow(float{});
  Tensor bound = exact.weights;
  const std::span<double> weights = bound.values<double>();
  const std::span<const double> magnitudes = exact.magnitudes.values<double>(),
                                lse = exact.lse_bound.values<double>();
  const std::size_t keys = lse.empty() ? 0 : weights.size() / lse.size();
  for (std::size_t i = 0; i < weights.size(); ++i)
    if (weights[i] > 0) weights[i] = std::max(weights[i] * (1 + magnitudes[i] + lse[i / keys]), least);
  return bound;
}

namespace {

/// The same for scores of a stage; of probabilities, themselves.
Tensor bound_of_scores(const reference::AttentionResult& exact, ScoreStage stage) {
  if (stage == ScoreStage::probabilities) return exact.scores;
  Tensor bound = exact.score_bound;
  if (stage != ScoreStage::biased) return bound;
  const std::span<double> scores = bound.values<double>();
  const std::span<const double> magnitudes = exact.magnitudes.values<double>();
  for (std::size_t i = 0; i < scores.size(); ++i) scores[i] += magnitudes[i];
  return bound;
}

}  // namespace

CheckedCase::CheckedCase(AttentionCase& checked, std::vector<reference::RowIndex> rows)
    : case_(checked), rows_(std::move(rows)) {
  const AttentionCase& c = case_;
  exact_ = rows_.empty() ? reference::attention(c.q.view(), c.k.view(), c.v.view(), c.options)
                         : reference::attention_of_rows(c.q.view(), c.k.view(), c.v.view(), c.options, rows_);
}

const CheckedCase::Naive& CheckedCase::naive_of_active_isa(std::size_t min_orders) {
  const AttentionCase& c = case_;
  reference::NaiveRounding rounding = naive_rounding(c.q.view(), c.k.view(), c.v.view(), c.o.view());
  rounding.min_orders = min_orders;
  rounding.rows = rows_;
  std::unique_ptr<Naive>& naive =
      rounding.exponentials || rounding.query_bits || rounding.weight_bits ? naive_rounded_ : naive_;
  if (naive && naive->rounding.min_orders >= min_orders) return *naive;
  naive = std::make_unique<Naive>();
  naive->rounding = rounding;
  naive->result =
      reference::naive_attention(c.q.view(), c.k.view(), c.v.view(), c.options, exact_, naive->rounding);
  return *naive;
}

Tensor CheckedCase::rows_of_o() const {
  const TensorView o = std::as_const(case_.o).view();
  Tensor rows(o.dtype, {static_cast<std::int64_t>(rows_.size()), o.shape[o.rank - 1U]});
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const auto [batch, head, row] = rows_[i];
    const TensorView entry = is_packed() ? o : o.select(0, batch);
    const bool rows_go_first = is_packed() || case_.options.layout == Layout::bshd;
    const TensorView heads = rows_go_first ? entry.transposed(0, 1) : entry;
    copy(heads.select(0, head).select(0, first_row_of(batch) + row),
         rows.mutable_view().select(0, static_cast<std::int64_t>(i)));
  }
  return rows;
}

Tensor CheckedCase::rows_of_lse() const {
  Tensor rows(DType::f64, {static_cast<std::int64_t>(rows_.size())});
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const auto [batch, head, row] = rows_[i];
    const TensorView entry = is_packed() ? case_.lse : case_.lse.view().select(0, batch);
    rows.values<double>()[i] = value_at(entry, std::array{head, first_row_of(batch) + row});
  }
  return rows;
}

bool CheckedCase::is_packed() const { return static_cast<bool>(case_.options.cu_seqlens_q); }

std::int64_t CheckedCase::first_row_of(std::int64_t batch) const {
  if (!is_packed()) return 0;
  return static_cast<std::int64_t>(value_at(case_.options.cu_seqlens_q, std::array{batch}));
}

std::vector<Finding> CheckedCase::compare_last(const std::string& function) {
  const auto holds = [](const Finding& finding) { return finding.comparison.holds; };
  std::vector<Finding> findings = compare_last_with(naive_of_active_isa(), function);
  if (std::ranges::all_of(findings, holds)) return findings;
  return compare_last_with(naive_of_active_isa(kOrdersInDoubt), function);
}

std::vector<Finding> CheckedCase::compare_last_with(const Naive& naive, const std::string& function) {
  std::vector<Finding> findings;
  const AttentionCase& c = case_;
  if (c.o.written() > c.o.view().size()) throw std::runtime_error(function + "() wrote outside the elements of o");
  const auto compared = [&](const char* result, const TensorView& out, const Expected& expected) {
    findings.push_back({std::string(result) + " of " + function + "()", compare(out, expected)});
  };
  const DType coarsest = naive.rounding.coarsest();
  if (!rows_.empty()) {
    compared("o", rows_of_o(), {exact_.o, naive.result.o, exact_.bound, coarsest});
    if (c.options.lse)
      compared("lse", rows_of_lse(), {exact_.lse, naive.result.lse, exact_.lse_bound, c.lse.dtype()});
    return findings;
  }
  compared("o", c.o.view(), {exact_.o, naive.result.o, exact_.bound, coarsest});
  if (c.options.lse) compared("lse", c.lse, {exact_.lse, naive.result.lse, exact_.lse_bound});
  if (c.options.weights)
    compared("weights", c.weights,
             {exact_.weights, naive.result.weights, bound_of_weights(exact_, c.weights.dtype())});
  if (c.options.scores) {
    compared("scores", c.scores,
             {exact_.scores, naive.result.scores, bound_of_scores(exact_, c.options.score_stage)});
  }
  return findings;
}

std::vector<Finding> CheckedCase::run() {
  AttentionCase& c = case_;
  clear(c);
  attention(c.q.view(), c.k.view(), c.v.view(), c.o.view(), c.options);
  std::vector<Finding> findings = compare_last("attention");
  if (!c.has_few_rows) return findings;
  clear(c);
  decode(c.q.view(), c.k.view(), c.v.view(), c.o.view(), c.options);
  for (Finding& finding : compare_last("decode")) findings.push_back(std::move(finding));
  return findings;
}

}  // namespace saccade::cases
