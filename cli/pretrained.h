// Models of Hugging Face folders, with their tokenizers.
#pragma once

#include <saccade/model.h>
#include <saccade/tokenizer.h>

#include <cstdint>
#include <string>
#include <vector>

namespace saccade::cli {

struct Pretrained {
  Model model;
  Tokenizer tokenizer;

  /// Throws std::runtime_error for a folder that cannot be read or whose parts are not known.
  static Pretrained load(const std::string& folder);

  /// The tokens of a text, with those that the model expects around it. Throws std::invalid_argument for a text
  /// without tokens, and for a tokenizer that gives tokens that the model lacks.
  std::vector<std::int64_t> ids_of(const std::string& text) const;
};

}  // namespace saccade::cli
