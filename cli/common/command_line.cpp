#include "command_line.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <sstream>

namespace saccade::cli {
namespace {

constexpr const char* kOneOf = "one_of";
constexpr const char* kHidden = "";  // CLI11 shows no group without a name

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

Option Option::type_name(const std::string& name) const { return {option_->type_name(name), app_}; }

Option Option::required() const { return {option_->required(), app_}; }

Option Option::excludes(Option other) const { return {option_->excludes(other.option_), app_}; }

Option Option::expected(int min, int max) const { return {option_->expected(min, max), app_}; }

Option Option::delimiter(char delimiter) const { return {option_->delimiter(delimiter), app_}; }

Option Option::one_of(const std::vector<std::string>& values, const std::string& hint,
                      const std::vector<std::string>& hidden) const {
  const CLI::Validator member = CLI::IsMember(values);  // CLI11 2.1 cannot copy a constant IsMember with libc++
  const auto check = [member, hint, hidden](std::string& value) {
    if (std::ranges::find(hidden, value) != hidden.end()) return std::string();
    const std::string wrong = member(value);
    return wrong.empty() || hint.empty() ? wrong : wrong + "; " + hint;
  };
  return {option_->check(CLI::Validator(check, member.get_description()), kOneOf), app_};
}

Option Option::between(int min, int max) const { return {option_->check(CLI::Range(min, max)), app_}; }

Option Option::capture_default_str() const { return {option_->capture_default_str(), app_}; }

Option Option::default_str(const std::string& text) const { return {option_->default_str(text), app_}; }

Option Option::deprecated(const std::string& old_name) const {
  CLI::Option* const option = option_;
  CLI::App* const app = app_;
  const std::string new_name = option->get_lnames().empty() ? option->get_name() : "--" + option->get_lnames()[0];
  const CLI::callback_t pass_on = [=](const CLI::results_t& values) {
    const std::string command = app->get_parent()->get_name() + " " + app->get_name();
    std::fputs((command + ": " + old_name + " is deprecated; use " + new_name + "\n").c_str(), stderr);
    option->add_result(values);
    option->run_callback();
    return true;
  };
  app->add_option(old_name, pass_on)->group(kHidden);
  return *this;
}

Command Command::add_deprecated_subcommand(const std::string& old_name, const std::string& description) const {
  CLI::App* const subcommand = app_->add_subcommand(old_name, description);
  subcommand->group(kHidden);
  return Command(subcommand);
}

Command Command::add_subcommand(const std::string& name, const std::string& description) const {
  return Command(app_->add_subcommand(name, description));
}

Option Command::add_option(const std::string& names, std::string& value, const std::string& help) const {
  return {app_->add_option(names, value, help), app_};
}

Option Command::add_option(const std::string& names, std::optional<std::string>& value,
                           const std::string& help) const {
  return {app_->add_option(names, value, help), app_};
}

Option Command::add_option(const std::string& names, std::vector<std::string>& values,
                           const std::string& help) const {
  return {app_->add_option(names, values, help), app_};
}

Option Command::add_option(const std::string& names, std::vector<int>& values, const std::string& help) const {
  return {app_->add_option(names, values, help), app_};
}

Option Command::add_option(const std::string& names, const std::function<void(const std::string&)>& read,
                           const std::string& help) const {
  const CLI::callback_t read_first = [read](const CLI::results_t& values) {
    read(values.front());
    return true;
  };
  return {app_->add_option(names, read_first, help), app_};
}

Option Command::add_flag(const std::string& names, bool& value, const std::string& help) const {
  return {app_->add_flag(names, value, help), app_};
}

Option Command::add_flag(const std::string& names, std::string& value, const std::string& help) const {
  return {app_->add_flag(names, value, help), app_};
}

Option Command::add_flag_callback(const std::string& names, const std::function<void()>& found,
                                  const std::string& help) const {
  return {app_->add_flag_callback(names, found, help), app_};
}

std::string Command::name() const { return app_->get_name(); }

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
    std::ostringstream text;
    app_->exit(request, text, text);
    std::fputs(text.str().c_str(), stdout);
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
    if (command->get_group() == kHidden) continue;
    commands.push_back({.name = command->get_name(), .help = command->get_description(), .options = {}});
    for (CLI::Option* option : command->get_options())
      if (option->get_group() != kHidden) commands.back().options.push_back(description_of(*option));
  }
  return commands;
}

}  // namespace saccade::cli
