// The kernels on AMX tiles, but for attention over f16 and f32, which have files of their own: together they would
// take one compiler 8 GB. Everything else of that level is in avx512.cpp and avx512bf16.cpp.
#include "cpu/simd/prelude.h"

#ifdef SACCADE_X86

#include "cpu/amx/tables.h"

SACCADE_TARGET_BEGIN("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx2,fma,f16c")

#define SACCADE_ISA_NAMESPACE avx512amx
#define SACCADE_AMX
#include "cpu/amx/tiles.h"

#include "cpu/simd/exp2/polynomial.h"

#include "cpu/amx/words.h"

#include "cpu/isa/amx_table.h"

SACCADE_TARGET_END

namespace saccade::cpu {
namespace avx512amx {
const ForwardKernels& fallback_kernels() { return kAvx512Kernels.f32.forward; }
const ProductKernels& fallback_products() { return kAvx512Kernels.product; }
}  // namespace avx512amx

const AmxKernels kAmxKernels = avx512amx::amx_table(kAmxF16, kAmxF32);
const AmxKernels kAmxFp16Kernels = avx512amx::amx_fp16_table(kAmxFp16, kAmxF32);
const ByteKernels kAmxByteKernels = avx512amx::byte_table();
const DecodeKernels kAmxFloat8Kernels = avx512amx::float8_table();
}  // namespace saccade::cpu

#endif
