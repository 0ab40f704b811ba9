#include "cpu/isa/features.h"

#ifdef SACCADE_ARM64

#include <sys/sysctl.h>

#include <cstddef>

namespace saccade::cpu {
namespace {

bool has(const char* name) {
  int value = 0;
  std::size_t size = sizeof value;
  return sysctlbyname(name, &value, &size, nullptr, 0) == 0 && value != 0;
}

}  // namespace

Features machine_features() {
  return {.neon = true,  // part of every processor of a Mac
          .dot_product = has("hw.optional.arm.FEAT_DotProd"),
          .matrices_of_bytes = has("hw.optional.arm.FEAT_I8MM"),
          .products_of_bf16 = has("hw.optional.arm.FEAT_BF16")};
}

}  // namespace saccade::cpu

#endif
