// WordPiece: takes the longest prefix in the vocabulary, then repeats on the rest.
#include <nlohmann/json.hpp>

#include "tokenizer/models/word_model.h"

namespace saccade::tokenizer {

WordModel word_piece(const nlohmann::json& description, const std::shared_ptr<Vocabulary>& vocabulary) {
  const auto unknown = description.value("unk_token", "[UNK]");
  const std::int64_t unknown_id = vocabulary->require(unknown);
  const auto prefix = description.value("continuing_subword_prefix", "##");
  const auto longest = description.value("max_input_chars_per_word", std::size_t{100});
  return [=](const Characters& piece, std::vector<Token>& tokens) {
    const auto fail = [&] { tokens.push_back({unknown_id, unknown, range_of(piece)}); };
    if (piece.size() > longest) return fail();
    std::vector<Token> found;
    for (std::size_t begin = 0; begin < piece.size();) {
      std::size_t end = piece.size();
      for (; end > begin; --end) {
        const Characters part(piece.begin() + static_cast<std::ptrdiff_t>(begin),
                              piece.begin() + static_cast<std::ptrdiff_t>(end));
        const std::string text = (begin > 0 ? prefix : "") + utf8_of(part);
        if (const auto id = vocabulary->id_of(text)) {
          found.push_back({*id, text, range_of(part)});
          break;
        }
      }
      if (end == begin) return fail();
      begin = end;
    }
    tokens.insert(tokens.end(), found.begin(), found.end());
  };
}

}  // namespace saccade::tokenizer
