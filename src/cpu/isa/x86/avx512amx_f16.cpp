// The kernels on AMX tiles for attention over f16.
#ifdef SACCADE_X86

#include "cpu/isa/x86/avx512amx.h"

namespace saccade::cpu {
const AmxAttention kAmxF16 = avx512amx::kAmxAttentionOf<float16>;
const AmxAttention kAmxFp16 = avx512amx::kAmxAttentionOf<float16, 1>;
}  // namespace saccade::cpu

#endif
