// Text as code points with their source ranges, and their Unicode properties.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "saccade/tokenizer.h"

namespace saccade::tokenizer {

/// A code point, and the bytes of the original text that it stands for.
struct Character {
  char32_t code = 0;
  TextRange range{};
};
using Characters = std::vector<Character>;

/// Decodes UTF-8; a truncated character, and a byte that begins no character, become U+FFFD.
Characters characters_of(std::string_view utf8, std::size_t first_byte = 0);
std::u32string codes_of(std::string_view utf8);
std::string utf8_of(const Characters& text);
std::string utf8_of(std::u32string_view codes);
void append_utf8(std::string& text, char32_t code);
/// The range from the first character to the last.
TextRange range_of(const Characters& text);

bool is_whitespace(char32_t code);   ///< White_Space
bool is_control(char32_t code);      ///< Cc, Cf, Co, Cs, except tab, line feed and carriage return
bool is_punctuation(char32_t code);  ///< ASCII punctuation, or P*
bool is_mark(char32_t code);         ///< M*
bool is_nonspacing_mark(char32_t code);
bool is_number(char32_t code);   ///< N*
bool is_chinese(char32_t code);  ///< ideographs, which BERT makes words of their own

/// Lower case; U+0130 becomes two code points.
Characters lowered(const Characters& text);

enum class NormalForm { nfc, nfd, nfkc, nfkd };
Characters normalized(const Characters& text, NormalForm form);

/// A code point that replaces one of a text (0), is inserted after it (1), or replaces it and the next n (-n).
struct Change {
  char32_t code = 0;
  std::ptrdiff_t count = 0;
};
/// Applies the changes in order; a replacement keeps the source range of what it replaces.
Characters transformed(const Characters& text, const std::vector<Change>& changes);

/// The lengths of a text's grapheme clusters, in code points.
std::vector<std::size_t> graphemes(const Characters& text);

}  // namespace saccade::tokenizer
