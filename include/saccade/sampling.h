// Sampling the next token of a text.
#pragma once

#include <cstdint>
#include <span>

#include "saccade/random.h"

#pragma GCC visibility push(default)
namespace saccade {

struct SamplingOptions {
  double temperature = 1.0;  ///< logits are divided by it; 0: always the most likely token
  std::int64_t top_k = 0;    ///< draw from the k most likely tokens only; 0: from all
  double top_p = 1.0;        ///< of these, draw from the fewest most likely ones whose probabilities sum to it
  std::uint64_t seed = 0;    ///< of the draws
};

/// Draws tokens one by one. The same options and logits give the same tokens.
class TokenSampler {
 public:
  /// Throws std::invalid_argument for a temperature that is negative or NaN, a negative top_k, and a
  /// top_p outside (0, 1].
  explicit TokenSampler(const SamplingOptions& options);

  /// The next token, from a model's logits [vocab_size]; among equal ones the first. Throws std::invalid_argument
  /// if there are none.
  std::int64_t next(std::span<const float> logits);

 private:
  SamplingOptions options_;
  TorchGenerator generator_;
};

}  // namespace saccade
#pragma GCC visibility pop
