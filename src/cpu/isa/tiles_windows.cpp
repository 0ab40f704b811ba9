#include "cpu/isa/features.h"

#ifdef SACCADE_X86

#include <windows.h>

namespace saccade::cpu {

// Windows 11 and Server 2022 have the function. Without it there is no way to know whether tiles are kept: Wine,
// for one, runs on a Linux that refuses them to whoever has not asked.
bool may_use_tiles() {
  using Enable = BOOL(WINAPI*)(DWORD64);
  constexpr DWORD64 kTileData = DWORD64{1} << 18;
  const HMODULE kernel = GetModuleHandleW(L"kernel32.dll");
  if (kernel == nullptr) return false;
  const auto enable = reinterpret_cast<Enable>(
      reinterpret_cast<void*>(GetProcAddress(kernel, "EnableProcessOptionalXStateFeatures")));
  return enable != nullptr && enable(kTileData) != FALSE;
}

}  // namespace saccade::cpu

#endif
