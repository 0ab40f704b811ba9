// The checks of kernels for this level. See tests/cpu/checks.
#include "cpu/checks/findings.h"
#include "cpu/checks/plain.h"
#include "cpu/simd/prelude.h"

#ifdef SACCADE_ARM64

#define SACCADE_ISA_NAMESPACE checks_neon_f64
#include "cpu/simd/neon_f64.h"

#include "cpu/simd/exp2/polynomial.h"

#include "cpu/checks/exp2.h"
#include "cpu/checks/moves.h"
#include "cpu/checks/packing.h"
#include "cpu/checks/tile_products.h"
#include "cpu/checks/vector.h"
#include "cpu/checks/words.h"

namespace saccade::test {

std::vector<Check> checks_of_neon_f64() {
  using namespace cpu::checks_neon_f64;
  return join({kVectorChecks, kMoveChecks, kExp2Checks, kWordChecks, kPackingChecks, kTileProductChecks});
}

}  // namespace saccade::test

#endif
