// Compiles all kernels (forward.h, backward.h, decode.h, ..., which kernel_table.h collects) in plain C++, for
// every processor.
#include "cpu/simd/prelude.h"

#define SACCADE_ISA_NAMESPACE scalar
#define SACCADE_SCALAR float
#include "cpu/simd/scalar.h"

#include "cpu/simd/exp2/polynomial.h"

#include "cpu/isa/kernel_table.h"

namespace saccade::cpu {
const KernelSet kScalarKernels = scalar::kernel_table(Isa::scalar, kScalarKernelsF64);
}
