// saccade check as a user runs it.
#include <gmock/gmock.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "saccade/runtime.h"
#include "support/cli_support.h"

namespace saccade::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class CheckTest : public CommandTest {
 protected:
  /// Fails unless the arguments are rejected with this line.
  void refused(const std::vector<std::string>& arguments, const std::string& line) {
    std::vector<std::string> all{"check"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const Outcome outcome = run(all);
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, HasSubstr(line));
  }
};

TEST_F(CheckTest, FindsRandomProblemsInOrder) {
  const std::vector<Isa> isas = std::getenv("SACCADE_ISA") ? std::vector{active_isa()} : available_isas();
  const Outcome text = run({"check", "--cases", "6", "--seed", "11"});
  EXPECT_EQ(text.exit_code, 0) << text.out << text.err;
  EXPECT_THAT(text.out, HasSubstr("6 cases on " + std::string(name_of(isas.front()))));
  EXPECT_THAT(text.out, HasSubstr("all agree with the reference"));
  EXPECT_EQ(text.err, "");  // no progress bar without a terminal

  const Outcome outcome = run({"check", "--cases", "6", "--seed", "11", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json report = outcome.json();
  EXPECT_EQ(report.at("cases"), 6);
  EXPECT_EQ(report.at("failed"), 0);
  EXPECT_EQ(report.at("isas").size(), isas.size());
  const json& first = report.at("results").at(0);
  EXPECT_EQ(first.at("result"), "o of attention()");
  EXPECT_EQ(first.at("compared"), 6 * isas.size());
  EXPECT_THAT(first.at("worst_case").get<std::string>(), HasSubstr("seed 1"));
}

TEST_F(CheckTest, ChecksTheInstructionSetsThatAreNamed) {
  const json named = run({"check", "--cases", "2", "--isa", "scalar", "--json"}).json();
  EXPECT_EQ(named.at("isas"), json::parse(R"(["scalar"])"));
  const json forced =
      run({"check", "--cases", "2", "--json"}, {.environment = {{"SACCADE_ISA", "scalar"}}}).json();
  EXPECT_EQ(forced.at("isas"), json::parse(R"(["scalar"])"));
  refused({"--isa", "abacus"}, "saccade check: --isa: this machine has no abacus; it has scalar");
}

TEST_F(CheckTest, ChecksTheProblemsOfAFile) {
  write("shapes.txt", "# two\nh=2 s=20 d=8 causal=top_left lse\nh=4 hkv=2 sq=3 sk=40 d=16 mask=f32 # and this\n");
  const Outcome outcome = run({"check", "--shapes", "shapes.txt", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
  EXPECT_EQ(outcome.json().at("cases"), 2);
  write("long.txt", "h=2 s=2500 d=32 lse");
  EXPECT_EQ(run({"check", "--shapes", "long.txt", "--isa", "scalar"}).exit_code, 0);
}

TEST_F(CheckTest, AFailureIsExitCodeOneAndSaysHowToRepeatIt) {
  write("shapes.txt", "s=5 scale=1e39\n");  // infinite in f32, not in the reference
  const Outcome text = run({"check", "--shapes", "shapes.txt", "--isa", "scalar"});
  EXPECT_EQ(text.exit_code, 1);
  EXPECT_THAT(text.out, HasSubstr("FAILED b=1 h=1 s=5 d=64 dtype=f32 scale=1e+39 on scalar"));
  EXPECT_THAT(text.out, HasSubstr("again: saccade check --shapes 'shapes.txt' --seed 1 --isa scalar"));
  EXPECT_THAT(text.out, HasSubstr("1 failed"));
  const Outcome outcome = run({"check", "--shapes", "shapes.txt", "--isa", "scalar", "--json"});
  EXPECT_EQ(outcome.exit_code, 1);
  const json report = outcome.json();
  EXPECT_EQ(report.at("failed"), 1);
  EXPECT_THAT(report.at("failures").at(0).at("text").get<std::string>(), HasSubstr("o of attention(): element"));
}

TEST_F(CheckTest, RefusesWhatItCannotDo) {
  write("shapes.txt", "h=2 s=3\nh=2 s=x\n");
  write("empty.txt", "# nothing\n");
  refused({"--shapes", "shapes.txt"}, "saccade check: shapes.txt:2: s=x: expected a whole number from 0 on");
  refused({"--shapes", "nowhere.txt"}, "saccade check: --shapes: nowhere.txt cannot be read");
  refused({"--shapes", "empty.txt"}, "saccade check: --shapes: empty.txt has no problem in it");
  refused({"--shapes", "shapes.txt", "--cases", "3"}, "excludes");
  refused({"--cases", "0"}, "--cases");
  refused({"--seed", "-1"}, "--seed");
  refused({"--threads", "0"}, "--threads");
}

}  // namespace
}  // namespace saccade::test
