// The core library's instructions, as objdump prints them.
#pragma once

#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>

#include "support/system.h"

namespace saccade::test {

/// The output of `objdump --disassemble --demangle --no-show-raw-insn`; empty if there is no objdump. Where
/// programs run in an emulator, the build has written it to a file.
inline std::string disassembly_of_library() {
#ifdef SACCADE_DISASSEMBLY
  std::ostringstream text;
  text << std::ifstream(SACCADE_DISASSEMBLY, std::ios::binary).rdbuf();
  return text.str();
#else
  const std::string objdump = "'" SACCADE_OBJDUMP "' ";
  try {
    output_of(objdump + "--version 2>&1");
  } catch (const std::runtime_error&) {
    return "";
  }
  return output_of(objdump + "--disassemble --demangle --no-show-raw-insn '" SACCADE_CORE_LIBRARY "'");
#endif
}

}  // namespace saccade::test
