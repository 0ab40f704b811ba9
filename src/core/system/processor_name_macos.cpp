#include <sys/sysctl.h>

#include "core/system/processor_name.h"

namespace saccade {

std::string processor_name() {
  char name[256] = {};
  std::size_t size = sizeof name - 1;
  return sysctlbyname("machdep.cpu.brand_string", name, &size, nullptr, 0) == 0 ? name : "";
}

}  // namespace saccade
