// The kernels for NEON that multiply bf16 pairs; everything else of that level is in neon.cpp.
#include "cpu/simd/prelude.h"

#ifdef SACCADE_NEON_PRODUCTS

SACCADE_TARGET_BEGIN("arch=armv8.2-a+bf16")

#define SACCADE_ISA_NAMESPACE neonbf16
#define SACCADE_BF16_PRODUCT
#include "cpu/simd/neon_bf16.h"

#include "cpu/simd/exp2/polynomial.h"

#include "cpu/isa/attention_table.h"
#include "cpu/isa/limits.h"

SACCADE_TARGET_END

namespace saccade::cpu {
const PairKernels kNeonPairKernels{.attention = neonbf16::attention_table(),
                                   .chains = neonbf16::bf16_pair_chains,
                                   .chain_flops = neonbf16::kBf16ChainFlops};
}

#endif
