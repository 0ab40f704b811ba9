// Which attention weights a model's answer depends on.
#pragma once

#include <map>
#include <string>

#include "saccade/model.h"
#include "saccade/pretrained.h"

namespace saccade::heads {

/// The maps of one kind of attention, over all of its layers and heads, divided by their largest number.
struct GradientMaps {
  /// The mean of weight times gradient, where that is positive: [queries, keys] (arXiv:2103.15679, equation 5).
  Tensor mean{};
  /// That product propagated through the layers, plus the identity for each residual connection: [queries, keys]
  /// (arXiv:2103.15679, equation 6). For self-attention; how much each token counts for each state.
  Tensor relevance{};
};

struct Gradient {
  std::string answer{};  ///< describes the quantity whose gradient it is
  std::map<AttentionKind, GradientMaps> maps{};
};

/// The gradient of a model's answer: the logit of a decoder's most likely next token, of a picture's most likely
/// class, of each token that an encoder-decoder wrote, or of each token that an encoder reads. Without logits:
/// half the squared length of the mean state. source: the source of an encoder-decoder.
Gradient gradient_of_answer(const PretrainedModel& pretrained, const ModelInput& source, const ModelInput& input,
                            int num_threads);

}  // namespace saccade::heads
