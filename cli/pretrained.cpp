#include "pretrained.h"

#include "common.h"

namespace saccade::cli {

Pretrained Pretrained::load(const std::string& folder) {
  return {.model = Model::load(folder), .tokenizer = Tokenizer::load(folder)};
}

std::vector<std::int64_t> Pretrained::ids_of(const std::string& text) const {
  std::vector<std::int64_t> ids;
  for (const Token& token : tokenizer.encode(text)) ids.push_back(token.id);
  if (ids.empty()) refuse("the text has no tokens");
  return ids;
}

}  // namespace saccade::cli
