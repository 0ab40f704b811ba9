// Element types on tiles: into how many bf16 parts their numbers are split, and which numbers tiles can hold.
#pragma once

#include "cpu/simd/prelude.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// The bf16 parts of a number: bf16 is one, f16 the sum of two and f32 of three. With TDPFP16PS a number of f16 is
/// one part of its own type.
template <class T>
inline constexpr int kPartsOf = std::is_same_v<T, float>     ? 3
                                : std::is_same_v<T, float16> ? 2
                                                             : 1;

/// Words of a pair of tiles, and so the distance from one part of an operand to the next.
inline constexpr std::int64_t kPartWords = 512;

template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint32_t>;
template <class T>
inline constexpr BitsOf<T> kNotFinite = static_cast<BitsOf<T>>(std::is_same_v<T, float>      ? 0x7f800000U
                                                               : std::is_same_v<T, bfloat16> ? 0x7f80U
                                                                                             : 0x7c00U);

/// The smallest nonzero magnitudes that tiles can hold: products treat denormals as 0, and the last part of f32
/// must not be one. Values meet weights of about 2^-32. All f16 numbers are large enough.
template <class T>
inline constexpr BitsOf<T> kLeastOfScores = static_cast<BitsOf<T>>(std::is_same_v<T, float> ? (127U - 100) << 23
                                                                                            : 1);
template <class T>
inline constexpr BitsOf<T> kLeastOfValues = static_cast<BitsOf<T>>(std::is_same_v<T, float> ? (127U - 64) << 23
                                                                   : std::is_same_v<T, bfloat16> ? (127U - 80) << 7
                                                                                                 : 1);
template <class T>
inline constexpr BitsOf<T> kLeastOfProducts = std::is_same_v<T, bfloat16> ? 0x0080 : kLeastOfScores<T>;

/// Rows that see at most this many keys by their position are computed by other kernels, for tiles of 32 keys are
/// mostly empty then: f32 takes 1.1 to 4.5 times as long with 16 to 48 keys, f16 and bf16 1.1 to 1.5 times with 8
/// to 16. With causal masks and windows the first rows of a long call see few keys too, and would take both
/// kernels: f32 only, and the first 32 rows, a whole group: 0.63 of the time at S 32, 0.96 at 128 (16 rows: 1.0,
/// 64 rows: 0.61 and 1.05; Granite Rapids).
struct ShortRow {
  std::int64_t keys, keys_of_causal;
};
template <class T>
inline constexpr ShortRow kShortRow = std::is_same_v<T, float>     ? ShortRow{48, 32}
                                      : std::is_same_v<T, float16> ? ShortRow{16, 0}
                                                                   : ShortRow{12, 0};

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
