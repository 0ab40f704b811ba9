#pragma once

#include "backend.h"

namespace saccade::cpu {

/// The back end of this machine's processor.
const Backend& cpu_backend();

}  // namespace saccade::cpu
