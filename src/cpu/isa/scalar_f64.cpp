// The kernels in plain C++ in double precision.
#include "cpu/simd/prelude.h"

#define SACCADE_ISA_NAMESPACE scalar_f64
#define SACCADE_SCALAR double
#include "cpu/simd/scalar.h"

#include "cpu/simd/exp2/polynomial.h"

#include "cpu/isa/attention_table.h"

namespace saccade::cpu {
const AttentionKernels kScalarKernelsF64 = scalar_f64::attention_table();
}
