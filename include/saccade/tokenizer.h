// Converts text to tokens and back, as the tokenizer.json of a Hugging Face folder describes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#pragma GCC visibility push(default)
namespace saccade {

/// A range of a text, in bytes of its UTF-8.
struct TextRange {
  std::size_t begin = 0, end = 0;  ///< the first byte, and the one after the last
  bool operator==(const TextRange&) const = default;
};

/// One token of a text.
struct Token {
  std::int64_t id = 0;    ///< in the vocabulary
  std::string text;       ///< as the vocabulary spells it, "##ing", "Ġthe"; the original text if added or unknown
  TextRange range{};      ///< in the original text; empty at 0 for tokens that a template adds
  std::int64_t type = 0;  ///< 1 for tokens of the second text of a pair, if the model distinguishes them
  bool is_added = false;  ///< by a template, such as `[CLS]` and `<s>`
  std::int64_t word = -1;  ///< the index of the word that was split into this and its neighbors; -1 if added
};

/// Truncates a text's tokens to `most`: drops tokens from the end of the text, but none that a template added. If
/// there are more than `most` of these, they all stay.
void truncate(std::vector<Token>& tokens, std::size_t most);

/// Converts text to tokens and back. Reads what tokenizer.json of a Hugging Face folder describes: added tokens,
/// normalizer, pre-tokenizer, model (WordPiece, BPE, Unigram, WordLevel), post-processor and decoder. `truncation`
/// and `padding` are not applied. Format: https://huggingface.co/docs/tokenizers. Link saccade::tokenizer.
class Tokenizer {
 public:
  /// From the folder `path`: tokenizer.json, or vocab.txt (BERT; tokenizer_config.json says whether it is cased),
  /// or vocab.json and merges.txt (GPT-2; RoBERTa if config.json says so). From a file: a tokenizer.json. Throws
  /// std::runtime_error, one line with the file and the part, for anything missing, malformed or unknown.
  static Tokenizer load(const std::filesystem::path& path);
  /// From the text of a tokenizer.json; messages call it `name`.
  static Tokenizer parse(std::string_view json, std::string_view name = "tokenizer.json");

  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  /// The tokens of a text in UTF-8; invalid bytes count as U+FFFD. `add_special`: adds the special tokens
  /// that the model expects around a text. Throws std::runtime_error for a character that is not in the vocabulary
  /// if that has no unknown token.
  std::vector<Token> encode(std::string_view text, bool add_special = true) const;
  /// The tokens of a pair of texts, such as a question and an answer.
  std::vector<Token> encode(std::string_view text, std::string_view pair, bool add_special = true) const;

  /// The text of tokens, given by their ids. `skip_special`: leaves out special tokens. Ids that are not in the
  /// vocabulary are left out.
  std::string decode(std::span<const std::int64_t> ids, bool skip_special = true) const;

  /// The size of the vocabulary, including added tokens.
  std::int64_t vocabulary_size() const;
  /// The id of a token, as the vocabulary spells it.
  std::optional<std::int64_t> id_of(std::string_view token) const;
  /// The token of an id, as the vocabulary spells it; empty if there is none.
  std::string text_of(std::int64_t id) const;
  /// Whether the token of an id is special: `[SEP]`, `</s>`.
  bool is_special(std::int64_t id) const;

 private:
  struct State;
  explicit Tokenizer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace saccade
#pragma GCC visibility pop
