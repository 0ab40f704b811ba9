// The weights on which a model's answer rests.
#pragma once

#include <map>
#include <string>

#include "saccade/model.h"
#include "saccade/pretrained.h"

namespace saccade::heads {

/// Of the attention of one kind, over all of its layers and heads; in parts of the largest number.
struct GradientMaps {
  /// The mean of weight times gradient, where that is positive: [queries, keys] (arXiv:2103.15679, equation 5).
  Tensor mean{};
  /// That product followed through the layers, each with the identity for what passes by it: [queries, keys]
  /// (arXiv:2103.15679, equation 6). Of self-attention; it says how much each token counts for each state.
  Tensor relevance{};
};

struct Gradient {
  std::string answer{};  ///< what the gradient is of, in words
  std::map<AttentionKind, GradientMaps> maps{};
};

/// The gradient of a model's answer: the logit of the most likely next token of a decoder, of the most likely
/// class of a picture, of each token of what an encoder-decoder wrote, of each token that an encoder reads.
/// Without logits: half the squared length of the mean state. source: of an encoder-decoder.
Gradient gradient_of_answer(const PretrainedModel& pretrained, const ModelInput& source, const ModelInput& input,
                            int num_threads);

}  // namespace saccade::heads
