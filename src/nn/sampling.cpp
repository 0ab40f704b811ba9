#include "saccade/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/check.h"

namespace saccade {
namespace {

constexpr const char* kSamplerName = "TokenSampler";

}  // namespace

TokenSampler::TokenSampler(const SamplingOptions& options)
    : options_(options), generator_(derived_seed(options.seed, 0)) {
  if (!(options.temperature >= 0.0 && std::isfinite(options.temperature)))
    refuse(kSamplerName, "temperature must be a number of at least 0, got ", options.temperature);
  if (options.top_k < 0) refuse(kSamplerName, "top_k must not be negative, got ", options.top_k);
  if (!(options.top_p > 0.0 && options.top_p <= 1.0))
    refuse(kSamplerName, "top_p must be above 0 and at most 1, got ", options.top_p);
}

std::int64_t TokenSampler::next(std::span<const float> logits) {
  if (logits.empty()) refuse(kSamplerName, "there are no logits");
  if (options_.temperature == 0.0) return std::ranges::max_element(logits) - logits.begin();

  std::vector<std::int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto logit = [&](std::int64_t token) { return logits[static_cast<std::size_t>(token)]; };
  if (options_.top_k > 0 && options_.top_k < std::ssize(order)) {
    // Equal logits are ordered by token, as in a stable sort.
    std::ranges::partial_sort(order, order.begin() + options_.top_k, [&](std::int64_t a, std::int64_t b) {
      return logit(a) != logit(b) ? logit(a) > logit(b) : a < b;
    });
    order.resize(static_cast<std::size_t>(options_.top_k));
  } else {
    std::ranges::stable_sort(order, std::greater(), logit);
  }

  std::vector<double> sums;
  sums.reserve(order.size());
  double sum = 0.0;
  const double largest = logit(order.front());
  for (const std::int64_t token : order)
    sums.push_back(sum += std::exp((logit(token) - largest) / options_.temperature));
  if (options_.top_p < 1.0) {
    const auto last = std::ranges::lower_bound(sums, options_.top_p * sum);
    if (last != sums.end()) sums.erase(last + 1, sums.end());
    sum = sums.back();
  }
  const double draw = static_cast<double>(generator_.next64() >> 11) * 0x1p-53 * sum;
  const auto at = std::ranges::upper_bound(sums, draw) - sums.begin();
  return order[std::min(static_cast<std::size_t>(at), sums.size() - 1)];
}

}  // namespace saccade
