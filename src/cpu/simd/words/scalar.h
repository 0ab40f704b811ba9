// Vectors of one 32-bit word in plain C++. See simd/words/avx512.h for what each function means.
#pragma once

#include "cpu/simd/prelude.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

using Words = std::uint64_t;
inline constexpr int kWords = 1;

SACCADE_INLINE Words broadcast_word(std::uint32_t x) { return x; }
SACCADE_INLINE Words every_second_word(std::uint32_t first) { return first; }
SACCADE_INLINE Words multiply_words(Words a, Words b) { return (a & 0xffffffffu) * (b & 0xffffffffu); }
SACCADE_INLINE Words upper_halves(Words a) { return a >> 32; }
SACCADE_INLINE Words exclusive_or(Words a, Words b) { return a ^ b; }
SACCADE_INLINE Words exclusive_or(Words a, Words b, Words c) { return a ^ b ^ c; }

template <class T>
SACCADE_INLINE void keep_above(T* numbers, Words even, Words odd, std::uint32_t most) {
  if (static_cast<std::uint32_t>(even) <= most) numbers[0] = T{};
  if (static_cast<std::uint32_t>(odd) <= most) numbers[1] = T{};
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
