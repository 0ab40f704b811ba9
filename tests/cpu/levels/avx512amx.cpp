// The checks of kernels for this level. See tests/cpu/checks.
#include "cpu/checks/findings.h"
#include "cpu/checks/plain.h"
#include "cpu/simd/prelude.h"
#include "saccade/runtime.h"

#ifdef SACCADE_X86

#include "cpu/amx/tables.h"

SACCADE_TARGET_BEGIN("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx2,fma,f16c")

#define SACCADE_ISA_NAMESPACE checks_avx512amx
#define SACCADE_AMX
#include "cpu/amx/tiles.h"

#include "cpu/simd/exp2/polynomial.h"

#include "cpu/amx/words.h"

#include "cpu/checks/tile_bytes.h"
#include "cpu/checks/tile_packing.h"
#include "cpu/checks/tile_vectors.h"
#include "cpu/checks/tile_words.h"
#include "cpu/checks/tiles.h"

SACCADE_TARGET_END

namespace saccade::test {

std::vector<Check> checks_of_avx512amx() {
  using namespace cpu::checks_avx512amx;
  return join({kTileChecks,
               multiplies_f16(Isa::avx512amx) ? std::span<const Check>(kTileF16Checks) : std::span<const Check>(),
               kTileWordChecks, kTileVectorChecks, kTilePackingChecks, kTileByteChecks});
}

}  // namespace saccade::test

#endif
