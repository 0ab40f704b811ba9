#include "writable.h"

namespace saccade::cli {

bool is_writable(const std::filesystem::path&) { return true; }

}  // namespace saccade::cli
