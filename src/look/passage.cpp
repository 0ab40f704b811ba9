#include "look/passage.h"

#include "core/check.h"

namespace saccade::heads {

Passage Passage::of(const char* function, const Tokenizer& tokenizer, std::string text,
                    const std::optional<std::string>& pair) {
  Passage passage{.text = std::move(text), .pair = pair.value_or("")};
  passage.tokens = pair ? tokenizer.encode(passage.text, *pair) : tokenizer.encode(passage.text);
  if (passage.tokens.empty()) refuse(function, "the text has no tokens");
  return passage;
}

ModelInput Passage::input(const char* function, const ModelSizes& sizes) const {
  // For an encoder-decoder, max_length is the decoder's.
  const std::int64_t limit = sizes.num_encoder_layers > 0 ? 0 : sizes.max_length;
  if (limit > 0 && std::ssize(tokens) > limit)
    refuse(function, "the text has ", tokens.size(), " tokens, but this model takes ", limit);
  ModelInput result;
  for (const Token& token : tokens) {
    result.tokens.push_back(token.id);
    result.types.push_back(token.type);
  }
  return result;
}

std::string Passage::label(std::size_t i) const {
  const Token& token = tokens[i];
  if (token.is_added || token.range.begin >= token.range.end) return token.text;
  return text_of(token).substr(token.range.begin, token.range.end - token.range.begin);
}

/// The text between a token and the one before it.
std::string Passage::gap_before(std::size_t i) const {
  const Token& token = tokens[i];
  if (token.is_added) return "";
  std::size_t end = 0;  // the end of the tokens before it, in the same text
  for (std::size_t j = i; j > 0 && end == 0; --j)
    if (!tokens[j - 1].is_added && tokens[j - 1].type == token.type) end = tokens[j - 1].range.end;
  return token.range.begin > end ? text_of(token).substr(end, token.range.begin - end) : "";
}

PageSequence Passage::sequence(const Tokenizer& tokenizer) const {
  PageSequence result;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    result.tokens.push_back(label(i));
    result.gaps.push_back(gap_before(i));
    result.ids.push_back(tokens[i].id);
    result.words.push_back(tokens[i].word);
    result.special.push_back(tokens[i].is_added || tokenizer.is_special(tokens[i].id));
  }
  return result;
}

PageSequence sequence_of(const Tokenizer& tokenizer, const std::vector<std::int64_t>& tokens) {
  PageSequence result;
  for (const std::int64_t token : tokens) {
    const std::string text = tokenizer.decode(std::vector{token}, false);
    result.tokens.push_back(text.empty() ? tokenizer.text_of(token) : text);
    result.special.push_back(tokenizer.is_special(token));
  }
  result.ids = tokens;
  return result;
}

}  // namespace saccade::heads
