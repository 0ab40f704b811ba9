// The colors and width of standard output, decided once from the terminal and the environment.
#pragma once

#include <saccade/heatmap.h>

#include <string>
#include <string_view>

namespace saccade::cli {

/// Properties of standard output for writing results.
struct Terminal {
  TerminalColor color = TerminalColor::none;
  int width = 100;

  /// Colors as in terminal_color of heatmap.h; the terminal's width, or 100 columns without a terminal.
  static Terminal of_standard_output();

  std::string bold(std::string_view text) const { return painted("1", text); }
  std::string faint(std::string_view text) const { return painted("2", text); }
  std::string good(std::string_view text) const { return painted("32", text); }
  std::string bad(std::string_view text) const { return painted("1;31", text); }
  std::string accent(std::string_view text) const { return painted("36", text); }
  std::string heading(std::string_view text) const { return painted("1;36", text); }

 private:
  std::string painted(std::string_view code, std::string_view text) const;
};

/// Text from a file or an argument made safe to show: control characters, which could control a terminal, and
/// bytes that are not UTF-8 become '?'.
std::string visible(std::string_view text);

}  // namespace saccade::cli
