// Normalizers: transform a text before it is split.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>

#include "tokenizer/text/characters.h"

namespace saccade::tokenizer {

using Normalizer = std::function<Characters(Characters)>;

/// The normalizer that a part of tokenizer.json describes; null: none. Throws std::runtime_error for an unknown
/// one.
Normalizer normalizer_of(const nlohmann::json& description);

/// The normalizer of SentencePiece's replacement table, given in base64.
Normalizer precompiled_normalizer(const std::string& base64);

}  // namespace saccade::tokenizer
