// The kernels on AMX tiles for attention over f32.
#ifdef SACCADE_X86

#include "cpu/isa/x86/avx512amx.h"

namespace saccade::cpu {
const AmxAttention kAmxF32 = avx512amx::kAmxAttentionOf<float>;
}

#endif
