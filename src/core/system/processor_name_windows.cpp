#include <windows.h>

#include "core/system/processor_name.h"

namespace saccade {

std::string processor_name() {
  char name[256] = {};
  DWORD size = sizeof name - 1;
  const LSTATUS status = RegGetValueA(HKEY_LOCAL_MACHINE, "HARDWARE\\DESCRIPTION\\System\\CentralProcessor\\0",
                                      "ProcessorNameString", RRF_RT_REG_SZ, nullptr, name, &size);
  if (status != ERROR_SUCCESS) return "";
  const std::string text = name;
  const std::size_t begin = text.find_first_not_of(' ');  // makers fill up with blanks
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(' ') + 1 - begin);
}

}  // namespace saccade
