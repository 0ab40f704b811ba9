// The checks of kernels for this level. See tests/cpu/checks.
#include "cpu/checks/findings.h"
#include "cpu/checks/plain.h"
#include "cpu/simd/prelude.h"

#ifdef SACCADE_X86

#include "cpu/amx/tables.h"

SACCADE_TARGET_BEGIN("avx2,fma,f16c")

#define SACCADE_ISA_NAMESPACE checks_avx2_amx_twin
#define SACCADE_AMX
#include "cpu/simd/avx2.h"

#include "cpu/amx/twin.h"

#include "cpu/simd/exp2/polynomial.h"

#include "cpu/amx/words_twin.h"

#include "cpu/checks/tile_bytes.h"
#include "cpu/checks/tile_packing.h"
#include "cpu/checks/tile_vectors.h"
#include "cpu/checks/tile_words.h"
#include "cpu/checks/tiles.h"

SACCADE_TARGET_END

namespace saccade::test {

std::vector<Check> checks_of_avx2_amx_twin() {
  using namespace cpu::checks_avx2_amx_twin;
  return join(
      {kTileChecks, kTileF16Checks, kTileWordChecks, kTileVectorChecks, kTilePackingChecks, kTileByteChecks});
}

}  // namespace saccade::test

#endif
