// The kernels for NEON that multiply matrices of bytes (SMMLA); everything else of that level is in neon.cpp.
#include "cpu/simd/prelude.h"

#ifdef SACCADE_NEON_PRODUCTS

SACCADE_TARGET_BEGIN("arch=armv8.2-a+i8mm")

#define SACCADE_ISA_NAMESPACE neonmatrix
#define SACCADE_MATRIX_PRODUCT
#include "cpu/simd/neon.h"

#include "cpu/simd/exp2/polynomial.h"

#include "cpu/bytes/products_neon.h"
#include "cpu/bytes/vector_decode.h"

SACCADE_TARGET_END

namespace saccade::cpu {
const ByteKernels kNeonMatrixByteKernels{
    .integers = neonmatrix::kDecodeOf<neonmatrix::ByteVectorHead<neonmatrix::ByteProducts>>,
    .integers_for_bf16 = neonmatrix::kDecodeOf<neonmatrix::ByteVectorHead<neonmatrix::ByteProducts>>};
}

#endif
