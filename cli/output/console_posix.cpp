#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

#include "console.h"

namespace saccade::cli::console {

void prepare() {}

bool is_terminal(Stream stream) { return ::isatty(stream == Stream::output ? STDOUT_FILENO : STDERR_FILENO) != 0; }

const char* terminal_name() { return std::getenv("TERM"); }

std::optional<int> columns() {
  winsize size{};
  if (!is_terminal(Stream::output) || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
    return std::nullopt;
  return size.ws_col;
}

}  // namespace saccade::cli::console
