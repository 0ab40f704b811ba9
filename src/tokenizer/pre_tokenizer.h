// Pre-tokenizers: split a text into pieces, each of which a model splits into tokens.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>

#include "tokenizer/text/characters.h"

namespace saccade::tokenizer {

using Pieces = std::vector<Characters>;

/// Splits the pieces of a text further.
using PreTokenizer = std::function<Pieces(Pieces)>;

/// The pre-tokenizer that a part of tokenizer.json describes; null: none. Throws std::runtime_error for an
/// unknown one.
PreTokenizer pre_tokenizer_of(const nlohmann::json& description);

}  // namespace saccade::tokenizer
