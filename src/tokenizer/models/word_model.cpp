#include "tokenizer/models/word_model.h"

#include <nlohmann/json.hpp>
#include <stdexcept>

namespace saccade::tokenizer {
namespace {

using Json = nlohmann::json;

/// Maps each whole piece to one token.
WordModel word_level(const Json& description, const std::shared_ptr<Vocabulary>& vocabulary) {
  const auto unknown = description.at("unk_token").get<std::string>();
  return [=](const Characters& piece, std::vector<Token>& tokens) {
    const std::string text = utf8_of(piece);
    if (const auto id = vocabulary->id_of(text))
      tokens.push_back({*id, text, range_of(piece)});
    else if (const auto of_unknown = vocabulary->id_of(unknown))
      tokens.push_back({*of_unknown, unknown, range_of(piece)});
  };
}

/// The model's type, inferred from its fields if the file, as early ones do, leaves it out.
std::string type_of(const Json& description) {
  if (description.contains("type")) return description["type"].get<std::string>();
  if (description.contains("merges")) return "BPE";
  if (description.contains("continuing_subword_prefix")) return "WordPiece";
  return description.at("vocab").is_array() ? "Unigram" : "WordLevel";
}

}  // namespace

Vocabulary::Vocabulary(const Json& ids) {
  for (const auto& [token, id] : ids.items()) add(token, id.get<std::int64_t>());
}

void Vocabulary::add(const std::string& token, std::int64_t id) {
  ids_[token] = id;
  texts_[id] = token;
}

std::optional<std::int64_t> Vocabulary::id_of(const std::string& token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

const std::string* Vocabulary::text_of(std::int64_t id) const {
  const auto found = texts_.find(id);
  return found == texts_.end() ? nullptr : &found->second;
}

std::int64_t Vocabulary::require(const std::string& token) const {
  if (const auto id = id_of(token)) return *id;
  throw std::runtime_error("the vocabulary lacks '" + token + "'");
}

std::string spelled_byte(std::uint8_t byte) {
  constexpr const char* kDigits = "0123456789ABCDEF";
  return std::string("<0x") + kDigits[byte >> 4] + kDigits[byte & 15] + '>';
}

std::vector<Token> byte_tokens(const Vocabulary& vocabulary, const Character& character) {
  std::vector<Token> tokens;
  for (const char byte : utf8_of(Characters{character})) {
    const std::string text = spelled_byte(static_cast<std::uint8_t>(byte));
    const auto id = vocabulary.id_of(text);
    if (!id) return {};
    tokens.push_back({*id, text, character.range});
  }
  return tokens;
}

WordModel word_model_of(const Json& description, std::shared_ptr<Vocabulary>& vocabulary) {
  const std::string type = type_of(description);
  const Json& vocab = description.at("vocab");
  vocabulary = type == "Unigram" ? std::make_shared<Vocabulary>() : std::make_shared<Vocabulary>(vocab);
  if (type == "WordPiece") return word_piece(description, vocabulary);
  if (type == "BPE") return byte_pair_encoding(description, vocabulary);
  if (type == "Unigram") return unigram(description, vocabulary);
  if (type == "WordLevel") return word_level(description, vocabulary);
  throw std::runtime_error("unknown model '" + type + "'");
}

}  // namespace saccade::tokenizer
