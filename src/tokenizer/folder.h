// The files of a Hugging Face folder that describe its tokenizer.
#pragma once

#include <filesystem>
#include <string>
#include <utility>

namespace saccade::tokenizer {

/// The text of a tokenizer.json, or what is equal to it for older files, and what messages call it. Throws
/// std::runtime_error.
std::pair<std::string, std::string> read_description(const std::filesystem::path& path);

}  // namespace saccade::tokenizer
