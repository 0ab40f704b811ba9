#include "page/encode.h"

#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace saccade::page {

std::uint8_t code_of(float weight) {
  if (!(weight >= 0x1p-16f)) return 0;
  return static_cast<std::uint8_t>(std::clamp(std::lround(255.0f + 16.0f * std::log2(weight)), 1L, 255L));
}

std::string deflated(std::span<const std::uint8_t> bytes) {
  uLongf size = compressBound(bytes.size());
  std::string result(size, '\0');
  if (compress2(reinterpret_cast<Bytef*>(result.data()), &size, bytes.data(), bytes.size(), Z_BEST_COMPRESSION) !=
      Z_OK)
    throw std::bad_alloc();  // compress2 fails in no other way with a buffer of this size
  result.resize(size);
  return result;
}

std::string base64(const std::string& bytes) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string result;
  result.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t j = 0; j < 3; ++j)
      group = group << 8 | (i + j < bytes.size() ? static_cast<std::uint8_t>(bytes[i + j]) : 0);
    for (std::size_t j = 0; j < 4; ++j)
      result += i + j < bytes.size() + 1 ? kDigits[group >> (18 - 6 * j) & 63] : '=';
  }
  return result;
}

}  // namespace saccade::page
