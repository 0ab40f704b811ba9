// Forward attention of bf16 on AMX tiles; everything else of that level is in avx512.cpp and avx512bf16.cpp.
#include "cpu/prelude.h"

#ifdef SACCADE_X86

#include "cpu/simd_amx_tables.h"

SACCADE_TARGET_BEGIN("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx2,fma,f16c")

#define SACCADE_ISA_NAMESPACE avx512amx
#define SACCADE_AMX
#include "cpu/simd_amx.h"

#include "cpu/exp2_polynomial.h"
#include "cpu/forward_amx.h"

SACCADE_TARGET_END

namespace saccade::cpu {
namespace avx512amx {
const ForwardKernels& kernels_of_other_rows() { return kAvx512Kernels.f32.forward; }
}  // namespace avx512amx

const ForwardKernels kAmxForward{
    .plan = avx512amx::plan_forward, .pack_block = avx512amx::pack_block, .attend = avx512amx::forward};
}  // namespace saccade::cpu

#endif
