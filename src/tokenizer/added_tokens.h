// Added tokens: matched literally in a text, before it is split any further.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <unordered_map>
#include <unordered_set>

#include "tokenizer/models/word_model.h"
#include "tokenizer/normalizer.h"

namespace saccade::tokenizer {

/// A section of a text: an added token, or the text between two of them.
struct Section {
  Characters text;
  const Token* token = nullptr;  ///< without a range
};

class AddedTokens {
 public:
  /// The list added_tokens of a tokenizer.json. Adds them to the vocabulary.
  AddedTokens(const nlohmann::json& list, const Normalizer& normalizer, Vocabulary& vocabulary);

  /// Splits a text at added tokens, normalizes the rest.
  std::vector<Section> sections_of(const Characters& text, const Normalizer& normalizer) const;
  bool is_special(std::int64_t id) const { return special_.contains(id); }

 private:
  struct Entry {
    std::u32string text;
    Token token;
    bool is_single_word = false, strips_left = false, strips_right = false;
  };
  /// Tokens by their first code point, longest first.
  using Table = std::unordered_map<char32_t, std::vector<Entry>>;

  static std::vector<Section> split(const Characters& text, const Table& table);

  Table before_, after_;  // the normalizer
  std::unordered_set<std::int64_t> special_;
};

}  // namespace saccade::tokenizer
