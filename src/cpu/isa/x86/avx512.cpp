// Compiles all kernels (forward.h, backward.h, decode.h, ..., which kernel_table.h collects) for AVX-512 F, BW, DQ
// and VL. Only the target region is compiled for them.
#include "cpu/simd/prelude.h"

#ifdef SACCADE_X86

SACCADE_TARGET_BEGIN("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")

#define SACCADE_ISA_NAMESPACE avx512
#include "cpu/simd/avx512.h"

#include "cpu/simd/exp2/table.h"

#include "cpu/isa/kernel_table.h"

SACCADE_TARGET_END

namespace saccade::cpu {
const KernelSet kAvx512Kernels = avx512::kernel_table(Isa::avx512, kAvx512KernelsF64);
const KernelSet kAvx512VnniKernels =
    avx512::kernel_table(Isa::avx512, kAvx512KernelsF64, nullptr, nullptr, &kAvx512ByteKernels);
const KernelSet kAvx512VbmiKernels = avx512::kernel_table(Isa::avx512, kAvx512KernelsF64, nullptr, nullptr,
                                                          &kAvx512ByteKernels, &kAvx512Float8Kernels);
const KernelSet kAvx512Bf16Kernels = avx512::kernel_table(Isa::avx512bf16, kAvx512KernelsF64, &kAvx512PairKernels,
                                                          nullptr, &kAvx512ByteKernels, &kAvx512Float8Kernels);
const KernelSet kAvx512AmxKernels = avx512::kernel_table(Isa::avx512amx, kAvx512KernelsF64, &kAvx512PairKernels,
                                                         &kAmxKernels, &kAmxByteKernels, &kAmxFloat8Kernels);
const KernelSet kAvx512AmxFp16Kernels =
    avx512::kernel_table(Isa::avx512amx, kAvx512KernelsF64, &kAvx512PairKernels, &kAmxFp16Kernels,
                         &kAmxByteKernels, &kAmxFloat8Kernels);
}  // namespace saccade::cpu

#endif
