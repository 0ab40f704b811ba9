// The checks of kernels for this level. See tests/cpu/checks.
#include "cpu/checks/findings.h"
#include "cpu/checks/plain.h"
#include "cpu/simd/prelude.h"

#ifdef SACCADE_X86

SACCADE_TARGET_BEGIN("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,avx512bf16,avx512vbmi")

#define SACCADE_ISA_NAMESPACE checks_avx512bf16
#define SACCADE_BF16_PRODUCT
#include "cpu/simd/avx512_bf16.h"

#include "cpu/simd/exp2/table.h"

#include "cpu/checks/packing.h"
#include "cpu/checks/pairs.h"
#include "cpu/checks/tile_products.h"

SACCADE_TARGET_END

namespace saccade::test {

std::vector<Check> checks_of_avx512bf16() {
  using namespace cpu::checks_avx512bf16;
  static constexpr test::Check kLookUpChecks[] = {{"look_up_i8", check_look_up<std::int8_t>},
                                                  {"look_up_f8e4m3", check_look_up<float8_e4m3>}};
  return join({kPairChecks, kLookUpChecks, kPackingChecks, kTileProductChecks});
}

}  // namespace saccade::test

#endif
