#include "io/message.h"

#include <stdexcept>

namespace saccade::io {
namespace {

constexpr std::size_t kLongestQuote = 60;

bool is_control(unsigned char c) { return c < 0x20 || c == 0x7f; }

void append_escaped(std::string& out, unsigned char c) {
  constexpr std::string_view kHex = "0123456789abcdef";
  out += "\\x";
  out += kHex[c >> 4];
  out += kHex[c & 15];
}

/// The length of the UTF-8 sequence at `at`; 0 if it is invalid.
std::size_t utf8_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) -> unsigned { return static_cast<unsigned char>(text[at + i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() - at < length) return 0;
  // The second byte reveals overlong forms, surrogates and code points above U+10FFFF.
  const unsigned lowest = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  const unsigned highest = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  if (byte(1) < lowest || byte(1) > highest) return 0;
  for (std::size_t i = 2; i < length; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xbf) return 0;
  }
  return length;
}

/// Whether the character of these bytes of UTF-8 is a control beyond ASCII (C1), or a mark that changes the
/// direction of what follows.
bool is_hidden_control(std::string_view character) {
  return (character >= "\xc2\x80" && character <= "\xc2\x9f") ||
         (character >= "\xe2\x80\xaa" && character <= "\xe2\x80\xae") ||
         (character >= "\xe2\x81\xa6" && character <= "\xe2\x81\xa9");
}

/// Appends the character at `at`, with escapes for what is not printable. Returns where the next one begins.
std::size_t append_printable(std::string& out, std::string_view text, std::size_t at) {
  const std::size_t length = utf8_length(text, at), bytes = length == 0 ? 1 : length;
  const std::string_view character = text.substr(at, bytes);
  if (length == 0 || is_control(static_cast<unsigned char>(character[0])) || is_hidden_control(character)) {
    for (const char c : character) append_escaped(out, static_cast<unsigned char>(c));
  } else {
    out += character;
  }
  return at + bytes;
}

/// File names are the only foreign text that is not quoted.
std::string one_line(const Origin& origin, const std::string& fault) {
  std::string line = "[" + std::string(origin.function) + "] ";
  const std::string text = origin.name + ": " + fault;
  for (std::size_t at = 0; at < text.size();) at = append_printable(line, text, at);
  return line;
}

}  // namespace

void Origin::refuse(const std::string& fault) const { throw std::runtime_error(one_line(*this, fault)); }

void Origin::refuse_argument(const std::string& fault) const {
  throw std::invalid_argument(one_line(*this, fault));
}

std::string in_quotes(std::string_view text) {
  std::string out = "'";
  for (std::size_t at = 0; at < text.size();) {
    if (at >= kLongestQuote) return out + "...'";
    at = append_printable(out, text, at);
  }
  return out + "'";
}

std::optional<std::size_t> find_invalid_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text, at);
    if (length == 0) return at;
    at += length;
  }
  return std::nullopt;
}

}  // namespace saccade::io
