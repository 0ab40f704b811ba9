#include "command_line.h"

#include <CLI/CLI.hpp>

namespace saccade::cli {
namespace {

constexpr const char* kOneOf = "one_of";

/// The values that one_of() named.
std::vector<std::string> choices_of(CLI::Option& option) {
  try {
    const std::string listed = option.get_validator(kOneOf)->get_description();  // {a,b,c}
    return CLI::detail::split(listed.substr(1, listed.size() - 2), ',');
  } catch (const CLI::OptionNotFound&) {
    return {};
  }
}

OptionDescription description_of(CLI::Option& option) {
  OptionDescription described{.names = {},
                              .takes_value = option.get_expected_max() > 0,
                              .choices = choices_of(option),
                              .help = option.get_description()};
  for (const std::string& name : option.get_snames()) described.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) described.names.push_back("--" + name);
  return described;
}

}  // namespace

Option Option::type_name(const std::string& name) const { return Option(option_->type_name(name)); }

Option Option::required() const { return Option(option_->required()); }

Option Option::excludes(Option other) const { return Option(option_->excludes(other.option_)); }

Option Option::expected(int min, int max) const { return Option(option_->expected(min, max)); }

Option Option::delimiter(char delimiter) const { return Option(option_->delimiter(delimiter)); }

Option Option::one_of(const std::vector<std::string>& values) const {
  return Option(option_->check(CLI::IsMember(values), kOneOf));
}

Option Option::between(int min, int max) const { return Option(option_->check(CLI::Range(min, max))); }

Option Option::capture_default_str() const { return Option(option_->capture_default_str()); }

Option Option::default_str(const std::string& text) const { return Option(option_->default_str(text)); }

Command Command::add_subcommand(const std::string& name, const std::string& description) const {
  return Command(app_->add_subcommand(name, description));
}

Option Command::add_option(const std::string& names, std::string& value, const std::string& help) const {
  return Option(app_->add_option(names, value, help));
}

Option Command::add_option(const std::string& names, std::optional<std::string>& value,
                           const std::string& help) const {
  return Option(app_->add_option(names, value, help));
}

Option Command::add_option(const std::string& names, std::vector<std::string>& values,
                           const std::string& help) const {
  return Option(app_->add_option(names, values, help));
}

Option Command::add_option(const std::string& names, std::vector<int>& values, const std::string& help) const {
  return Option(app_->add_option(names, values, help));
}

Option Command::add_option(const std::string& names, const std::function<void(const std::string&)>& read,
                           const std::string& help) const {
  const CLI::callback_t read_first = [read](const CLI::results_t& values) {
    read(values.front());
    return true;
  };
  return Option(app_->add_option(names, read_first, help));
}

Option Command::add_flag(const std::string& names, bool& value, const std::string& help) const {
  return Option(app_->add_flag(names, value, help));
}

Option Command::add_flag_callback(const std::string& names, const std::function<void()>& found,
                                  const std::string& help) const {
  return Option(app_->add_flag_callback(names, found, help));
}

void Command::footer(const std::string& text) const { app_->footer(text); }

void Command::callback(const std::function<void()>& parsed) const { app_->callback(parsed); }

CommandLine::CommandLine(const std::string& name, const std::string& description, const std::string& version)
    : app_(std::make_unique<CLI::App>(description, name)) {
  app_->set_version_flag("--version", version);
  app_->require_subcommand(0, 1);
}

CommandLine::~CommandLine() = default;

bool CommandLine::parse(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
    return true;
  } catch (const CLI::Success& request) {  // --help and --version
    app_->exit(request);
    return false;
  }
}

std::string CommandLine::name() const {
  const std::vector<CLI::App*> parsed = app_->get_subcommands();
  return app_->get_name() + (parsed.empty() ? "" : " " + parsed.front()->get_name());
}

std::vector<CommandDescription> CommandLine::describe() const {
  std::vector<CommandDescription> commands;
  for (CLI::App* command : app_->get_subcommands({})) {
    commands.push_back({.name = command->get_name(), .help = command->get_description(), .options = {}});
    for (CLI::Option* option : command->get_options()) commands.back().options.push_back(description_of(*option));
  }
  return commands;
}

}  // namespace saccade::cli
