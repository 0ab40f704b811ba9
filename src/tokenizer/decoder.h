// Decoders: turn the spellings of tokens back into text.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace saccade::tokenizer {

/// Rewrites the spellings of tokens; the caller concatenates them.
using Decoder = std::function<std::vector<std::string>(std::vector<std::string>)>;

/// The decoder that a part of tokenizer.json describes; null: spaces between tokens. Throws std::runtime_error
/// for an unknown one.
Decoder decoder_of(const nlohmann::json& description);

}  // namespace saccade::tokenizer
