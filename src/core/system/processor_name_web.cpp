#include "core/system/processor_name.h"

namespace saccade {

std::string processor_name() { return ""; }  // a page is not told

}  // namespace saccade
