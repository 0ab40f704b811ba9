// Whether this user may make files in a folder.
#pragma once

#include <filesystem>

namespace saccade::cli {

/// Whether the system lets this user make files in a folder that exists. On Windows this is known only once a file
/// is made there, so the answer is true.
bool is_writable(const std::filesystem::path& folder);

}  // namespace saccade::cli
