// The kernels for NEON in double precision.
#include "cpu/simd/prelude.h"

#ifdef SACCADE_ARM64

#define SACCADE_ISA_NAMESPACE neon_f64
#include "cpu/simd/neon_f64.h"

#include "cpu/simd/exp2/polynomial.h"

#include "cpu/isa/attention_table.h"

namespace saccade::cpu {
const AttentionKernels kNeonKernelsF64 = neon_f64::attention_table();
}

#endif
