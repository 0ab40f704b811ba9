// Element types of tensors, and the floating-point formats that C++20 has no name for.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#pragma GCC visibility push(default)
namespace saccade {

/// The type of a tensor's elements. `f16` is IEEE 754 binary16, `bf16` the upper half of binary32.
/// Integers and `boolean` (one byte, 0 or 1) serve as masks, lengths and offsets. Keys and values may also be
/// quantized (quantize.h): `i8`, `f8e4m3` (the e4m3 of the OCP 8-bit formats) and `i4`, of which two share a byte.
enum class DType : std::uint8_t { f32, f64, f16, bf16, boolean, i8, i16, i32, i64, u8, u16, u32, u64, f8e4m3, i4 };

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

/// The 8-bit format e4m3 as storage: a sign, 4 bits of exponent (bias 7), 3 of fraction, and no infinities;
/// numbers up to 448. Computes nothing. (OCP 8-bit Floating Point Specification, 2023; `float8_e4m3fn` in
/// ml_dtypes and PyTorch.)
struct float8_e4m3 {
  std::uint8_t bits = 0;  ///< sign, exponent and fraction; 0x7f and 0xff are NaN

  float8_e4m3() = default;
  /// The nearest number to `value`, ties to even; NaN for numbers that round to more than 448, and infinities.
  explicit float8_e4m3(float value);
  operator float() const;  // NOLINT: widening is exact, so it is implicit
  /// The number with these bits.
  static constexpr float8_e4m3 from_bits(std::uint8_t bits) {
    float8_e4m3 value;
    value.bits = bits;
    return value;
  }
};

/// The element type of rows of i4, which are read by rows only: see quantize.h.
struct int4 {};

/// Bytes of one element of type `dtype`; 1 for i4, of which two share a byte: see bytes_of().
constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::boolean:
    case DType::i8:
    case DType::u8:
    case DType::f8e4m3:
    case DType::i4:
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

/// Bytes of `count` neighboring elements of type `dtype`; for i4 an even number of them.
constexpr std::int64_t bytes_of(DType dtype, std::int64_t count) {
  return dtype == DType::i4 ? count / 2 : count * static_cast<std::int64_t>(size_of(dtype));
}

/// "f32", "bf16", "bool", "i64", ...: the name of `dtype` in messages, on the command line and in docs.
std::string_view name_of(DType dtype);

/// The inverse of name_of. Throws std::invalid_argument for an unknown name.
DType dtype_from_name(std::string_view name);

/// Whether `dtype` is f16, bf16, f32 or f64, the types that q and o may have.
constexpr bool is_floating(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::f16 || dtype == DType::bf16;
}

/// Whether `dtype` is i8, i4 or f8e4m3: keys and values of such types are stored with scales (quantize.h).
constexpr bool is_quantized(DType dtype) {
  return dtype == DType::i8 || dtype == DType::i4 || dtype == DType::f8e4m3;
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
  if constexpr (std::is_same_v<T, float8_e4m3>) return DType::f8e4m3;
  if constexpr (std::is_same_v<T, int4>) return DType::i4;
}();

}  // namespace saccade
#pragma GCC visibility pop
