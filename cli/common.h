// What the subcommands share: options that are numbers, token lists, input and output files, messages.
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

/// An error's text as one line: without the "[function] " in front of the library's own errors, and made visible
/// (a file name may hold anything).
std::string message_line(std::string_view text);

/// A remark of a subcommand on standard error.
void note(std::string_view command, std::string_view text);

/// Adds an option that takes one finite number. What is no number, or too large for one, is refused.
Option add_number(Command app, const std::string& name, std::optional<double>& value, const std::string& help);

/// Adds an option that takes one whole decimal number of at least `min`.
Option add_integer(Command app, const std::string& name, std::optional<std::int64_t>& value,
                   const std::string& help, std::int64_t min = std::numeric_limits<std::int64_t>::min());

/// A whole decimal number, or nothing when `text` is anything else.
std::optional<std::int64_t> parse_integer(std::string_view text);

/// A finite decimal number, or nothing when `text` is anything else.
std::optional<double> parse_number(std::string_view text);

/// The two ways to name rows: a list in the argument, or a file with one token a line.
struct TokenOptions {
  std::optional<std::string> list;
  std::optional<std::string> file;

  /// Adds `--PREFIXtokens` and `--PREFIXtokens-file`, which exclude each other. `whose` ends their help texts.
  void add_to(Command app, const std::string& prefix, const std::string& whose);

  bool given() const { return list.has_value() || file.has_value(); }

  /// The tokens; empty when none were given. Throws std::runtime_error for a file that cannot be read and
  /// std::invalid_argument, naming the option, when there are not exactly `count` of them.
  std::vector<std::string> read(std::int64_t count) const;

 private:
  std::string name_;
};

/// "0", "1", ...: the names of rows that have none.
std::vector<std::string> numbered_tokens(std::int64_t count);

/// Tokens for a message: "0 Your, 1 journey, ..."; a long list is cut.
std::string listed(const std::vector<std::string>& tokens);

/// An option and the file it names, as far as it was given.
struct NamedPath {
  std::string option;
  std::optional<std::string> path;
};

/// Throws std::invalid_argument unless every output could be written: its folder exists and can be written to, it
/// is no folder itself, and no two outputs, nor an output and an input, are the same file. To be called before
/// anything is computed, so that nothing is written when something is wrong.
void require_writable(const std::vector<NamedPath>& outputs, const std::vector<NamedPath>& inputs);

/// The problems that the file of --shapes holds. Throws std::runtime_error where it cannot be read, and
/// std::invalid_argument for a line that is no problem and for a file without any.
std::vector<cases::Problem> load_shapes(const std::string& path);

/// Throws std::invalid_argument when more than one of the inputs is "-".
void require_one_standard_input(const std::vector<NamedPath>& inputs);

/// Whether a picture's file name asks for PNG (true) or, as "-" does, for SVG (false). Throws
/// std::invalid_argument, naming the option, for any other ending.
bool is_png(const NamedPath& picture);

/// A finished picture, as SVG or, where the file's name ends in .png, as PNG. Everything that can go wrong with it
/// but the writing goes wrong in the constructor.
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

/// A length of time in the unit that suits it: "12.3 ms".
std::string duration(double seconds);

}  // namespace saccade::cli
