#include "cases/inspection_case.h"

#include <cmath>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>

#include "cases/random.h"

namespace saccade::cases {
namespace {

AttentionOptions as_inspected(AttentionOptions options) {
  options.lse = {};
  options.dropout_p = 0.0;
  return options;
}

std::int64_t rows_of_q(const AttentionCase& c) {
  const TensorView q = c.q.view();
  if (c.options.cu_seqlens_q || q.rank == 2) return q.shape[0];
  return q.shape[q.rank - (c.options.layout == Layout::bshd ? 3U : 2U)];
}

/// The bound of the entropies, sums of w |ln w|, which change by 1 + |ln w| times what w does.
Tensor bound_of_entropy(const Tensor& weights, const Tensor& bounds, const Shape& shape) {
  Tensor result(DType::f64, shape);
  const std::span<double> sums = result.values<double>();
  const std::size_t keys = sums.empty() ? 0 : weights.values<double>().size() / sums.size();
  for (std::size_t i = 0; i < keys * sums.size(); ++i) {
    const double w = weights.values<double>()[i];
    if (w > 0) sums[i / keys] += bounds.values<double>()[i] * (1 + std::abs(std::log(w)));
  }
  return result;
}

}  // namespace

void make_inspection(AttentionCase& c) {
  c.options.weights = c.options.scores = {};
  c.options.v_scale = c.options.k_scale;
  c.options.v_multipliers = c.options.k_multipliers;
  c.options.v_rotated = c.options.k_rotated;
}

InspectOptions draw_inspection(const AttentionCase& c, std::uint64_t seed) {
  Random random(seed);
  InspectOptions wanted{.top_k = random.uniform(0, 9),
                        .index_dtype = random.pick({DType::i64, DType::i32}),
                        .entropy = true,
                        .max_weight = true,
                        .received = true,
                        .distance = true,
                        .pool_rows = random.uniform(1, 41),
                        .pool_keys = random.uniform(1, 41),
                        .pooling = random.pick({Pooling::mean, Pooling::max})};
  for (std::int64_t row = 0; row < rows_of_q(c); ++row)
    if (random.chance(0.1)) wanted.rows.push_back(row);
  random.shuffle(wanted.rows);
  return wanted;
}

CheckedInspection::CheckedInspection(const TensorView& q, const TensorView& k, const InspectOptions& wanted,
                                     const AttentionOptions& options)
    : q_(q),
      k_(k),
      wanted_(wanted),
      options_(options),
      exact_(reference::attention(q, k, k, as_inspected(options))),
      naive_(reference::naive_attention(q, k, k, as_inspected(options), exact_)),
      bound_(bound_of_weights(exact_, q.dtype)),
      sequences_(q, k, exact_.weights, options) {}

std::vector<Finding> CheckedInspection::run() {
  const Inspection found = inspect(q_, k_, wanted_, options_);
  return q_.dtype == DType::f64 ? compare_with(found, in_f64_) : compare_with(found, in_f32_);
}

template <class Naive>
std::vector<Finding> CheckedInspection::compare_with(const Inspection& found,
                                                     std::optional<All<Naive>>& statistics) const {
  if (!statistics)
    statistics.emplace(All<Naive>{Statistics<long double>(exact_.weights, sequences_, wanted_, found),
                                  Statistics<Naive>(naive_.weights, sequences_, wanted_, found),
                                  Statistics<long double>(bound_, sequences_, wanted_, found)});
  return compare(found, *statistics);
}

template <class Naive>
std::vector<Finding> CheckedInspection::compare(const Inspection& found, const All<Naive>& statistics) const {
  std::vector<Finding> findings;
  const auto& [exact, naive, bound] = statistics;
  const auto compared = [&](const char* name, const TensorView& out, const Expected& expected) {
    if (out) findings.push_back({std::string(name) + " of inspect()", saccade::compare(out, expected)});
  };
  compared("lse", options_.lse, {exact_.lse, naive_.lse, exact_.lse_bound});
  compared("rows", found.rows, {exact.rows, naive.rows, bound.rows});
  compared("top_weights", found.top_weights, {exact.top_weights, naive.top_weights, bound.top_weights});
  compared("entropy", found.entropy,
           {exact.entropy, naive.entropy, bound_of_entropy(exact_.weights, bound_, found.entropy.shape())});
  compared("max_weight", found.max_weight, {exact.max_weight, naive.max_weight, bound.max_weight});
  compared("received", found.received, {exact.received, naive.received, bound.received});
  compared("distance", found.distance, {exact.distance, naive.distance, bound.distance});
  compared("mean_distance", found.mean_distance,
           {exact.mean_distance(found), naive.mean_distance(found), bound.mean_distance(found)});
  compared("pooled", found.pooled, {exact.pooled, naive.pooled, bound.pooled});
  if (wanted_.top_k > 0) findings.push_back(compare_top_keys(found, statistics));
  return findings;
}

/// Each key must be the row's n-th best by its weight, and equal weights must be in order of index.
template <class Naive>
Finding CheckedInspection::compare_top_keys(const Inspection& found, const All<Naive>& statistics) const {
  Tensor of_keys(DType::f64, found.top_weights.shape()), naive_of_keys(of_keys), bound_of_keys(of_keys);
  const Tensor keys = Tensor::copy_of(found.top_keys, DType::i64);
  const Tensor weights = Tensor::copy_of(found.top_weights, DType::f64);
  const auto key_at = [&](std::size_t i) { return keys.values<std::int64_t>()[i]; };
  const auto weight_at = [&](std::size_t i) { return weights.values<double>()[i]; };
  for (std::size_t i = 0; i < static_cast<std::size_t>(keys.size()); ++i) {
    const std::int64_t row = static_cast<std::int64_t>(i) / wanted_.top_k, key = key_at(i);
    of_keys.values<double>()[i] = key < 0 ? 0.0 : static_cast<double>(statistics.exact.weight(row, key));
    naive_of_keys.values<double>()[i] = key < 0 ? 0.0 : static_cast<double>(statistics.naive.weight(row, key));
    bound_of_keys.values<double>()[i] = key < 0 ? 0.0 : static_cast<double>(statistics.bound.weight(row, key));
    bool is_in_order = (key < 0) == (weight_at(i) == 0.0);
    if (static_cast<std::int64_t>(i) % wanted_.top_k > 0) {
      const bool is_tie = weight_at(i - 1) == weight_at(i) && key >= 0;
      is_in_order = is_in_order && weight_at(i - 1) >= weight_at(i) && !(is_tie && key_at(i - 1) >= key);
    }
    if (!is_in_order)
      throw std::runtime_error("inspect(): the top keys of row " + std::to_string(row) + " are not in order");
  }
  return {"top_keys of inspect()", saccade::compare(found.top_weights, {of_keys, naive_of_keys, bound_of_keys})};
}

}  // namespace saccade::cases
