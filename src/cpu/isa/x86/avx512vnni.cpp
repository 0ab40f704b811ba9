// The kernels for AVX-512 that multiply bytes (VNNI); everything else of that level is in avx512.cpp.
#include "cpu/simd/prelude.h"

#ifdef SACCADE_X86

SACCADE_TARGET_BEGIN("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")

#define SACCADE_ISA_NAMESPACE avx512vnni
#include "cpu/simd/avx512.h"

#include "cpu/simd/exp2/table.h"

#include "cpu/bytes/products_avx512.h"
#include "cpu/bytes/vector_decode.h"

SACCADE_TARGET_END

namespace saccade::cpu {
const ByteKernels kAvx512ByteKernels{
    .integers = avx512vnni::kDecodeOf<avx512vnni::ByteVectorHead<avx512vnni::ByteProducts<3>>>,
    .integers_for_bf16 = avx512vnni::kDecodeOf<avx512vnni::ByteVectorHead<avx512vnni::ByteProducts<2>>>,
    .has_faster_pairs = true};
}  // namespace saccade::cpu

#endif
