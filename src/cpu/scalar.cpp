// Compiles all kernels (forward.h, backward.h, decode.h, ..., which kernel_table.h collects) in plain C++, for
// every processor.
#include "cpu/prelude.h"

#define SACCADE_ISA_NAMESPACE scalar
#define SACCADE_SCALAR float
#include "cpu/simd_scalar.h"

#include "cpu/exp2_polynomial.h"
#include "cpu/kernel_table.h"

namespace saccade::cpu {
const KernelSet kScalarKernels = scalar::kernel_table(Isa::scalar, kScalarKernelsF64);
}
