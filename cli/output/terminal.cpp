#include "terminal.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "console.h"

namespace saccade::cli {
namespace {

// The number of bytes of the UTF-8 character at the front, or 0 if there is none or it is a control character.
std::size_t visible_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned lead = byte(0);
  if (lead < 0x80) return lead >= 0x20 && lead != 0x7f ? 1 : 0;
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  unsigned code = lead & (0xffu >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3f);
  }
  constexpr unsigned kFirst[] = {0, 0, 0xa0, 0x800, 0x10000};  // excludes C1 controls and overlong forms
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  // Marks that change the direction of what follows would show a name in another order than its characters have.
  const bool turns = (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
  return lead >= 0xc0 && lead < 0xf8 && code >= kFirst[length] && code < 0x110000 && !surrogate && !turns ? length
                                                                                                          : 0;
}

}  // namespace

Terminal Terminal::of_standard_output() {
  Terminal terminal;
  constexpr int kNarrowest = 40;
  terminal.color = terminal_color(console::is_terminal(console::Stream::output), std::getenv("NO_COLOR"),
                                  std::getenv("COLORTERM"), console::terminal_name());
  if (const std::optional<int> columns = console::columns()) terminal.width = std::max(*columns, kNarrowest);
  return terminal;
}

std::string Terminal::painted(std::string_view code, std::string_view text) const {
  if (color == TerminalColor::none) return std::string(text);
  return fmt::format("\x1b[{}m{}\x1b[0m", code, text);
}

std::string visible(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const std::size_t length = visible_length(text);
    if (length == 0) {
      shown += '?';
    } else {
      shown += text.substr(0, length);
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return shown;
}

}  // namespace saccade::cli
