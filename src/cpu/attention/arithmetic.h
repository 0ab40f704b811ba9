// The arithmetic of the products of attention: multiply-adds of numbers, or of bf16 pairs.
#pragma once

#include "cpu/policy/block_sizes.h"
#include "cpu/simd/math.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// Whether these kernels multiply bf16 pairs: queries, keys and values unchanged, weights rounded to bf16. A step
/// is then two dimensions, or two keys in P V; scores are scaled after the product. The file that compiles them
/// has included their functions (simd/avx512_bf16.h, which describes them).
#ifdef SACCADE_BF16_PRODUCT
inline constexpr bool kPairs = true;
#else
inline constexpr bool kPairs = kAmx;
// Never called; the code for pairs needs the declarations. (AMX multiplies pairs in its own registers.)
SACCADE_INLINE Vec pair_fma_broadcast(const Scalar*, Vec, Vec acc) { return acc; }
template <class A>
SACCADE_INLINE Vec pair_fma(A, Vec, Vec acc) {
  return acc;
}
SACCADE_INLINE Vec pair_fma_from(const Scalar*, Vec, Vec acc) { return acc; }
SACCADE_INLINE Vec round_to_pairs(Vec low, Vec) { return low; }
SACCADE_INLINE Vec interleave_low(Vec even, Vec) { return even; }
SACCADE_INLINE Vec interleave_high(Vec even, Vec) { return even; }
SACCADE_INLINE void order_columns(Vec&, Vec&) {}
SACCADE_INLINE Vec keep_of_pairs(Vec words, bool, bool) { return words; }
SACCADE_INLINE Vec negate_pairs(Vec words) { return words; }
#endif

/// Dimensions of a step, or keys in P V.
inline constexpr int kStepNumbers = kPairs ? 2 : 1;
/// The type of a weight in its product with values.
using Weight = std::conditional_t<kPairs, bfloat16, Scalar>;

SACCADE_INLINE Vec multiply_add(const Scalar* a, Vec b, Vec acc) {
  if constexpr (kPairs)
    return pair_fma_broadcast(a, b, acc);
  else
    return fma_broadcast(a, b, acc);
}

SACCADE_INLINE Vec multiply_add(Vec a, Vec b, Vec acc) {
  if constexpr (kPairs)
    return pair_fma(a, b, acc);
  else
    return fma(a, b, acc);
}

/// acc + a b, where a is a vector in memory.
SACCADE_INLINE Vec multiply_add_from(const Scalar* a, Vec b, Vec acc) {
  if constexpr (kPairs)
    return pair_fma_from(a, b, acc);
  else
    return fma_from(a, b, acc);
}

/// The first step of a chain of multiply-adds: the product alone.
SACCADE_INLINE Vec multiply(Vec a, Vec b) {
  if constexpr (kPairs)
    return pair_fma(a, b, zero());
  else
    return mul(a, b);
}

/// One step of a row of a tile: acc[i] += *a * b[i]. It loads *a once: a broadcast operand for every multiply-add
/// asks a core with two multiply-adds and two loads a clock for 26 loads in 12 clocks. A forward at seqlen 1024
/// takes 0.86 and 0.88 of the time at head_dim 64 and 128 (Zen 5).
template <int kVectors>
SACCADE_INLINE void multiply_add_row(const Scalar* a, const Vec (&b)[kVectors], Vec (&acc)[kVectors]) {
  const Factor factor = factor_from(a);
  SACCADE_UNROLL
  for (int i = 0; i < kVectors; ++i) acc[i] = kPairs ? pair_fma(factor, b[i], acc[i]) : fma(factor, b[i], acc[i]);
}

/// Number of multiply-add steps for n dimensions or keys.
constexpr std::int64_t steps_of(std::int64_t n) { return kPairs ? (n + 1) / 2 : n; }

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
