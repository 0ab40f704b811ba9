#include <fcntl.h>
#include <io.h>
#include <windows.h>

#include <cstdio>
#include <cstdlib>

#include "console.h"

namespace saccade::cli::console {
namespace {

HANDLE handle_of(Stream stream) {
  return GetStdHandle(stream == Stream::output ? STD_OUTPUT_HANDLE : STD_ERROR_HANDLE);
}

}  // namespace

void prepare() {
  for (std::FILE* const stream : {stdin, stdout, stderr}) _setmode(_fileno(stream), _O_BINARY);
  SetConsoleOutputCP(CP_UTF8);
  for (const Stream stream : {Stream::output, Stream::error}) {
    DWORD mode = 0;
    if (GetConsoleMode(handle_of(stream), &mode) != FALSE)
      SetConsoleMode(handle_of(stream), mode | ENABLE_VIRTUAL_TERMINAL_PROCESSING);
  }
}

// _isatty() takes every device for a terminal, NUL too.
bool is_terminal(Stream stream) {
  DWORD mode = 0;
  return GetConsoleMode(handle_of(stream), &mode) != FALSE;
}

const char* terminal_name() {
  if (const char* const name = std::getenv("TERM")) return name;
  DWORD mode = 0;
  const bool has_colors = GetConsoleMode(handle_of(Stream::output), &mode) != FALSE &&
                          (mode & ENABLE_VIRTUAL_TERMINAL_PROCESSING) != 0;
  return has_colors ? "xterm-direct" : nullptr;
}

std::optional<int> columns() {
  CONSOLE_SCREEN_BUFFER_INFO info{};
  if (GetConsoleScreenBufferInfo(handle_of(Stream::output), &info) == FALSE) return std::nullopt;
  return info.srWindow.Right - info.srWindow.Left + 1;
}

}  // namespace saccade::cli::console
