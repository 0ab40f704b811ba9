// Vectors of 32-bit words over WebAssembly's 128-bit vectors. See simd/words/avx512.h for what each function
// means.
#pragma once

#include "cpu/simd/prelude.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

using Words = v128_t;
inline constexpr int kWords = 2;

SACCADE_INLINE Words broadcast_word(std::uint32_t x) { return wasm_u64x2_splat(x); }
SACCADE_INLINE Words every_second_word(std::uint32_t first) {
  return wasm_i64x2_add(wasm_u64x2_splat(first), wasm_u64x2_const(0, 2));
}
SACCADE_INLINE v128_t lower_halves(Words a) { return wasm_i32x4_shuffle(a, a, 0, 2, 0, 2); }
SACCADE_INLINE Words multiply_words(Words a, Words b) {
  return wasm_u64x2_extmul_low_u32x4(lower_halves(a), lower_halves(b));
}
SACCADE_INLINE Words upper_halves(Words a) { return wasm_u64x2_shr(a, 32); }
SACCADE_INLINE Words exclusive_or(Words a, Words b) { return wasm_v128_xor(a, b); }
SACCADE_INLINE Words exclusive_or(Words a, Words b, Words c) { return exclusive_or(exclusive_or(a, b), c); }

SACCADE_INLINE void keep_above(float* numbers, Words even, Words odd, std::uint32_t most) {
  const v128_t words = wasm_i32x4_shuffle(even, odd, 0, 4, 2, 6);
  const v128_t kept = wasm_u32x4_gt(words, wasm_u32x4_splat(most));
  wasm_v128_store(numbers, wasm_v128_and(kept, wasm_v128_load(numbers)));
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
