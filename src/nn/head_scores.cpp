#include "saccade/head_scores.h"

#include <array>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <vector>

#include "core/check.h"

namespace saccade {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

/// Throws for weights that are too long, or whose numbers cannot be read.
void check_numbers(const char* function, const TensorView& weights) {
  for (const std::int64_t length : weights.dims())
    if (length > kMaxLength) refuse(function, "no dimension of weights may be longer than 2^40");
  check_data(function, "weights", weights);
  check_has_numbers(function, "weights", weights);
}

void check_weights(const char* function, const TensorView& weights) {
  if (weights.rank != 4 || weights.shape[2] != weights.shape[3])
    refuse(function, "weights must be [batch, num_heads, seqlen, seqlen], got ", to_string(weights.dims()));
  check_numbers(function, weights);
}

/// For each token, the position after its only earlier occurrence; -1 if there is none, or several.
std::vector<std::int64_t> followers_of(std::span<const std::int64_t> tokens) {
  struct Seen {
    std::int64_t last = 0, times = 0;
  };
  std::unordered_map<std::int64_t, Seen> seen;
  std::vector<std::int64_t> followers;
  for (const std::int64_t token : tokens) {
    Seen& earlier = seen[token];
    followers.push_back(earlier.times == 1 ? earlier.last + 1 : -1);
    earlier.last = std::ssize(followers) - 1, ++earlier.times;
  }
  return followers;
}

/// The mean weight of the queries that count.
struct Mean {
  double sum = 0.0;
  std::int64_t count = 0;

  void add(double weight) { sum += weight, ++count; }
  double value() const { return count > 0 ? sum / static_cast<double>(count) : kNone; }
};

/// For each head, the mean weight that queries give to the key key_of(batch entry, query); -1: the query does
/// not count.
template <class KeyOf>
Tensor mean_weights(const TensorView& weights, const KeyOf& key_of) {
  const std::int64_t num_heads = weights.shape[1];
  std::vector<Mean> means(static_cast<std::size_t>(num_heads));
  for (std::int64_t b = 0; b < weights.shape[0]; ++b) {
    for (std::int64_t i = 0; i < weights.shape[2]; ++i) {
      const std::int64_t key = key_of(b, i);
      if (key < 0) continue;
      for (std::int64_t head = 0; head < num_heads; ++head)
        means[static_cast<std::size_t>(head)].add(value_at(weights, std::array{b, head, i, key}));
    }
  }
  Tensor result(DType::f64, {num_heads});
  for (std::int64_t head = 0; head < num_heads; ++head)
    result.at<double>(head) = means[static_cast<std::size_t>(head)].value();
  return result;
}

}  // namespace

Tensor induction_scores(const TensorView& weights, const TensorView& tokens) {
  check_weights("induction_scores", weights);
  check_dtype("induction_scores", "tokens", tokens, DType::i64);
  check_shape("induction_scores", "tokens", tokens, {weights.shape[0], weights.shape[2]});
  check_data("induction_scores", "tokens", tokens);
  const Tensor rows = Tensor::copy_of(tokens);
  std::vector<std::vector<std::int64_t>> followers;
  for (std::int64_t b = 0; b < weights.shape[0]; ++b)
    followers.push_back(followers_of(rows.values<std::int64_t>().subspan(
        static_cast<std::size_t>(b * weights.shape[2]), static_cast<std::size_t>(weights.shape[2]))));
  return mean_weights(weights, [&](std::int64_t b, std::int64_t i) {
    return followers[static_cast<std::size_t>(b)][static_cast<std::size_t>(i)];
  });
}

Tensor previous_token_scores(const TensorView& weights) {
  check_weights("previous_token_scores", weights);
  return mean_weights(weights, [](std::int64_t, std::int64_t i) { return i - 1; });
}

HeadStatistics head_statistics(const std::function<double(std::int64_t query, std::int64_t key)>& weight,
                               std::span<const std::int64_t> tokens) {
  if (!weight) refuse("head_statistics", "weight must be a function, but it is empty");
  const std::vector<std::int64_t> followers = followers_of(tokens);
  Mean previous, first, self, induction;
  for (std::int64_t i = 0; i < std::ssize(tokens); ++i) {
    self.add(weight(i, i));
    if (i > 0) {
      previous.add(weight(i, i - 1));
      first.add(weight(i, 0));
    }
    if (const std::int64_t follower = followers[static_cast<std::size_t>(i)]; follower >= 0)
      induction.add(weight(i, follower));
  }
  return {.previous = previous.value(),
          .first = first.value(),
          .self = self.value(),
          .induction = induction.value(),
          .entropy = kNone,
          .distance = kNone};
}

HeadStatistics head_statistics(const TensorView& weights, std::span<const std::int64_t> tokens) {
  constexpr const char* kFunction = "head_statistics";
  if (weights.rank != 2) refuse(kFunction, "weights must be [queries, keys], got ", to_string(weights.dims()));
  check_numbers(kFunction, weights);
  const std::int64_t count = std::ssize(tokens);
  if (count > 0) check_shape(kFunction, "weights", weights, {count, count});
  HeadStatistics result = head_statistics(
      [&](std::int64_t i, std::int64_t j) {
        return value_at(weights, std::array{i, j});
      },
      tokens);
  Mean first, entropy, distance;
  for (std::int64_t i = 0; i < weights.shape[0]; ++i) {
    const Tensor row = Tensor::copy_of(weights.select(0, i), DType::f64);
    double row_entropy = 0.0, row_distance = 0.0;
    for (std::int64_t j = 0; j < row.size(); ++j) {
      const double weight = row.at<double>(j);
      if (weight > 0) row_entropy -= weight * std::log(weight);
      row_distance += weight * static_cast<double>(std::abs(i - j));
    }
    if (row.size() > 0) first.add(row.at<double>(0));
    entropy.add(row_entropy);
    distance.add(row_distance);
  }
  result.entropy = entropy.value();
  if (count > 0)
    result.distance = distance.value();
  else
    result.first = first.value();
  return result;
}

}  // namespace saccade
