// The kernels for AVX2, FMA and F16C. Only what stands between the pragmas is compiled for them.
#include "cpu/prelude.h"

#ifdef SACCADE_X86

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif

#define SACCADE_ISA_NAMESPACE avx2
#include "cpu/simd_avx2.h"

#include "cpu/exp2_polynomial.h"
#include "cpu/kernel_table.h"

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace saccade::cpu {
const KernelSet kAvx2Kernels = avx2::kernel_table(Isa::avx2, kAvx2KernelsF64);
}

#endif
