// Score modifiers as users write them: a distance bias, a document mask, T5's buckets.
#pragma once

#include <saccade/attention.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cases/random.h"

namespace saccade::cases {

/// A score modifier with its data; AttentionOptions::score_context points to it.
class ScoreFunction {
 public:
  virtual ~ScoreFunction() = default;

  virtual std::string name() const = 0;
  virtual void change(const ScoreTile& tile) const = 0;
  virtual BlockEffect effect(const ScoreBlock&) const { return BlockEffect::partial; }

  /// Sets it in the options, with or without its ScoreBlockEffect.
  void add_to(AttentionOptions& options, bool with_effect);
};

/// One of the three at random, for a problem with this number of heads and rows.
std::unique_ptr<ScoreFunction> draw_score_function(Random& random, std::int64_t heads, std::int64_t seqlen);

}  // namespace saccade::cases
