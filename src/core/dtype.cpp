#include "saccade/dtype.h"

#include <array>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/check.h"

namespace saccade {
namespace {

constexpr std::array<std::pair<DType, std::string_view>, 15> kNames = {{
    {DType::f32, "f32"},
    {DType::f64, "f64"},
    {DType::f16, "f16"},
    {DType::bf16, "bf16"},
    {DType::boolean, "bool"},
    {DType::i8, "i8"},
    {DType::i16, "i16"},
    {DType::i32, "i32"},
    {DType::i64, "i64"},
    {DType::u8, "u8"},
    {DType::u16, "u16"},
    {DType::u32, "u32"},
    {DType::u64, "u64"},
    {DType::f8e4m3, "f8e4m3"},
    {DType::i4, "i4"},
}};

// binary32: 1 sign, 8 exponent (bias 127), 23 fraction bits. binary16: 1, 5 (bias 15), 10.
constexpr std::uint32_t kInfinity32 = 0x7F800000;
constexpr std::uint16_t kInfinity16 = 0x7C00;
constexpr std::uint16_t kQuietNan16 = 0x0200;
constexpr int kDroppedBits = 23 - 10;
constexpr std::uint32_t kRebias = (127 - 15) << 23;
constexpr std::uint32_t kSmallestNormal16 = (127 - 14) << 23;  // 2^-14 as binary32
constexpr std::uint32_t kBeyond16 = (127 + 16) << 23;          // 2^16: above every binary16

std::uint16_t magnitude_to_binary16(std::uint32_t magnitude) {
  if (magnitude > kInfinity32) {
    return static_cast<std::uint16_t>(kInfinity16 | kQuietNan16 | ((magnitude >> kDroppedBits) & 0x03FF));
  }
  if (magnitude >= kBeyond16) return kInfinity16;
  if (magnitude < kSmallestNormal16) {
    // The last place of 0.5f is 2^-24, as is that of binary16's denormals, so the addition itself rounds.
    const float sum = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(sum) - std::bit_cast<std::uint32_t>(0.5f));
  }
  const std::uint32_t is_odd = (magnitude >> kDroppedBits) & 1;
  const std::uint32_t half_minus_one = (1U << (kDroppedBits - 1)) - 1;
  return static_cast<std::uint16_t>((magnitude - kRebias + half_minus_one + is_odd) >> kDroppedBits);
}

float binary16_to_magnitude(std::uint16_t magnitude) {
  const std::uint32_t shifted = static_cast<std::uint32_t>(magnitude) << kDroppedBits;
  if (magnitude >= kInfinity16) return std::bit_cast<float>(shifted | kInfinity32);
  if (magnitude < 0x0400) return static_cast<float>(magnitude) * 0x1p-24f;
  return std::bit_cast<float>(shifted + kRebias);
}

// e4m3: 1 sign, 4 exponent (bias 7), 3 fraction bits.
constexpr int kDroppedBits8 = 23 - 3;
constexpr std::uint32_t kRebias8 = (127 - 7) << 23;
constexpr std::uint32_t kSmallestNormal8 = (127 - 6) << 23;  // 2^-6 as binary32
constexpr float kBeyond8 = 464;                              // a tie between 448 and the number that NaN replaces
constexpr std::uint8_t kNan8 = 0x7F;

std::uint8_t magnitude_to_e4m3(std::uint32_t magnitude) {
  const auto value = std::bit_cast<float>(magnitude);
  if (!(value <= kBeyond8)) return kNan8;
  if (magnitude < kSmallestNormal8) {
    // The last place of 2^14 is 2^-9, as is that of e4m3's denormals, so the addition itself rounds.
    const float sum = value + 0x1p14f;
    return static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(sum) - std::bit_cast<std::uint32_t>(0x1p14f));
  }
  const std::uint32_t is_odd = (magnitude >> kDroppedBits8) & 1;
  const std::uint32_t half_minus_one = (1U << (kDroppedBits8 - 1)) - 1;
  return static_cast<std::uint8_t>((magnitude - kRebias8 + half_minus_one + is_odd) >> kDroppedBits8);
}

}  // namespace

float16::float16(float value) {
  const auto bits32 = std::bit_cast<std::uint32_t>(value);
  const std::uint16_t sign = (bits32 >> 16) & 0x8000;
  bits = static_cast<std::uint16_t>(sign | magnitude_to_binary16(bits32 & 0x7FFFFFFF));
}

float16::operator float() const {
  const float magnitude = binary16_to_magnitude(bits & 0x7FFF);
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
}

bfloat16::bfloat16(float value) {
  const auto bits32 = std::bit_cast<std::uint32_t>(value);
  const bool is_nan = (bits32 & 0x7FFFFFFF) > kInfinity32;
  const std::uint32_t is_odd = (bits32 >> 16) & 1;
  bits = static_cast<std::uint16_t>(is_nan ? (bits32 >> 16) | 0x0040 : (bits32 + 0x7FFF + is_odd) >> 16);
}

float8_e4m3::float8_e4m3(float value) {
  const auto bits32 = std::bit_cast<std::uint32_t>(value);
  bits = static_cast<std::uint8_t>((bits32 >> 24 & 0x80) | magnitude_to_e4m3(bits32 & 0x7FFFFFFF));
}

float8_e4m3::operator float() const {
  const std::uint32_t magnitude = bits & 0x7FU, sign = static_cast<std::uint32_t>(bits & 0x80) << 24;
  if (magnitude == kNan8) return std::bit_cast<float>(sign | kInfinity32 | 0x00400000U);
  const float number = magnitude < 8 ? static_cast<float>(magnitude) * 0x1p-9f
                                     : std::bit_cast<float>((magnitude << kDroppedBits8) + kRebias8);
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(number) | sign);
}

std::string_view name_of(DType dtype) {
  for (const auto& [known, name] : kNames) {
    if (known == dtype) return name;
  }
  return "unknown";
}

DType dtype_from_name(std::string_view name) {
  for (const auto& [dtype, known] : kNames) {
    if (known == name) return dtype;
  }
  refuse("dtype_from_name", "name must be that of an element type, such as f32, but it is \"", name, "\"");
}

}  // namespace saccade
