// The files of a Hugging Face folder that describe its tokenizer.
#pragma once

#include <filesystem>
#include <string>
#include <utility>

namespace saccade::tokenizer {

/// The text of a tokenizer.json, or its equivalent made from older files, and the name that messages use for it.
/// Throws std::runtime_error.
std::pair<std::string, std::string> read_description(const std::filesystem::path& path);

}  // namespace saccade::tokenizer
