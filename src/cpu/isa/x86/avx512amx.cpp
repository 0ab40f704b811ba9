// The kernels on AMX tiles, but for attention over f16 and f32, which have files of their own: together they would
// take one compiler 8 GB. Everything else of that level is in avx512.cpp and avx512bf16.cpp.
#ifdef SACCADE_X86

#include "cpu/isa/x86/avx512amx.h"

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
