// `saccade completion`: what shells offer after its scripts. (script/deb tries them in zsh and fish too.)
#include <gmock/gmock.h>

#include <regex>
#include <set>

#include "support/cli_support.h"

namespace saccade::test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::UnorderedElementsAre;

class CompletionTest : public CommandTest {
 protected:
  /// What bash offers for the last word of a command line.
  std::set<std::string> offered(const std::vector<std::string>& words) {
    write("completion.bash", run({"completion", "bash"}).out);
    std::vector<std::string> arguments{
        "--norc", "-c",
        "source completion.bash && COMP_WORDS=(\"$@\") && COMP_CWORD=$(($# - 1)) && { _saccade || true; } && "
        "printf '%s\\n' \"${COMPREPLY[@]}\"",
        "bash"};
    arguments.insert(arguments.end(), words.begin(), words.end());
    const Outcome outcome = run_program("bash", arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    std::set<std::string> found;
    std::istringstream lines(outcome.out);
    for (std::string line; std::getline(lines, line);) {
      if (!line.empty()) found.insert(line);
    }
    return found;
  }
};

TEST_F(CompletionTest, OffersSubcommandsOptionsAndValuesInBash) {
  EXPECT_THAT(offered({"saccade", ""}), IsSupersetOf({"tour", "run", "look", "info", "--version"}));
  EXPECT_THAT(offered({"saccade", "exp"}), UnorderedElementsAre("explain"));
  EXPECT_THAT(offered({"saccade", "heatmap", "--sty"}), UnorderedElementsAre("--style"));
  EXPECT_THAT(offered({"saccade", "heatmap", "--style", ""}), UnorderedElementsAre("cells", "lines"));
  EXPECT_THAT(offered({"saccade", "run", "--dtype", "b"}), UnorderedElementsAre("bf16"));
  EXPECT_THAT(offered({"saccade", "run", "--dtype", "=", "b"}), UnorderedElementsAre("bf16"));
  EXPECT_THAT(offered({"saccade", "heatmap", "--style", "="}), UnorderedElementsAre("cells", "lines"));
  EXPECT_THAT(offered({"saccade", "completion", "f"}), UnorderedElementsAre("fish"));
}

TEST_F(CompletionTest, LeavesFilesToBash) {
  EXPECT_THAT(offered({"saccade", "run", "--q", ""}), UnorderedElementsAre());
  EXPECT_THAT(run({"completion", "bash"}).out, HasSubstr("complete -o default -F _saccade saccade"));
}

TEST_F(CompletionTest, KnowsEverySubcommandAndOptionOfTheHelp) {
  const std::regex subcommand_line("^  ([a-z][a-z-]*) +[A-Z]"), option_name("--([a-z0-9-]+)");
  std::map<std::string, std::string> scripts;
  for (const char* shell : {"bash", "zsh", "fish"}) scripts[shell] = run({"completion", shell}).out;
  std::istringstream lines(run({"--help"}).out);
  int subcommands = 0;
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (!std::regex_search(line, match, subcommand_line)) continue;
    const std::string name = match[1];
    ++subcommands;
    EXPECT_THAT(offered({"saccade", name}), Contains(name));
    const std::set<std::string> options = offered({"saccade", name, "--"});
    std::istringstream help(run({name, "--help"}).out);
    for (std::string text; std::getline(help, text);) {
      const std::string head = text.substr(0, text.find("  ", text.find_first_not_of(' ')));
      if (!head.starts_with("  -") || !std::regex_search(head, match, option_name)) continue;
      EXPECT_THAT(options, Contains(match[0])) << name;
      EXPECT_THAT(scripts["fish"], HasSubstr("from " + name + "'")) << name;
      EXPECT_THAT(scripts["fish"], HasSubstr(" -l " + std::string(match[1]))) << name;
      EXPECT_THAT(scripts["zsh"], HasSubstr("*" + std::string(match[0]) + "[")) << name;
    }
  }
  EXPECT_GE(subcommands, 12);
}

TEST_F(CompletionTest, RefusesOtherShells) {
  const Outcome outcome = run({"completion", "tcsh"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("bash"));
}

}  // namespace
}  // namespace saccade::test
