// SentencePiece's replacement table: the size of a trie, the trie, and null-terminated replacement texts. The
// trie is a double array: https://github.com/s-yata/darts-clone
#include <algorithm>
#include <optional>
#include <stdexcept>

#include "tokenizer/normalizer.h"

namespace saccade::tokenizer {
namespace {

std::string from_base64(const std::string& base64) {
  static const std::string kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : base64) {
    if (c == '=') break;
    const std::size_t digit = kDigits.find(c);
    if (digit == std::string::npos) throw std::runtime_error("precompiled_charsmap is no base64");
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    if ((count += 6) >= 8) bytes.push_back(static_cast<char>(bits >> (count -= 8) & 0xFF));
  }
  return bytes;
}

class CharacterMap {
 public:
  explicit CharacterMap(const std::string& bytes) {
    if (bytes.size() < kWord) throw std::runtime_error("precompiled_charsmap is too short");
    const std::uint32_t size = word(bytes, 0);
    if (size > bytes.size() - kWord) throw std::runtime_error("precompiled_charsmap is too short");
    for (std::size_t at = kWord; at + kWord <= kWord + size; at += kWord) trie_.push_back(word(bytes, at));
    texts_ = bytes.substr(kWord + size);
  }

  /// The replacement of the shortest prefix of a text that the table contains.
  std::optional<std::string> find(std::string_view text) const {
    if (trie_.empty()) return std::nullopt;
    std::size_t at = offset(trie_[0]);
    for (const char c : text) {
      const auto byte = static_cast<std::uint8_t>(c);
      at ^= byte;
      if (byte == 0 || at >= trie_.size() || label(trie_[at]) != byte) return std::nullopt;
      const bool has_value = (trie_[at] >> 8 & 1) != 0;
      at ^= offset(trie_[at]);
      if (at >= trie_.size()) return std::nullopt;
      if (!has_value) continue;
      const std::size_t begin = trie_[at] & 0x7FFFFFFF;
      if (begin >= texts_.size()) return std::nullopt;
      return texts_.substr(begin, texts_.find('\0', begin) - begin);
    }
    return std::nullopt;
  }

 private:
  static constexpr std::size_t kWord = 4;

  /// The word that begins at a byte: little-endian, on every machine.
  static std::uint32_t word(const std::string& bytes, std::size_t begin) {
    std::uint32_t word = 0;
    for (std::size_t i = kWord; i-- > 0;) word = word << 8 | static_cast<std::uint8_t>(bytes[begin + i]);
    return word;
  }

  static std::size_t offset(std::uint32_t unit) { return std::size_t{unit >> 10} << ((unit & 0x200) >> 6); }
  static std::uint32_t label(std::uint32_t unit) { return unit & 0x800000FF; }

  std::vector<std::uint32_t> trie_;
  std::string texts_;
};

}  // namespace

Normalizer precompiled_normalizer(const std::string& base64) {
  const auto map = std::make_shared<CharacterMap>(from_base64(base64));
  return [map](const Characters& text) {
    constexpr std::size_t kLongest = 5;  // bytes of the longest cluster that is looked up
    std::vector<Change> changes;
    // Removed code points are charged to the code point before them. Those before the first one are not counted,
    // so later ranges shift, as in the tokenizers library.
    const auto add = [&](const std::u32string& codes, std::size_t replaced) {
      for (std::size_t i = 0; i < codes.size(); ++i) changes.push_back({codes[i], i < replaced ? 0 : 1});
      if (codes.size() < replaced && !changes.empty())
        changes.back().count -= static_cast<std::ptrdiff_t>(replaced - codes.size());
    };
    std::size_t at = 0;
    for (const std::size_t size : graphemes(text)) {
      const Characters cluster(text.begin() + static_cast<std::ptrdiff_t>(at),
                               text.begin() + static_cast<std::ptrdiff_t>(at + size));
      at += size;
      const std::string utf8 = utf8_of(cluster);
      if (const auto found = utf8.size() <= kLongest ? map->find(utf8) : std::nullopt) {
        add(codes_of(*found), size);
        continue;
      }
      for (const Character& c : cluster) {
        const auto found = map->find(utf8_of(Characters{c}));
        add(found ? codes_of(*found) : std::u32string{c.code}, 1);
      }
    }
    return transformed(text, changes);
  };
}

}  // namespace saccade::tokenizer
