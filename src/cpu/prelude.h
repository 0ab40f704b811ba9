// Every standard header that kernels use, included before a target region opens: an inline function of the
// standard library compiled inside one would carry its instructions into the whole program.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "attention/params.h"
#include "attention/visibility.h"
#include "cpu/kernels.h"
#include "saccade/dtype.h"

#ifdef SACCADE_X86
#include <immintrin.h>
#endif

/// Accumulators stay in registers only when every loop over them is unrolled.
#define SACCADE_UNROLL _Pragma("GCC unroll 32")
#define SACCADE_INLINE inline __attribute__((always_inline))

/// What lies between these two is compiled for the instructions named, "avx2,fma" say; nothing else is.
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

/// The compiler moves no access to memory across this: for the few places where the order of instructions is the
/// point.
SACCADE_INLINE void keep_order() { asm volatile("" ::: "memory"); }

/// The compiler forgets where an address comes from, and so computes it here, once: it would move one for every
/// operand out of a loop and onto the stack.
template <class T>
SACCADE_INLINE T* as_computed(T* p) {
  asm("" : "+r"(p));
  return p;
}

}  // namespace saccade::cpu
