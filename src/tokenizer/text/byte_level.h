// GPT-2's spelling of bytes: each byte is a printable code point, a space is U+0120.
#pragma once

#include <optional>

#include "tokenizer/text/characters.h"

namespace saccade::tokenizer {

char32_t code_of_byte(std::uint8_t byte);
std::optional<std::uint8_t> byte_of_code(char32_t code);

/// The bytes of a text in that spelling; each has the range of its whole character.
Characters byte_level(const Characters& text);

}  // namespace saccade::tokenizer
