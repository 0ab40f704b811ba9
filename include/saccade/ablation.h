// What a decoder loses without some of its heads.
//
//     const auto pretrained = PretrainedModel::load("SmolLM2-135M");
//     const TextExpectation all = text_expectation(pretrained, "K Q A V K Q A V"),
//                           rest = text_expectation(pretrained, "K Q A V K Q A V", {.heads = {{17, 5}}});
//     std::printf("%.4f -> %.4f\n", all.loss, rest.loss);
//
// Link saccade::look for this header.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "saccade/model.h"
#include "saccade/pretrained.h"

namespace [[gnu::visibility("default")]] saccade {

/// What stands in the place of the output of a head that is switched off.
enum class Ablation : std::uint8_t {
  zero,
  mean,  ///< the mean of its output over the text: what it knows about single tokens is lost
};

/// Which heads are switched off; fill it with designated initialisers.
struct AblationOptions {
  std::vector<HeadPlace> heads{};
  Ablation replaced_by = Ablation::zero;
  std::int64_t num_next = 5;  ///< how many of the most likely next tokens are wanted
  int num_threads = 0;        ///< 0: num_threads() of runtime.h; the results do not depend on it
};

struct NextToken {
  std::int64_t id = 0;
  std::string text{};
  double probability = 0.0;
};

/// What a decoder expects of a text.
struct TextExpectation {
  std::int64_t num_tokens = 0;
  /// The mean cross-entropy of each token by those before it, in nats; 0: there is one token only.
  double loss = 0.0;
  /// The tokens that an induction head can foretell: the pair of the token before and this one stood in the text
  /// before. Their mean cross-entropy; NaN if there are none.
  std::int64_t num_repeated = 0;
  double repeated_loss = 0.0;
  std::vector<NextToken> next{};  ///< after the text, the most likely one first
};

/// Runs a decoder over a text with some heads switched off; without `heads`, as it is. Throws
/// std::invalid_argument for a model that is no decoder with logits, a text without tokens or with more than the
/// model takes, and heads that do not exist.
TextExpectation text_expectation(const PretrainedModel& pretrained, std::string_view text,
                                 const AblationOptions& options = {});

}  // namespace saccade
