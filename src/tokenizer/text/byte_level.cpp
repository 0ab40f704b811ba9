#include "tokenizer/text/byte_level.h"

#include <array>
#include <map>

namespace saccade::tokenizer {
namespace {

/// Bytes that are printable in Latin-1 map to themselves, the others to 256, 257, ... in order.
std::array<char32_t, 256> spelling() {
  std::array<char32_t, 256> codes{};
  char32_t next = 256;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool stays = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    codes[byte] = stays ? byte : next++;
  }
  return codes;
}

const std::array<char32_t, 256>& codes() {
  static const std::array<char32_t, 256> kCodes = spelling();
  return kCodes;
}

}  // namespace

char32_t code_of_byte(std::uint8_t byte) { return codes()[byte]; }

std::optional<std::uint8_t> byte_of_code(char32_t code) {
  static const std::map<char32_t, std::uint8_t> kBytes = [] {
    std::map<char32_t, std::uint8_t> bytes;
    for (int byte = 0; byte < 256; ++byte)
      bytes[codes()[static_cast<std::size_t>(byte)]] = static_cast<std::uint8_t>(byte);
    return bytes;
  }();
  const auto found = kBytes.find(code);
  return found == kBytes.end() ? std::nullopt : std::optional(found->second);
}

Characters byte_level(const Characters& text) {
  Characters result;
  std::string utf8;
  for (const Character& c : text) {
    utf8.clear();
    append_utf8(utf8, c.code);
    for (const char byte : utf8) result.push_back({code_of_byte(static_cast<std::uint8_t>(byte)), c.range});
  }
  return result;
}

}  // namespace saccade::tokenizer
