// Element types of tensors, and the two 16-bit floating-point formats that C++20 has no name for.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace [[gnu::visibility("default")]] saccade {

/// The type of a tensor's elements. `f16` is IEEE 754 binary16, `bf16` the upper half of binary32.
/// Integers and `boolean` (one byte, 0 or 1) serve as masks, lengths and offsets.
enum class DType : std::uint8_t { f32, f64, f16, bf16, boolean, i8, i16, i32, i64, u8, u16, u32, u64 };

/// IEEE 754 binary16 as storage: converts to and from float (round to nearest even), computes nothing.
struct float16 {
  std::uint16_t bits = 0;  ///< sign, exponent and fraction

  float16() = default;
  explicit float16(float value);  ///< the nearest number to `value`
  operator float() const;         // NOLINT: widening is exact, so it is implicit
  /// The number with these bits.
  static constexpr float16 from_bits(std::uint16_t bits) {
    float16 value;
    value.bits = bits;
    return value;
  }
};

/// bfloat16 as storage: the sign, exponent and first 7 fraction bits of a float (round to nearest even).
struct bfloat16 {
  std::uint16_t bits = 0;  ///< sign, exponent and fraction

  bfloat16() = default;
  explicit bfloat16(float value);  ///< the nearest number to `value`
  operator float() const {         // NOLINT: widening is exact, so it is implicit
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
  /// The number with these bits.
  static constexpr bfloat16 from_bits(std::uint16_t bits) {
    bfloat16 value;
    value.bits = bits;
    return value;
  }
};

/// Bytes of one element of type `dtype`.
constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::boolean:
    case DType::i8:
    case DType::u8:
      return 1;
    case DType::f16:
    case DType::bf16:
    case DType::i16:
    case DType::u16:
      return 2;
    case DType::f32:
    case DType::i32:
    case DType::u32:
      return 4;
    case DType::f64:
    case DType::i64:
    case DType::u64:
      return 8;
  }
  return 0;
}

/// "f32", "bf16", "bool", "i64", ...: the name of `dtype` in messages, on the command line and in docs.
std::string_view name_of(DType dtype);

/// The inverse of name_of. Throws std::invalid_argument for an unknown name.
DType dtype_from_name(std::string_view name);

/// Whether `dtype` is f16, bf16, f32 or f64.
constexpr bool is_floating(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::f16 || dtype == DType::bf16;
}

/// The DType of a C++ element type: `dtype_of<float> == DType::f32`.
template <class T>
constexpr DType dtype_of = [] {
  if constexpr (std::is_same_v<T, float>) return DType::f32;
  if constexpr (std::is_same_v<T, double>) return DType::f64;
  if constexpr (std::is_same_v<T, float16>) return DType::f16;
  if constexpr (std::is_same_v<T, bfloat16>) return DType::bf16;
  if constexpr (std::is_same_v<T, bool>) return DType::boolean;
  if constexpr (std::is_same_v<T, std::int8_t>) return DType::i8;
  if constexpr (std::is_same_v<T, std::int16_t>) return DType::i16;
  if constexpr (std::is_same_v<T, std::int32_t>) return DType::i32;
  if constexpr (std::is_same_v<T, std::int64_t>) return DType::i64;
  if constexpr (std::is_same_v<T, std::uint8_t>) return DType::u8;
  if constexpr (std::is_same_v<T, std::uint16_t>) return DType::u16;
  if constexpr (std::is_same_v<T, std::uint32_t>) return DType::u32;
  if constexpr (std::is_same_v<T, std::uint64_t>) return DType::u64;
}();

}  // namespace saccade
