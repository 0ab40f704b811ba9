// The kernels for AVX-512 that multiply bf16 pairs; everything else of that level is in avx512.cpp.
#include "cpu/simd/prelude.h"

#ifdef SACCADE_X86

SACCADE_TARGET_BEGIN("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,avx512bf16,avx512vbmi")

#define SACCADE_ISA_NAMESPACE avx512bf16
#define SACCADE_BF16_PRODUCT
#include "cpu/simd/avx512_bf16.h"

#include "cpu/simd/exp2/table.h"

#include "cpu/isa/attention_table.h"
#include "cpu/isa/limits.h"

SACCADE_TARGET_END

namespace saccade::cpu {
const PairKernels kAvx512PairKernels{.attention = avx512bf16::attention_table(),
                                     .chains = avx512bf16::bf16_pair_chains,
                                     .chain_flops = avx512bf16::kBf16ChainFlops};
}

#endif
