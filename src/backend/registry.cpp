#include "backend/backend.h"

#include "cpu/cpu_backend.h"

namespace saccade {

constinit const Backend* const chosen_backend = &cpu::kCpuBackend;

}  // namespace saccade
