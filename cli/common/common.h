// Shared by the subcommands: numeric options, token lists, input and output files, messages.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <saccade/tensor.h>

#include "cases/problem.h"
#include "command_line.h"

namespace saccade::cli {

/// Refuses the arguments or the input: `refuse("{} is not a token", name)`.
template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
  throw std::invalid_argument(fmt::format(format, std::forward<Args>(args)...));
}

/// An error's text as one line, without the "[function] " prefix of the library's errors, and made visible (a
/// file name may hold any bytes).
std::string message_line(std::string_view text);

/// The two alignments of causal, for messages about `--causal` without one.
inline constexpr const char* kCausalChoices =
    "top-left: row 0 sees key 0 only, as PyTorch's is_causal and JAX; bottom-right: the last row sees all keys, "
    "as "
    "flash-attn from 2.1 on";

/// A remark of a subcommand on standard error.
void note(std::string_view command, std::string_view text);

/// Adds an option that accepts one finite number. Other text and numbers that are too large are refused.
Option add_number(Command app, const std::string& name, std::optional<double>& value, const std::string& help);

/// Adds an option that accepts one whole decimal number of at least `min`.
Option add_integer(Command app, const std::string& name, std::optional<std::int64_t>& value,
                   const std::string& help, std::int64_t min = std::numeric_limits<std::int64_t>::min());

/// A whole decimal number, or nothing when `text` is anything else.
std::optional<std::int64_t> parse_integer(std::string_view text);

/// A finite decimal number, or nothing when `text` is anything else.
std::optional<double> parse_number(std::string_view text);

/// The two ways to name rows: a list in the argument, or a file with one token per line.
struct TokenOptions {
  std::optional<std::string> list;
  std::optional<std::string> file;

  /// Adds the option `name`, "--tokens", and `name`-file, which exclude each other. `whose` is the end of their
  /// help texts. `old_name`, if there is one, and `old_name`-file are deprecated names of them.
  void add_to(Command app, const std::string& name, const std::string& whose, const std::string& old_name = "");

  bool given() const { return list.has_value() || file.has_value(); }

  /// The tokens; empty when none were given. Throws std::runtime_error for a file that cannot be read and
  /// std::invalid_argument, naming the option, when there are not exactly `count` of them.
  std::vector<std::string> read(std::int64_t count) const;

 private:
  std::string name_;
};

/// "0", "1", ...: the names of rows without given names.
std::vector<std::string> numbered_tokens(std::int64_t count);

/// Tokens for a message: "0 Your, 1 journey, ..."; a long list is cut.
std::string listed(const std::vector<std::string>& tokens);

/// An option and its file, if given.
struct NamedPath {
  std::string option;
  std::optional<std::string> path;
};

/// Throws std::invalid_argument unless every output could be written: its folder exists and is writable, it is
/// not a folder, and no output is the same file as another output or an input. Call it before any computation,
/// so that nothing is written when an argument is wrong.
void require_writable(const std::vector<NamedPath>& outputs, const std::vector<NamedPath>& inputs);

/// The problems in the file of --shapes. Throws std::runtime_error if it cannot be read, and
/// std::invalid_argument for a line that is not a problem and for a file without problems.
std::vector<cases::Problem> load_shapes(const std::string& path);

/// Throws std::invalid_argument when more than one of the inputs is "-".
void require_one_standard_input(const std::vector<NamedPath>& inputs);

/// Whether a picture's file name asks for PNG (true) or, as "-" does, for SVG (false). Throws
/// std::invalid_argument, naming the option, for any other ending.
bool is_png(const NamedPath& picture);

/// A finished picture, as SVG or, where the file's name ends in .png, as PNG. The constructor throws all errors
/// except those of writing.
class RenderedPicture {
 public:
  RenderedPicture(const NamedPath& file, std::string svg);
  /// Writes the file; "-" is standard output.
  void write() const;

 private:
  std::string path_;
  std::string svg_;
  std::vector<std::byte> png_;
};

/// A duration in a suitable unit: "12.3 ms".
std::string duration(double seconds);

}  // namespace saccade::cli
