// saccade bench as a user runs it, on quick problems.
#include <gmock/gmock.h>

#include "saccade/runtime.h"
#include "support/cli_support.h"

namespace saccade::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class BenchTest : public CommandTest {
 protected:
  /// Fails unless the arguments are rejected with this line.
  void refused(const std::vector<std::string>& arguments, const std::string& line) {
    std::vector<std::string> all{"bench"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const Outcome outcome = run(all);
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, HasSubstr(line));
  }
};

TEST_F(BenchTest, TimesTheProblemsOfAFile) {
  write("shapes.txt",
        "# three\nh=2 s=200 d=32 causal=top_left\n"
        "h=4 hkv=2 sq=1 sk=900 d=64 dtype=f32,bf16,bf16,f32 page=16 decode\n"
        "s=300 docs=3 dtype=bf16 threads=2 # packed\n");
  const Outcome outcome = run({"bench", "--shapes", "shapes.txt", "--quick", "--threads", "1,2", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json report = outcome.json();
  EXPECT_EQ(report.at("isa"), name_of(active_isa()));
  ASSERT_EQ(report.at("limits").size(), 2u);
  EXPECT_GT(report.at("limits").at(0).at("peak_gflops").get<double>(), 0);
  EXPECT_GE(report.at("repetitions").get<int>(), 15);
  EXPECT_LE(report.at("disturbed").get<int>(), report.at("repetitions").get<int>());
  const json& lines = report.at("sections").at(0).at("lines");
  ASSERT_EQ(lines.size(), 5u);
  for (const json& line : lines) {
    EXPECT_GT(line.at("seconds").get<double>(), 0) << line;
    EXPECT_EQ(line.at("agrees"), true) << line;
  }
  EXPECT_EQ(lines.at(0).at("problem"), "b=1 h=2 s=200 d=32 dtype=f32 causal=top_left");
  EXPECT_EQ(lines.at(1).at("threads"), 2);
  EXPECT_GT(lines.at(1).at("share_of_peak").get<double>(), 0);
  EXPECT_GT(lines.at(2).at("share_of_bandwidth").get<double>(), 0);
  EXPECT_EQ(lines.at(4).at("threads"), 2);
}

TEST_F(BenchTest, TakesTheSectionsThatAreNamed) {
  const Outcome text = run({"bench", "--only", "loop", "--threads", "1"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("ns per iteration"));
  EXPECT_THAT(text.out, HasSubstr("GFLOP/s of f32 multiply-adds"));
  EXPECT_EQ(text.out.find("decode"), std::string::npos);
  EXPECT_EQ(text.err, "");  // no progress bar without a terminal
#ifndef SACCADE_EMULATED
  // Takes a quarter of an hour in an emulator.
  const Outcome markdown = run({"bench", "--only", "packed,loop", "--threads", "1", "--quick", "--markdown"});
  EXPECT_EQ(markdown.exit_code, 0) << markdown.err;
  EXPECT_THAT(markdown.out,
              HasSubstr("| packed batch, f32 | threads | time | times one by one |\n|---|---:|---:|"));
#endif
}

TEST_F(BenchTest, MeasuresTheInstructionSetThatIsForced) {
  const json report =
      run({"bench", "--only", "loop", "--threads", "1", "--json"}, {.environment = {{"SACCADE_ISA", "scalar"}}})
          .json();
  EXPECT_EQ(report.at("isa"), "scalar");
}

TEST_F(BenchTest, AWrongResultIsExitCodeOne) {
  write("shapes.txt", "s=5 scale=1e39\n");  // infinite in f32, not in the reference
  const Outcome text = run({"bench", "--shapes", "shapes.txt", "--quick", "--threads", "1"});
  EXPECT_EQ(text.exit_code, 1);
  EXPECT_THAT(text.out, HasSubstr("WRONG"));
}

TEST_F(BenchTest, RefusesWhatItCannotDo) {
  write("shapes.txt", "h=2 s=3\nh=2 s=x\n");
  refused({"--only", "speed"},
          "saccade bench: --only: there is no section speed; sections are f32, bf16, f16, backward");
  refused({"--shapes", "shapes.txt"}, "saccade bench: shapes.txt:2: s=x: expected a whole number from 0 on");
  refused({"--shapes", "nowhere.txt"}, "saccade bench: --shapes: nowhere.txt cannot be read");
  refused({"--shapes", "shapes.txt", "--only", "f32"}, "excludes");
  refused({"--json", "--markdown"}, "excludes");
  refused({"--threads", "0"}, "--threads");
}

}  // namespace
}  // namespace saccade::test
