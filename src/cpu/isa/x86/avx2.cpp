// Compiles all kernels (forward.h, backward.h, decode.h, ..., which kernel_table.h collects) for AVX2, FMA and
// F16C. Only the target region is compiled for them.
#include "cpu/simd/prelude.h"

#ifdef SACCADE_X86

SACCADE_TARGET_BEGIN("avx2,fma,f16c")

#define SACCADE_ISA_NAMESPACE avx2
#include "cpu/simd/avx2.h"

#include "cpu/simd/exp2/polynomial.h"

#include "cpu/isa/kernel_table.h"

SACCADE_TARGET_END

namespace saccade::cpu {
const KernelSet kAvx2Kernels = avx2::kernel_table(Isa::avx2, kAvx2KernelsF64);
}

#endif
