// Generating tokens with a model.
#pragma once

#include <cstdint>
#include <span>

#include "saccade/gpt_model.h"
#include "saccade/random.h"

namespace saccade {

struct SamplingOptions {
  double temperature = 1.0;  ///< logits are divided by it; 0: always the most likely token
  std::int64_t top_k = 0;    ///< draw from the k most likely tokens only; 0: from all
  std::uint64_t seed = 0;
};

/// Draws tokens one by one. The same options give the same tokens.
class TokenSampler {
 public:
  /// `model` must outlive the sampler and be in evaluation mode. Throws std::invalid_argument for a temperature
  /// that is negative or NaN, and for a negative top_k.
  TokenSampler(GPTModel& model, const SamplingOptions& options);

  /// The next token after `tokens`, of which the model sees the last context_length. Throws std::invalid_argument
  /// when there are no tokens, and for a token outside the vocabulary.
  std::int64_t next(std::span<const std::int64_t> tokens);

 private:
  GPTModel& model_;
  SamplingOptions options_;
  TorchGenerator generator_;
};

}  // namespace saccade
