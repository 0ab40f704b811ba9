// The checks of kernels for this level. See tests/cpu/checks.
#include "cpu/checks/findings.h"
#include "cpu/checks/plain.h"
#include "cpu/simd/prelude.h"

#define SACCADE_ISA_NAMESPACE checks_scalar
#define SACCADE_SCALAR float
#include "cpu/simd/scalar.h"

#include "cpu/simd/exp2/polynomial.h"

#include "cpu/checks/columns.h"
#include "cpu/checks/conversions.h"
#include "cpu/checks/exp2.h"
#include "cpu/checks/moves.h"
#include "cpu/checks/packing.h"
#include "cpu/checks/product.h"
#include "cpu/checks/tile_products.h"
#include "cpu/checks/vector.h"
#include "cpu/checks/words.h"

namespace saccade::test {

std::vector<Check> checks_of_scalar() {
  using namespace cpu::checks_scalar;
  return join({kVectorChecks, kMoveChecks, kColumnChecks, kExp2Checks, kWordChecks, kConversionChecks,
               kProductChecks, kPackingChecks, kTileProductChecks});
}

}  // namespace saccade::test
