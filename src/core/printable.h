// Text of a caller or a file in the form for messages: with escapes for what is not a visible character.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace saccade {

/// The length of the first character of a text that is not empty; 0 if its bytes are not UTF-8.
inline std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) -> unsigned { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return 0;
  // The second byte reveals overlong forms, surrogates and code points above U+10FFFF.
  const unsigned lowest = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  const unsigned highest = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  if (byte(1) < lowest || byte(1) > highest) return 0;
  for (std::size_t i = 2; i < length; ++i)
    if (byte(i) < 0x80 || byte(i) > 0xbf) return 0;
  return length;
}

/// Whether a terminal obeys a character of UTF-8 instead of showing it: a control character (C0, DEL, C1), or a
/// mark that changes the direction of what follows.
inline bool is_obeyed(std::string_view character) {
  return character < " " || character == "\x7f" || (character >= "\xc2\x80" && character <= "\xc2\x9f") ||
         (character >= "\xe2\x80\xaa" && character <= "\xe2\x80\xae") ||
         (character >= "\xe2\x81\xa6" && character <= "\xe2\x81\xa9");
}

/// Appends the first character of a text that is not empty, as `\xHH` if it is not UTF-8 or would be obeyed.
/// Returns how many bytes of the text it has.
inline std::size_t append_printable(std::string& line, std::string_view text) {
  const std::size_t length = utf8_length(text), bytes = length == 0 ? 1 : length;
  const std::string_view character = text.substr(0, bytes);
  if (length > 0 && !is_obeyed(character)) {
    line += character;
    return bytes;
  }
  for (const char c : character) {
    const auto byte = static_cast<unsigned char>(c);
    line += {'\\', 'x', "0123456789abcdef"[byte >> 4], "0123456789abcdef"[byte & 15]};
  }
  return bytes;
}

/// Makes text one line that people can read, whatever a caller passed: what is longer than any text of ours is cut
/// off.
inline std::string one_line(std::string_view text) {
  constexpr std::size_t kLongest = std::size_t{1} << 16;  // more than the names of a large model's parameters
  std::string line;
  for (std::size_t at = 0; at < text.size();) {
    if (at >= kLongest) return line + "...";
    at += append_printable(line, text.substr(at));
  }
  return line;
}

}  // namespace saccade
