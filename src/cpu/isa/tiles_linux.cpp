#include "cpu/isa/features.h"

#ifdef SACCADE_X86

#include <sys/syscall.h>
#include <unistd.h>

namespace saccade::cpu {

// Refused if an alternate signal stack is too small for the registers (Linux, Documentation/arch/x86/xstate.rst).
bool may_use_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace saccade::cpu

#endif
