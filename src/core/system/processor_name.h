// What the maker calls this processor.
#pragma once

#include <string>

namespace saccade {

/// "AMD EPYC 9R14", as the operating system or the processor says; "" if neither does.
std::string processor_name();

}  // namespace saccade
