// The kernels in plain C++ in double precision.
#include "cpu/prelude.h"

#define SACCADE_ISA_NAMESPACE scalar_f64
#define SACCADE_SCALAR double
#include "cpu/simd_scalar.h"

#include "cpu/exp2_polynomial.h"

#include "cpu/attention_table.h"

namespace saccade::cpu {
const AttentionKernels kScalarKernelsF64 = scalar_f64::attention_table();
}
