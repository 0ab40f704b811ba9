// The kernels for AVX-512 in double precision.
#include "cpu/simd/prelude.h"

#ifdef SACCADE_X86

SACCADE_TARGET_BEGIN("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")

#define SACCADE_ISA_NAMESPACE avx512_f64
#include "cpu/simd/avx512_f64.h"

#include "cpu/simd/exp2/polynomial.h"

#include "cpu/isa/attention_table.h"

SACCADE_TARGET_END

namespace saccade::cpu {
const AttentionKernels kAvx512KernelsF64 = avx512_f64::attention_table();
}

#endif
