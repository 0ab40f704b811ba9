#include "cpu/isa/features.h"

#ifdef SACCADE_X86

namespace saccade::cpu {

bool may_use_tiles() { return false; }  // no Mac has them

}  // namespace saccade::cpu

#endif
