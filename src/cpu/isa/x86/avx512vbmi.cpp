// decode() of keys and values of e4m3 by multiply-adds with AVX-512 VBMI: these kernels load 64 numbers at a time.
#include "cpu/simd/prelude.h"

#ifdef SACCADE_X86

SACCADE_TARGET_BEGIN("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx2,fma,f16c")

#define SACCADE_ISA_NAMESPACE avx512vbmi
#define SACCADE_ONLY_FLOAT8
#include "cpu/simd/avx512_vbmi.h"

#include "cpu/simd/exp2/table.h"

#include "cpu/attention/decode.h"

SACCADE_TARGET_END

namespace saccade::cpu {
const DecodeKernels kAvx512Float8Kernels = avx512vbmi::kDecodeOf<avx512vbmi::DecodeHead>;
}  // namespace saccade::cpu

#endif
