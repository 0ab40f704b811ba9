// The checks of kernels for this level. See tests/cpu/checks.
#include "cpu/checks/findings.h"
#include "cpu/checks/plain.h"
#include "cpu/simd/prelude.h"

#ifdef SACCADE_NEON_PRODUCTS

SACCADE_TARGET_BEGIN("arch=armv8.2-a+bf16")

#define SACCADE_ISA_NAMESPACE checks_neonbf16
#define SACCADE_BF16_PRODUCT
#include "cpu/simd/neon_bf16.h"

#include "cpu/simd/exp2/polynomial.h"

#include "cpu/checks/packing.h"
#include "cpu/checks/pairs.h"
#include "cpu/checks/tile_products.h"

SACCADE_TARGET_END

namespace saccade::test {

std::vector<Check> checks_of_neonbf16() {
  using namespace cpu::checks_neonbf16;
  return join({kPairChecks, kPackingChecks, kTileProductChecks});
}

}  // namespace saccade::test

#endif
