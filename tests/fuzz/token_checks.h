// What must hold for the tokens of any text.
#pragma once

#include "fuzz.h"
#include "saccade/tokenizer.h"

namespace saccade::fuzz {

inline void check(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::int64_t> ids;
  for (const Token& token : tokenizer.encode(text)) {
    require(token.range.begin <= token.range.end && token.range.end <= text.size());
    ids.push_back(token.id);
  }
  tokenizer.decode(ids);
  tokenizer.decode(ids, false);
}

}  // namespace saccade::fuzz
