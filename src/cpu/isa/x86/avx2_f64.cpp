// The kernels for AVX2 and FMA in double precision.
#include "cpu/simd/prelude.h"

#ifdef SACCADE_X86

SACCADE_TARGET_BEGIN("avx2,fma,f16c")

#define SACCADE_ISA_NAMESPACE avx2_f64
#include "cpu/simd/avx2_f64.h"

#include "cpu/simd/exp2/polynomial.h"

#include "cpu/isa/attention_table.h"

SACCADE_TARGET_END

namespace saccade::cpu {
const AttentionKernels kAvx2KernelsF64 = avx2_f64::attention_table();
}

#endif
