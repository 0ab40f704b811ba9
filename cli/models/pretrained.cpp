#include "pretrained.h"

#include <algorithm>

#include "cli/common/common.h"

namespace saccade::cli {

Pretrained::Pretrained(Model loaded, std::string path, std::optional<Tokenizer> tokenizer)
    : model(std::move(loaded)), folder(std::move(path)), tokenizer_(std::move(tokenizer)) {}

Pretrained Pretrained::load(const std::string& folder) {
  Model model = Model::load(folder);
  std::optional<Tokenizer> tokenizer;
  if (model.sizes().image_size == 0) tokenizer = Tokenizer::load(folder);
  return Pretrained(std::move(model), folder, std::move(tokenizer));
}

std::vector<std::int64_t> Pretrained::ids_of(const std::string& text) const {
  std::vector<std::int64_t> ids;
  for (const Token& token : tokenizer().encode(text)) ids.push_back(token.id);
  if (ids.empty()) refuse("the text has no tokens");
  return ids;
}

std::vector<std::int64_t> Pretrained::first_tokens() const {
  if (model.sizes().start_token < 0) refuse("{}: config.json has no decoder_start_token_id", folder);
  std::vector<std::int64_t> tokens{model.sizes().start_token};
  if (model.sizes().num_mel_bins > 0)
    for (const char* const token : {"<|en|>", "<|transcribe|>", "<|notimestamps|>"})
      if (const auto id = tokenizer().id_of(token)) tokens.push_back(*id);
  return tokens;
}

void continue_tokens(const Model& model, std::vector<std::int64_t> tokens, const TensorView& encoder_states,
                     std::int64_t count, const std::function<std::int64_t(std::span<const float>)>& next,
                     const std::function<void(std::int64_t)>& on_token) {
  const std::int64_t limit = model.sizes().max_length;
  if (limit > 0) count = std::min(count, limit - std::ssize(tokens));
  ModelCache cache = model.make_cache(DType::f32, std::ssize(tokens) + std::max<std::int64_t>(count, 0));
  for (std::int64_t i = 0; i < count; ++i) {
    const Tensor states =
        model.hidden_states({.tokens = std::move(tokens), .encoder_states = encoder_states}, {.cache = &cache});
    const Tensor logits = model.logits(states.view().select(0, states.shape(0) - 1));
    const std::int64_t token = next(logits.values<float>());
    if (std::ranges::count(model.sizes().end_tokens, token) > 0) return;
    on_token(token);
    tokens = {token};
  }
}

}  // namespace saccade::cli
