// The kernels on AMX tiles for attention over f16.
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
const AmxAttention kAmxF16 = avx512amx::kAmxAttentionOf<float16>;
const AmxAttention kAmxFp16 = avx512amx::kAmxAttentionOf<float16, 1>;
}  // namespace saccade::cpu

#endif
