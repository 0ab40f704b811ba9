#include "cpu/isa/features.h"

#ifdef SACCADE_ARM64

#include <windows.h>

namespace saccade::cpu {

Features machine_features() {
  // Older headers lack the last two.
  constexpr DWORD kDotProduct = 43, kBf16 = 68, kI8mm = 66;  // PF_ARM_..._INSTRUCTIONS_AVAILABLE
  const auto has = [](DWORD feature) { return IsProcessorFeaturePresent(feature) != FALSE; };
  return {.neon = true,  // Windows needs it
          .dot_product = has(kDotProduct),
          .matrices_of_bytes = has(kI8mm),
          .products_of_bf16 = has(kBf16)};
}

}  // namespace saccade::cpu

#endif
