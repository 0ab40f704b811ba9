#include "saccade/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "core/check.h"

namespace saccade {
namespace {

constexpr const char* kSamplerName = "TokenSampler";

}  // namespace

TokenSampler::TokenSampler(GPTModel& model, const SamplingOptions& options)
    : model_(model), options_(options), generator_(derived_seed(options.seed, 0)) {
  if (!(options.temperature >= 0.0 && std::isfinite(options.temperature)))
    refuse(kSamplerName, "temperature must be a number of at least 0, got ", options.temperature);
  if (options.top_k < 0) refuse(kSamplerName, "top_k must not be negative, got ", options.top_k);
}

std::int64_t TokenSampler::next(std::span<const std::int64_t> tokens) {
  if (tokens.empty()) refuse(kSamplerName, "at least one token is needed to begin with");
  const auto seen =
      std::min<std::size_t>(tokens.size(), static_cast<std::size_t>(model_.options().context_length));
  const std::span<const std::int64_t> last = tokens.last(seen);
  const Tensor logits = model_.forward(TensorView(last.data(), {1, static_cast<std::int64_t>(seen)}));
  const auto vocab_size = static_cast<std::size_t>(model_.options().vocab_size);
  const std::span<const float> row = logits.values<float>().last(vocab_size);

  std::vector<std::int64_t> order(vocab_size);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater(),
                           [&](std::int64_t t) { return row[static_cast<std::size_t>(t)]; });
  if (options_.temperature == 0.0) return order.front();
  if (options_.top_k > 0) order.resize(std::min(order.size(), static_cast<std::size_t>(options_.top_k)));

  std::vector<double> sums;
  sums.reserve(order.size());
  double sum = 0.0;
  const double largest = row[static_cast<std::size_t>(order.front())];
  for (const std::int64_t token : order) {
    sums.push_back(sum += std::exp((row[static_cast<std::size_t>(token)] - largest) / options_.temperature));
  }
  const double draw = static_cast<double>(generator_.next64() >> 11) * 0x1p-53 * sum;
  const auto at = std::ranges::upper_bound(sums, draw) - sums.begin();
  return order[std::min(static_cast<std::size_t>(at), order.size() - 1)];
}

}  // namespace saccade
