// `saccade completion`: scripts that make shells complete subcommands, options and their values.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "commands.h"

namespace saccade::cli {
namespace {

using Commands = std::vector<CommandDescription>;

/// Escapes text for single quotes of bash and zsh.
std::string in_quotes(std::string_view text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

std::string joined(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, " ")); }

std::string bash_values(const CommandDescription& command) {
  std::string cases;
  for (const OptionDescription& option : command.options) {
    if (!option.takes_value || option.names.empty()) continue;
    std::vector<std::string> patterns;
    for (const std::string& name : option.names) patterns.push_back(fmt::format("'{} {}'", command.name, name));
    // Without words, the shell completes file names.
    cases += fmt::format("      {}) words={} ;;\n", fmt::join(patterns, "|"), in_quotes(joined(option.choices)));
  }
  return cases;
}

std::string bash_options(const CommandDescription& command) {
  std::vector<std::string> names, positional;
  for (const OptionDescription& option : command.options) {
    names.insert(names.end(), option.names.begin(), option.names.end());
    if (option.names.empty()) positional.insert(positional.end(), option.choices.begin(), option.choices.end());
  }
  return fmt::format("          {}) options={} positional={} ;;\n", command.name, in_quotes(joined(names)),
                     in_quotes(joined(positional)));
}

std::string bash(const Commands& commands) {
  std::vector<std::string> names;
  std::string values, options;
  for (const CommandDescription& command : commands) {
    names.push_back(command.name);
    values += bash_values(command);
    options += bash_options(command);
  }
  return fmt::format(R"(# Completion of saccade for bash
_saccade() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}} words= options= positional=
  # In --option=value bash makes the sign a word of its own.
  [[ $previous != = ]] || previous=${{COMP_WORDS[COMP_CWORD - 2]}}
  [[ $current != = ]] || current=
  if ((COMP_CWORD == 1)); then
    words='{} --help --version'
  else
    case "${{COMP_WORDS[1]}} $previous" in
{}      *)
        case ${{COMP_WORDS[1]}} in
{}        esac
        words=$positional
        [[ $current != -* ]] || words=$options
        ;;
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _saccade saccade
)",
                     joined(names), values, options);
}

/// Escapes text for a specification of zsh's _arguments, where brackets and colons are separators.
std::string zsh_text(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

std::string zsh_argument(const OptionDescription& option) {
  const std::string values = option.choices.empty() ? "_files" : fmt::format("({})", joined(option.choices));
  if (option.names.empty()) return in_quotes(fmt::format("*:{}:{}", zsh_text(option.help), values));
  std::vector<std::string> specifications;
  for (const std::string& name : option.names) {
    const std::string value = option.takes_value ? fmt::format(":value:{}", values) : "";
    specifications.push_back(in_quotes(fmt::format("*{}[{}]{}", name, zsh_text(option.help), value)));
  }
  return joined(specifications);
}

std::string zsh(const Commands& commands) {
  std::string names, cases;
  for (const CommandDescription& command : commands) {
    names += fmt::format("    {}\n", in_quotes(command.name + ":" + zsh_text(command.help)));
    cases += fmt::format("    {})\n      _arguments", command.name);
    for (const OptionDescription& option : command.options) cases += " \\\n        " + zsh_argument(option);
    cases += " ;;\n";
  }
  return fmt::format(R"(#compdef saccade
# Completion of saccade for zsh
_saccade() {{
  local -a commands=(
{}  )
  if ((CURRENT == 2)); then
    _describe 'subcommand' commands
    return
  fi
  local subcommand=$words[2]
  shift words
  ((CURRENT--))
  case $subcommand in
{}  esac
}}
if [[ $funcstack[1] == _saccade ]]; then
  _saccade "$@"
else
  compdef _saccade saccade
fi
)",
                     names, cases);
}

/// Escapes text for single quotes of fish, where a backslash escapes too.
std::string fish_quotes(std::string_view text) {
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') result += '\\';
    result += c;
  }
  return result + "'";
}

std::string fish_option(const CommandDescription& command, const OptionDescription& option) {
  std::string line = fmt::format("complete -c saccade -n '__fish_seen_subcommand_from {}'", command.name);
  for (const std::string& name : option.names) {
    line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  }
  if (option.takes_value && !option.names.empty()) line += " -r";
  if (!option.choices.empty()) line += fmt::format(" -f -a {}", fish_quotes(joined(option.choices)));
  return line + fmt::format(" -d {}\n", fish_quotes(option.help));
}

std::string fish(const Commands& commands) {
  std::string script = "# Completion of saccade for fish\n";
  for (const CommandDescription& command : commands) {
    script += fmt::format("complete -c saccade -n __fish_use_subcommand -f -a {} -d {}\n", command.name,
                          fish_quotes(command.help));
    for (const OptionDescription& option : command.options) {
      if (!option.names.empty() || !option.choices.empty()) script += fish_option(command, option);
    }
  }
  return script;
}

}  // namespace

void add_completion(const CommandLine& command_line, Action& action) {
  const Command command =
      command_line.program().add_subcommand("completion", "A script with which a shell completes this command");
  const auto shell = std::make_shared<std::string>();
  command.add_option("shell", *shell, "The shell").type_name("SHELL").required().one_of({"bash", "zsh", "fish"});
  command.footer(
      "Examples:\n"
      "  source <(saccade completion bash)\n"
      "  saccade completion zsh >~/.zfunc/_saccade\n"
      "  saccade completion fish >~/.config/fish/completions/saccade.fish");
  command.callback([&command_line, &action, shell] {
    action = [&command_line, shell] {
      const Commands commands = command_line.describe();
      const std::string script = *shell == "bash"  ? bash(commands)
                                 : *shell == "zsh" ? zsh(commands)
                                                   : fish(commands);
      std::fputs(script.c_str(), stdout);
      return kGood;
    };
  });
}

}  // namespace saccade::cli
