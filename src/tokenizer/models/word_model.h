// Models: how a piece of text is split into tokens of a vocabulary.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <unordered_map>

#include "tokenizer/text/characters.h"

namespace saccade::tokenizer {

class Vocabulary {
 public:
  Vocabulary() = default;
  /// {"token": id}
  explicit Vocabulary(const nlohmann::json& ids);

  void add(const std::string& token, std::int64_t id);
  /// Sets the spelling of a token where it differs from the text that it matches.
  void spell(std::int64_t id, std::string text) { texts_[id] = std::move(text); }
  std::optional<std::int64_t> id_of(const std::string& token) const;
  const std::string* text_of(std::int64_t id) const;  ///< null if there is no such token
  /// The id of a token that the description names. Throws std::runtime_error if the vocabulary lacks it.
  std::int64_t require(const std::string& token) const;
  std::int64_t size() const { return static_cast<std::int64_t>(ids_.size()); }

 private:
  std::unordered_map<std::string, std::int64_t> ids_;
  std::unordered_map<std::int64_t, std::string> texts_;
};

/// Appends the tokens of a piece; leaves Token::word unset.
using WordModel = std::function<void(const Characters& piece, std::vector<Token>& tokens)>;

/// The model that a part of tokenizer.json describes, and its vocabulary. Throws std::runtime_error for an
/// unknown one.
WordModel word_model_of(const nlohmann::json& description, std::shared_ptr<Vocabulary>& vocabulary);

WordModel word_piece(const nlohmann::json& description, const std::shared_ptr<Vocabulary>& vocabulary);
WordModel byte_pair_encoding(const nlohmann::json& description, const std::shared_ptr<Vocabulary>& vocabulary);
/// `vocabulary` is filled from the description, which has scores too.
WordModel unigram(const nlohmann::json& description, const std::shared_ptr<Vocabulary>& vocabulary);

/// "<0x0A>": how vocabularies with byte_fallback spell the bytes of characters that they lack.
std::string spelled_byte(std::uint8_t byte);
/// The tokens of a character's bytes; empty if the vocabulary lacks one.
std::vector<Token> byte_tokens(const Vocabulary& vocabulary, const Character& character);

}  // namespace saccade::tokenizer
