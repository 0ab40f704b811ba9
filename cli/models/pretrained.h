// Models of Hugging Face folders, with their tokenizers.
#pragma once

#include <saccade/model.h>
#include <saccade/tokenizer.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace saccade::cli {

class Pretrained {
 public:
  /// Throws std::runtime_error for a folder that cannot be read or whose parts are not known.
  static Pretrained load(const std::string& folder);

  Model model;
  std::string folder;

  /// Read with the model, but for models of images, which have none.
  const Tokenizer& tokenizer() const { return *tokenizer_; }

  /// The tokens of a text, with those that the model expects around it. Throws std::invalid_argument for a text
  /// without tokens, and for a tokenizer that gives tokens that the model lacks.
  std::vector<std::int64_t> ids_of(const std::string& text) const;

  /// What the decoder of an encoder-decoder is given first: its start token; of Whisper also that English speech
  /// is to be written down, without times.
  std::vector<std::int64_t> first_tokens() const;

 private:
  Pretrained(Model model, std::string folder, std::optional<Tokenizer> tokenizer);

  std::optional<Tokenizer> tokenizer_;
};

/// Continues `tokens` by up to `count` that `next` draws from logits, until the model ends the text or its
/// positions end. encoder_states: of an encoder-decoder. `on_token`: called for each new token.
void continue_tokens(const Model& model, std::vector<std::int64_t> tokens, const TensorView& encoder_states,
                     std::int64_t count, const std::function<std::int64_t(std::span<const float>)>& next,
                     const std::function<void(std::int64_t)>& on_token);

}  // namespace saccade::cli
