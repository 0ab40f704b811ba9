// The kernels for AVX-512 in double precision.
#include "cpu/prelude.h"

#ifdef SACCADE_X86

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")
#endif

#define SACCADE_ISA_NAMESPACE avx512_f64
#include "cpu/simd_avx512_f64.h"

#include "cpu/exp2_polynomial.h"

#include "cpu/attention_table.h"

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace saccade::cpu {
const AttentionKernels kAvx512KernelsF64 = avx512_f64::attention_table();
}

#endif
