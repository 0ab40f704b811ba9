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
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "saccade/layer_attention.h"
#include "saccade/pretrained.h"
#include "saccade/tensor.h"

#pragma GCC visibility push(default)
namespace saccade {

/// Which heads to ablate; fill it with designated initializers.
struct AblationOptions {
  std::vector<HeadPlace> heads{};
  Ablation replaced_by = Ablation::zero;  ///< what replaces the output of these heads
  std::int64_t num_next = 5;              ///< how many of the most likely next tokens to return
  int num_threads = 0;                    ///< 0: num_threads() of runtime.h; the results do not depend on it
};

/// A candidate for the next token.
struct NextToken {
  std::int64_t id = 0;       ///< in the vocabulary
  std::string text{};        ///< of this token alone
  double probability = 0.0;  ///< that it comes next
};

/// How well a decoder predicts a text, and what it expects next.
struct TextExpectation {
  std::int64_t num_tokens = 0;  ///< of the text
  /// The mean cross-entropy of each token given those before it, in nats; 0 for a single token.
  double loss = 0.0;
  /// The tokens that an induction head can predict: those whose pair with the token before them has occurred
  /// earlier in the text.
  std::int64_t num_repeated = 0;
  double repeated_loss = 0.0;     ///< their mean cross-entropy, in nats; NaN if there are none
  std::vector<NextToken> next{};  ///< the candidates for the token after the text, most likely first
};

/// Runs a decoder, `pretrained`, over a text with some heads ablated; without `heads`, unchanged. Throws
/// std::invalid_argument for a model that is not a decoder with logits, a text with no tokens or more than the
/// model takes, and heads that do not exist.
TextExpectation text_expectation(const PretrainedModel& pretrained, std::string_view text,
                                 const AblationOptions& options = {});

/// The same of logits that a decoder computed in any way, f32 [tokens, vocabulary], for the tokens that it read.
/// The texts of the `num_next` candidates are empty. Throws std::invalid_argument for no tokens, tokens outside
/// the vocabulary, logits of another shape or type, and a negative num_next.
TextExpectation text_expectation(std::span<const std::int64_t> tokens, const TensorView& logits,
                                 std::int64_t num_next = 5);

/// How near the embedding of a text by an encoder, `pretrained`, stays without the heads of `options`: the cosine
/// of the two embeddings, each the mean of the states of the text's tokens. 1: nothing changed. Throws
/// std::invalid_argument for a model that is not an encoder of texts, a text with no tokens or more than the model
/// takes, and heads that do not exist.
double embedding_cosine(const PretrainedModel& pretrained, std::string_view text, const AblationOptions& options);

}  // namespace saccade
#pragma GCC visibility pop
