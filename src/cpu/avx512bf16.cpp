// The kernels for AVX-512 with products of bf16 pairs; those of other types are the same as in avx512.cpp.
#include "cpu/prelude.h"

#ifdef SACCADE_X86

#if defined(__clang__)
#pragma clang attribute push( \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,avx512bf16"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,avx512bf16")
#endif

#define SACCADE_ISA_NAMESPACE avx512bf16
#define SACCADE_BF16_PRODUCT
#include "cpu/simd_avx512.h"

#include "cpu/exp2_table.h"
#include "cpu/kernel_table.h"

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace saccade::cpu {
const KernelSet kAvx512Bf16Kernels = avx512bf16::kernel_table(Isa::avx512bf16, kAvx512KernelsF64);
}

#endif
