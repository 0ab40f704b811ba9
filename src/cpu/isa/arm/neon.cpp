// Compiles all kernels (forward.h, backward.h, decode.h, ..., which kernel_table.h collects) for NEON, which every
// 64-bit Arm processor has: no target region is needed.
#include "cpu/simd/prelude.h"

#ifdef SACCADE_ARM64

#define SACCADE_ISA_NAMESPACE neon
#include "cpu/simd/neon.h"

#include "cpu/simd/exp2/polynomial.h"

#include "cpu/isa/kernel_table.h"

namespace saccade::cpu {
const KernelSet kNeonKernels = neon::kernel_table(Isa::neon, kNeonKernelsF64);
#ifdef SACCADE_NEON_PRODUCTS
const KernelSet kNeonDotKernels =
    neon::kernel_table(Isa::neon, kNeonKernelsF64, nullptr, nullptr, &kNeonDotByteKernels);
const KernelSet kNeonBf16Kernels =
    neon::kernel_table(Isa::neonbf16, kNeonKernelsF64, &kNeonPairKernels, nullptr, &kNeonMatrixByteKernels);
#endif
}  // namespace saccade::cpu

#endif
