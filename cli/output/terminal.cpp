#include "terminal.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "console.h"

namespace saccade::cli {
namespace {

// The number of bytes of a UTF-8 character with this first byte.
std::size_t length_after(unsigned lead) { return lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1; }

// The number of bytes of the UTF-8 character at the front, or 0 if there is none or it is a control character.
std::size_t visible_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned lead = byte(0);
  if (lead < 0x80) return lead >= 0x20 && lead != 0x7f ? 1 : 0;
  const std::size_t length = std::max<std::size_t>(length_after(lead), 2);
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

// Takes the character at the front of a text, made visible.
std::string_view take_visible(std::string_view& text) {
  const std::size_t length = visible_length(text);
  const std::string_view shown = length == 0 ? "?" : text.substr(0, length);
  text.remove_prefix(std::max<std::size_t>(length, 1));
  return shown;
}

// Whether more bytes may complete the character at the front.
bool is_cut_off(std::string_view text) {
  const bool continues = std::ranges::all_of(text.substr(1), [](char byte) { return (byte & 0xc0) == 0x80; });
  return continues && text.size() < length_after(static_cast<unsigned char>(text.front()));
}

void write(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw std::runtime_error("standard output could not be written");
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
  while (!text.empty()) shown += take_visible(text);
  return shown;
}

TextWriter::TextWriter() : is_terminal_(console::is_terminal(console::Stream::output)) {}

void TextWriter::add(std::string_view piece) {
  if (!is_terminal_) return write(piece);
  const std::string joined = cut_off_.append(piece);
  std::string_view rest = joined;
  std::string shown;
  while (!rest.empty() && !is_cut_off(rest)) {
    if (rest.front() == '\n' || rest.front() == '\t') {
      shown += rest.front();
      rest.remove_prefix(1);
    } else {
      shown += take_visible(rest);
    }
  }
  cut_off_ = rest;
  write(shown);
}

void TextWriter::end() { write(visible(std::exchange(cut_off_, {})) + "\n"); }

}  // namespace saccade::cli
