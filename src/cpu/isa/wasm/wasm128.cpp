// Compiles all kernels (forward.h, backward.h, decode.h, ..., which kernel_table.h collects) for WebAssembly's
// 128-bit vectors, which a whole module needs or does not: no target region is possible. Doubles take the plain
// kernels: two lanes would gain little, and a module is downloaded.
#include "cpu/simd/prelude.h"

#ifdef SACCADE_WASM

#define SACCADE_ISA_NAMESPACE wasm128
#include "cpu/simd/wasm.h"

#include "cpu/simd/exp2/polynomial.h"

#include "cpu/isa/kernel_table.h"

namespace saccade::cpu {
const KernelSet kWasm128Kernels = wasm128::kernel_table(Isa::wasm128, kScalarKernelsF64);
}

#endif
