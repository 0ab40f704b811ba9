#include "page/encode.h"

#include <zlib.h>

#include <algorithm>
#include <bit>
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
    throw std::bad_alloc();  // the only way in which compress2 fails with a buffer of this size
  result.resize(size);
  return result;
}

std::string base64(std::string_view bytes) {
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

std::string coded(const TensorView& weights, bool is_causal) {
  const std::int64_t rows = weights.shape[0], keys = weights.shape[1];
  std::vector<std::uint8_t> codes;
  codes.reserve(static_cast<std::size_t>(is_causal ? rows * (rows + 1) / 2 : rows * keys));
  for (std::int64_t i = 0; i < rows; ++i) {
    const float* const row = weights.as<float>() + i * weights.strides[0];
    for (std::int64_t j = 0; j < (is_causal ? i + 1 : keys); ++j)
      codes.push_back(code_of(row[j * weights.strides[1]]));
  }
  return deflated(codes);
}

std::vector<std::uint8_t> thumbnail_of(const TensorView& weights, std::int64_t rows, std::int64_t columns) {
  std::vector<float> cells(static_cast<std::size_t>(rows * columns));
  for (std::int64_t i = 0; i < weights.shape[0]; ++i) {
    const float* const row = weights.as<float>() + i * weights.strides[0];
    float* const to = cells.data() + i * rows / weights.shape[0] * columns;
    for (std::int64_t j = 0; j < weights.shape[1]; ++j) {
      float& cell = to[j * columns / weights.shape[1]];
      cell = std::max(cell, row[j * weights.strides[1]]);
    }
  }
  std::vector<std::uint8_t> codes(cells.size());
  std::ranges::transform(cells, codes.begin(), code_of);
  return codes;
}

void append_scaled(std::vector<std::uint8_t>& bytes, const TensorView& numbers) {
  const Tensor contiguous = Tensor::copy_of(numbers);
  const std::span<const float> values = contiguous.values<float>();
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  const auto append = [&](std::uint32_t bits, int count) {
    for (int i = 0; i < count; ++i) bytes.push_back(static_cast<std::uint8_t>(bits >> (8 * i)));
  };
  append(std::bit_cast<std::uint32_t>(largest), 4);
  for (const float value : values)
    append(static_cast<std::uint32_t>(largest > 0 ? std::lround(value / largest * 32767.0f) : 0), 2);
}

}  // namespace saccade::page
