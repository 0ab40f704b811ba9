// A text as a model reads it, and as a page shows it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "saccade/model.h"
#include "saccade/page.h"
#include "saccade/tokenizer.h"

namespace saccade::heads {

struct Passage {
  std::string text, pair{};
  std::vector<Token> tokens{};

  /// Throws std::invalid_argument, in the name of `function`, for a text without tokens.
  static Passage of(const char* function, const Tokenizer& tokenizer, std::string text,
                    const std::optional<std::string>& pair = {});

  /// Throws std::invalid_argument for more tokens than the model accepts.
  ModelInput input(const char* function, const ModelSizes& sizes) const;
  PageSequence sequence(const Tokenizer& tokenizer) const;

 private:
  std::string label(std::size_t i) const;
  std::string gap_before(std::size_t i) const;
  const std::string& text_of(const Token& token) const { return token.type == 1 && !pair.empty() ? pair : text; }
};

/// Tokens without a text, as a page shows them.
PageSequence sequence_of(const Tokenizer& tokenizer, const std::vector<std::int64_t>& tokens);

}  // namespace saccade::heads
