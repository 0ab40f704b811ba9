// The checks of kernels for this level. See tests/cpu/checks.
#include "cpu/checks/findings.h"
#include "cpu/checks/plain.h"
#include "cpu/simd/prelude.h"

#ifdef SACCADE_X86

SACCADE_TARGET_BEGIN("avx2,fma,f16c")

#define SACCADE_ISA_NAMESPACE checks_avx2
#include "cpu/simd/avx2.h"

#include "cpu/simd/exp2/polynomial.h"

#include "cpu/checks/columns.h"
#include "cpu/checks/conversions.h"
#include "cpu/checks/exp2.h"
#include "cpu/checks/lanes.h"
#include "cpu/checks/moves.h"
#include "cpu/checks/packing.h"
#include "cpu/checks/product.h"
#include "cpu/checks/tile_products.h"
#include "cpu/checks/vector.h"
#include "cpu/checks/words.h"

SACCADE_TARGET_END

namespace saccade::test {

std::vector<Check> checks_of_avx2() {
  using namespace cpu::checks_avx2;
  return join({kVectorChecks, kMoveChecks, kColumnChecks, kLaneChecks, kExp2Checks, kWordChecks, kConversionChecks,
               kProductChecks, kPackingChecks, kTileProductChecks});
}

}  // namespace saccade::test

#endif
