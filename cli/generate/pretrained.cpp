#include "pretrained.h"

#include <saccade/log_mel.h>
#include <saccade/pretrained.h>

#include "cli/common/common.h"
#include "cli/models/media.h"

namespace saccade::cli {
namespace {

/// The text of a growing list of tokens. A character may take several tokens; it is printed once complete.
class TextOfTokens {
 public:
  TextOfTokens(const Tokenizer& tokenizer, const std::function<void(const std::string&)>& print)
      : tokenizer_(tokenizer), print_(print) {}

  void add(std::int64_t token) {
    tokens_.push_back(token);
    print_whole(false);
  }
  void end() { print_whole(true); }

 private:
  void print_whole(bool at_end) {
    std::string text = tokenizer_.decode(tokens_);
    // The replacement character stands for bytes that later tokens may complete.
    if (text.size() < printed_ || (!at_end && text.ends_with("\xef\xbf\xbd"))) return;
    print_(text.substr(printed_));
    printed_ = text.size();
    if (!at_end && text.ends_with('\n')) tokens_.clear(), printed_ = 0;  // so that long texts stay fast
  }

  const Tokenizer& tokenizer_;
  const std::function<void(const std::string&)>& print_;
  std::vector<std::int64_t> tokens_;
  std::size_t printed_ = 0;
};

/// The encoder's states that a decoder attends to: of a text, or of a sound file.
Tensor encoded(const PretrainedModel& pretrained, const GenerateInput& input) {
  const Model& model = pretrained.model();
  if (model.sizes().num_mel_bins == 0) return model.encode({.tokens = pretrained.ids_of(input.prompt)});
  if (!input.audio) refuse("--model is a {}, which hears: give --audio", model.sizes().family);
  const Tensor features = log_mel(
      read_sound(*input.audio), {.num_bins = model.sizes().num_mel_bins, .num_frames = model.sizes().max_frames});
  return model.encode({.features = features.view().reshaped({1, features.shape(0), features.shape(1)})});
}

}  // namespace

void generate_pretrained(const GenerateInput& input, std::int64_t count, TokenSampler& sampler,
                         const std::function<void(const std::string&)>& print) {
  const PretrainedModel pretrained = PretrainedModel::load(input.folder);
  const ModelSizes& sizes = pretrained.model().sizes();
  if (!sizes.is_causal || !sizes.has_logits)
    refuse("--model is a {} without next tokens: only decoders with logits generate text", sizes.family);
  const bool has_encoder = sizes.num_encoder_layers > 0;
  if (input.audio && sizes.num_mel_bins == 0) refuse("--model is a {}, which does not hear", sizes.family);
  const Tensor source = has_encoder ? encoded(pretrained, input) : Tensor();
  const std::vector<std::int64_t> tokens =
      has_encoder ? pretrained.first_tokens() : pretrained.ids_of(input.prompt);
  if (sizes.max_length > 0 && std::ssize(tokens) > sizes.max_length)
    refuse("--prompt has {} tokens, but this model takes {}", tokens.size(), sizes.max_length);
  TextOfTokens text(pretrained.tokenizer(), print);
  if (!has_encoder)
    for (const std::int64_t token : tokens) text.add(token);
  continue_tokens(
      pretrained.model(), tokens, has_encoder ? source.view() : TensorView(), count,
      [&](std::span<const float> logits) { return sampler.next(logits); },
      [&](std::int64_t token) { text.add(token); }, 0, input.format);
  text.end();
}

}  // namespace saccade::cli
