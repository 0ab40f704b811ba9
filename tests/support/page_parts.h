// What the file of a page holds, unpacked.
#pragma once

#include <gtest/gtest.h>
#include <zlib.h>

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace saccade::test {

inline std::vector<std::uint8_t> from_base64(const std::string& text) {
  static const std::string kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<std::uint8_t> bytes;
  std::uint32_t group = 0;
  int bits = 0;
  for (const char c : text) {
    if (c == '=') break;
    group = group << 6 | static_cast<std::uint32_t>(kDigits.find(c));
    if ((bits += 6) >= 8) bytes.push_back(static_cast<std::uint8_t>(group >> (bits -= 8)));
  }
  return bytes;
}

/// The unpacked contents of a part of a page; empty if it is not there.
inline std::vector<std::uint8_t> part_of(const std::string& html, const std::string& id) {
  const std::string opening = "id=\"" + id + "\">";
  const std::size_t begin = html.find(opening);
  if (begin == std::string::npos) return {};
  const std::size_t from = begin + opening.size();
  const std::vector<std::uint8_t> packed = from_base64(html.substr(from, html.find('<', from) - from));
  std::vector<std::uint8_t> bytes(1 << 20);
  uLongf size = bytes.size();
  EXPECT_EQ(uncompress(bytes.data(), &size, packed.data(), packed.size()), Z_OK);
  bytes.resize(size);
  return bytes;
}

/// What the page says of its parts.
inline nlohmann::json index_of(const std::string& html) {
  const std::vector<std::uint8_t> bytes = part_of(html, "index");
  return nlohmann::json::parse(std::string(bytes.begin(), bytes.end()));
}

/// The weight that a byte of a page stands for.
inline double weight_of(std::uint8_t code) { return code == 0 ? 0.0 : std::exp2((code - 255) / 16.0); }

}  // namespace saccade::test
