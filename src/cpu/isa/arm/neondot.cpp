// The kernels for NEON that multiply four bytes (SDOT); everything else of that level is in neon.cpp.
#include "cpu/simd/prelude.h"

#ifdef SACCADE_NEON_PRODUCTS

SACCADE_TARGET_BEGIN("arch=armv8.2-a+dotprod")

#define SACCADE_ISA_NAMESPACE neondot
#include "cpu/simd/neon.h"

#include "cpu/simd/exp2/polynomial.h"

#include "cpu/bytes/products_neon.h"
#include "cpu/bytes/vector_decode.h"

SACCADE_TARGET_END

namespace saccade::cpu {
const ByteKernels kNeonDotByteKernels{
    .integers = neondot::kDecodeOf<neondot::ByteVectorHead<neondot::ByteProducts>>,
    .integers_for_bf16 = neondot::kDecodeOf<neondot::ByteVectorHead<neondot::ByteProducts>>};
}

#endif
