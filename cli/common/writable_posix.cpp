#include <unistd.h>

#include "writable.h"

namespace saccade::cli {

bool is_writable(const std::filesystem::path& folder) { return ::access(folder.c_str(), W_OK) == 0; }

}  // namespace saccade::cli
