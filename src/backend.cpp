#include "backend.h"

#include "cpu/cpu_backend.h"

namespace saccade {

const Backend& active_backend() { return cpu::cpu_backend(); }

}  // namespace saccade
