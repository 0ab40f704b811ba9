// Standard output as a terminal: colors and width, decided once from it and the environment, and text that is safe
// on it.
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

/// Writes a text to standard output piece by piece: on a terminal as visible() shows it, except for line ends and
/// tabs, and elsewhere as it is.
class TextWriter {
 public:
  TextWriter();

  /// Writes a piece; on a terminal, the bytes of a last character that is not whole wait for the next piece.
  /// Throws std::runtime_error if that fails, as end() does.
  void add(std::string_view piece);
  /// Writes what waits, and ends the line.
  void end();

 private:
  bool is_terminal_;
  std::string cut_off_;
};

}  // namespace saccade::cli
