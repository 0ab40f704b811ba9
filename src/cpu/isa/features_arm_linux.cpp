#include "cpu/isa/features.h"

#ifdef SACCADE_ARM64

#include <sys/auxv.h>

namespace saccade::cpu {

Features machine_features() {
  // Older headers lack the last three.
  constexpr unsigned long kNeon = 1ul << 1, kDotProduct = 1ul << 20, kI8mm = 1ul << 13, kBf16 = 1ul << 14;
  const unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
  return {.neon = (first & kNeon) != 0,
          .dot_product = (first & kDotProduct) != 0,
          .matrices_of_bytes = (second & kI8mm) != 0,
          .products_of_bf16 = (second & kBf16) != 0};
}

}  // namespace saccade::cpu

#endif
