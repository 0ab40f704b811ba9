// Every standard header that kernels use, included before a target region opens: the linker may use an inline
// standard function compiled inside a region, with its instructions, in the whole program.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <new>
#include <type_traits>
#include <utility>

#include "backend/attention_params.h"
#include "backend/visibility.h"
#include "core/element_types.h"
#include "core/progress.h"
#include "core/quantized/rows.h"
#include "cpu/kernels.h"
#include "saccade/dtype.h"

#ifdef SACCADE_X86
#include <immintrin.h>
#endif
#ifdef SACCADE_ARM64
#include <arm_neon.h>
#endif
#ifdef SACCADE_WASM
#include <wasm_simd128.h>
#endif

/// Accumulators stay in registers only if every loop over them is unrolled.
#define SACCADE_UNROLL _Pragma("GCC unroll 32")
/// Where a loop over memory is short, compilers would unroll it too, and more is live then than there are
/// registers.
#define SACCADE_ROLLED _Pragma("GCC unroll 1")
#define SACCADE_INLINE inline __attribute__((always_inline))

/// Only the code between these two is compiled for the given instructions, such as "avx2,fma".
#define SACCADE_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define SACCADE_TARGET_BEGIN(features) \
  SACCADE_PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
#define SACCADE_TARGET_END SACCADE_PRAGMA(clang attribute pop)
#else
#define SACCADE_TARGET_BEGIN(features) SACCADE_PRAGMA(GCC push_options) SACCADE_PRAGMA(GCC target(features))
#define SACCADE_TARGET_END SACCADE_PRAGMA(GCC pop_options)
#endif

namespace saccade::cpu {

/// The compiler moves no memory access across this; for the few places where the order of instructions matters.
SACCADE_INLINE void keep_order() { asm volatile("" ::: "memory"); }

/// Hides from the compiler how an address was computed, so that it is computed here, once. Otherwise the compiler
/// moves an address for each operand out of the loop and onto the stack.
template <class T>
SACCADE_INLINE T* as_computed(T* p) {
  asm("" : "+r"(p));
  return p;
}
/// The same for a stride, for which the compiler would otherwise compile a loop twice, for 1 and for others.
SACCADE_INLINE std::int64_t as_computed(std::int64_t stride) {
  asm("" : "+r"(stride));
  return stride;
}

}  // namespace saccade::cpu
