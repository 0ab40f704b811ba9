// The kernels of avx512amx*.cpp on the software twin of AMX's instructions, for machines without them.
#include "cpu/simd/prelude.h"

#ifdef SACCADE_X86

#include "cpu/amx/tables.h"

// The twin is for bits, not for speed: with the kernels' unrolled loops and forced inlining, this file took GCC 12
// five times as long (165 s instead of 33).
#undef SACCADE_UNROLL
#undef SACCADE_INLINE
#define SACCADE_UNROLL
#define SACCADE_INLINE inline

SACCADE_TARGET_BEGIN("avx2,fma,f16c")

#define SACCADE_ISA_NAMESPACE avx2_amx_twin
#define SACCADE_AMX
#include "cpu/simd/avx2.h"

#include "cpu/simd/exp2/polynomial.h"

#include "cpu/amx/twin.h"

#include "cpu/amx/words_twin.h"

#include "cpu/isa/amx_table.h"

SACCADE_TARGET_END

namespace saccade::cpu {
namespace avx2_amx_twin {
const ForwardKernels& fallback_kernels() { return emulated_amx_kernels().f32.forward; }
const ProductKernels& fallback_products() { return emulated_amx_kernels().product; }
}  // namespace avx2_amx_twin

const AmxKernels kAmxTwinKernels =
    avx2_amx_twin::amx_table(avx2_amx_twin::kAmxAttentionOf<float16>, avx2_amx_twin::kAmxAttentionOf<float>);
const AmxKernels kAmxFp16TwinKernels = avx2_amx_twin::amx_fp16_table(avx2_amx_twin::kAmxAttentionOf<float16, 1>,
                                                                     avx2_amx_twin::kAmxAttentionOf<float>);
const ByteKernels kAmxTwinByteKernels = avx2_amx_twin::byte_table();
const DecodeKernels kAmxTwinFloat8Kernels = avx2_amx_twin::float8_table();
}  // namespace saccade::cpu

#endif
