// The command line and its options: a thin layer over CLI11, with its names. Only command_line.cpp includes
// CLI11, which adds seconds of compile time to each file.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace saccade::cli {

/// An option of a command. Every function returns the option.
class Option {
 public:
  /// Sets the placeholder for the value in the help text.
  Option type_name(const std::string& name) const;
  Option required() const;
  /// Refuses a command line that also has `other`.
  Option excludes(Option other) const;
  /// The option accepts from `min` to `max` values.
  Option expected(int min, int max) const;
  /// One argument may hold several values, with `delimiter` between them.
  Option delimiter(char delimiter) const;
  /// Refuses any other value; the message then ends with `hint`. The values of `hidden` are accepted too, but
  /// shown nowhere.
  Option one_of(const std::vector<std::string>& values, const std::string& hint = "",
                const std::vector<std::string>& hidden = {}) const;
  /// Refuses numbers outside [min, max].
  Option between(int min, int max) const;
  /// Shows the variable's current value, or `text`, as the default in the help text.
  Option capture_default_str() const;
  Option default_str(const std::string& text) const;
  /// Accepts one value by an old name too, "--out", and prints a line on standard error that names this option.
  /// Neither the help text nor shell completion shows the old name.
  Option deprecated(const std::string& old_name) const;

 private:
  friend class Command;
  Option(CLI::Option* option, CLI::App* app) : option_(option), app_(app) {}
  CLI::Option* option_;
  CLI::App* app_;
};

/// The program or one of its subcommands, to which options are added. The variables for their values must live
/// until the command line is parsed.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  Command add_subcommand(const std::string& name, const std::string& description) const;
  /// A subcommand under its old name, which neither the help text nor shell completion shows.
  Command add_deprecated_subcommand(const std::string& old_name, const std::string& description) const;

  /// Adds the option `names`, as in "-o,--output"; a name without dashes is a positional argument.
  Option add_option(const std::string& names, std::string& value, const std::string& help) const;
  Option add_option(const std::string& names, std::optional<std::string>& value, const std::string& help) const;
  Option add_option(const std::string& names, std::vector<std::string>& values, const std::string& help) const;
  Option add_option(const std::string& names, std::vector<int>& values, const std::string& help) const;
  /// `read` receives the first value, or "" if an optional value is missing. An exception from it ends parsing.
  Option add_option(const std::string& names, const std::function<void(const std::string&)>& read,
                    const std::string& help) const;

  Option add_flag(const std::string& names, bool& value, const std::string& help) const;
  /// A flag that may have a value, which --name=VALUE gives; alone it is "true".
  Option add_flag(const std::string& names, std::string& value, const std::string& help) const;
  Option add_flag_callback(const std::string& names, const std::function<void()>& found,
                           const std::string& help) const;

  /// The name of the program or subcommand.
  std::string name() const;
  /// Sets the end of the help text.
  void footer(const std::string& text) const;
  /// Sets a function to call when the command was parsed.
  void callback(const std::function<void()>& parsed) const;

 private:
  CLI::App* app_;
};

/// An option, as shell completion needs it.
struct OptionDescription {
  std::vector<std::string> names;    ///< "-o", "--output"; empty: a positional argument
  bool takes_value = false;          ///< also if the value is optional
  std::vector<std::string> choices;  ///< of one_of(); empty: a file or anything else
  std::string help;
};

struct CommandDescription {
  std::string name;
  std::string help;
  std::vector<OptionDescription> options;
};

/// The command line of a program with at most one subcommand.
class CommandLine {
 public:
  CommandLine(const std::string& name, const std::string& description, const std::string& version);
  ~CommandLine();

  Command program() const { return Command(app_.get()); }
  /// Returns false for --help and --version, after printing their text. Throws an exception, whose what() gives
  /// the reason, if the command line is refused.
  bool parse(int argc, char** argv);
  /// The name of the program and, once recognized, of the subcommand: "saccade run".
  std::string name() const;
  /// The subcommands that were added, in their order.
  std::vector<CommandDescription> describe() const;

 private:
  std::unique_ptr<CLI::App> app_;
};

}  // namespace saccade::cli
