// Old names of options and subcommands: they work, name the new one on standard error, and are shown nowhere.
#include <gmock/gmock.h>

#include <algorithm>

#include "support/cli_support.h"

namespace saccade::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class DeprecatedNames : public CommandTest {
 protected:
  DeprecatedNames() {
    Tensor matrix(DType::f32, {2, 2});
    std::ranges::fill(matrix.values<float>(), 0.5f);
    save_npy(path("x.npy"), matrix);
    write("names.txt", "a\nb\n");
    write("two.json", R"({"tokens": ["a", "b"], "inputs": [[1, 2], [3, 4]]})");
  }

  void train(const std::string& folder) {
    const Outcome outcome =
        run({"train", "--task", "induction", "--steps", "2", "--layers", "1", "--batch", "2", "--context", "8",
             "--d-model", "8", "--vocab", "20", "-o", folder, "--heatmaps-at", "none"});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  }

  /// Both command lines give the same output, and the old one a line that names the new name.
  void expect_same(const std::vector<std::string>& old, const std::vector<std::string>& current,
                   const std::string& line) {
    const Outcome expected = run(current), outcome = run(old);
    ASSERT_EQ(expected.exit_code, 0) << expected.err;
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(outcome.out, expected.out);
    EXPECT_THAT(outcome.err, HasSubstr(line + "\n"));
    EXPECT_THAT(expected.err, Not(HasSubstr("deprecated")));
  }
};

TEST_F(DeprecatedNames, OfOutputs) {
  const std::vector<std::string> attention{"run", "--q", "x.npy", "--k", "x.npy", "--v", "x.npy"};
  const auto with = [](std::vector<std::string> arguments, const std::vector<std::string>& more) {
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  expect_same(with(attention, {"--out", "a.npy"}), with(attention, {"--output", "b.npy"}),
              "saccade run: --out is deprecated; use --output");
  EXPECT_EQ(read("a.npy"), read("b.npy"));
  expect_same({"explain", "two.json", "--heatmap", "a.svg"}, {"explain", "two.json", "-o", "b.svg"},
              "saccade explain: --heatmap is deprecated; use --output");
  EXPECT_EQ(read("a.svg"), read("b.svg"));
  train("run");
  const Outcome resumed = run({"train", "--resume", "--out", "run"});
  EXPECT_EQ(resumed.exit_code, 0);
  EXPECT_THAT(resumed.err, HasSubstr("saccade train: --out is deprecated; use --output\n"));
}

TEST_F(DeprecatedNames, OfLayouts) {
  const std::vector<std::string> inspect{"inspect", "--q", "x.npy", "--k", "x.npy", "--layout"};
  std::vector<std::string> old = inspect, current = inspect;
  old.emplace_back("blhd");
  current.emplace_back("bshd");
  expect_same(old, current, "saccade inspect: --layout blhd is deprecated; use bshd");
  EXPECT_THAT(run({"run", "--help"}).out, Not(HasSubstr("blhd")));
}

TEST_F(DeprecatedNames, OfLabels) {
  expect_same({"heatmap", "x.npy", "--tokens", "a,b"}, {"heatmap", "x.npy", "--labels", "a,b"},
              "saccade heatmap: --tokens is deprecated; use --labels");
  expect_same({"heatmap", "x.npy", "--key-tokens-file", "names.txt"},
              {"heatmap", "x.npy", "--key-labels-file", "names.txt"},
              "saccade heatmap: --key-tokens-file is deprecated; use --key-labels-file");
  const Outcome both = run({"heatmap", "x.npy", "--tokens", "a,b", "--labels-file", "names.txt"});
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_THAT(both.err, HasSubstr("excludes --labels"));
}

TEST_F(DeprecatedNames, OfModels) {
  train("run");
  expect_same({"generate", "--model", "run", "--prompt", "1 2", "--tokens", "3"},
              {"generate", "-m", "run", "-p", "1 2", "-n", "3"},
              "saccade generate: --tokens is deprecated; use --max-new-tokens");
  expect_same({"explain-model", "--model", "run", "--text", "1 2 1", "--json"},
              {"look", "-m", "run", "--text", "1 2 1", "--json"},
              "saccade explain-model: explain-model is deprecated; use look");
  const Outcome sound = run({"generate", "-m", "run", "--sound", "tone.wav"});
  EXPECT_EQ(sound.exit_code, 2);
  EXPECT_THAT(sound.err, AllOf(HasSubstr("--sound is deprecated; use --audio"),
                               HasSubstr("--audio is for models of speech")));
  const Outcome twice = run({"generate", "-m", "run", "-p", "1 2", "--tokens", "3", "-n", "4"});
  EXPECT_EQ(twice.exit_code, 2);
  EXPECT_THAT(twice.err, HasSubstr("--max-new-tokens"));
}

TEST_F(DeprecatedNames, AreShownNowhere) {
  EXPECT_THAT(run({"--help"}).out, Not(HasSubstr("explain-model")));
  for (const auto& [command, name] : {std::pair("run", "--out "),
                                      {"train", "--out "},
                                      {"generate", "--tokens"},
                                      {"generate", "--sound"},
                                      {"look", "--sound"},
                                      {"heatmap", "--tokens"}})
    EXPECT_THAT(run({command, "--help"}).out, Not(HasSubstr(name))) << command;
  for (const char* const shell : {"bash", "zsh", "fish"})
    EXPECT_THAT(run({"completion", shell}).out,
                AllOf(Not(HasSubstr("explain-model")), Not(HasSubstr("--sound")), Not(HasSubstr("-l sound")),
                      HasSubstr("max-new-tokens"), HasSubstr("audio")))
        << shell;
}

TEST_F(DeprecatedNames, CausalWithoutAnAlignmentIsRefusedWhereItIsAmbiguous) {
  const auto refused = [&](const std::vector<std::string>& arguments) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.out;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("top-left"), HasSubstr("bottom-right"), HasSubstr("PyTorch"),
                                   HasSubstr("flash-attn")));
  };
  const std::vector<std::string> attention{"run", "--q", "x.npy", "--k", "x.npy", "--v", "x.npy", "-o", "o.npy"};
  std::vector<std::string> bare = attention, boolean = attention;
  bare.emplace_back("--causal");
  boolean.insert(boolean.end(), {"--causal", "true"});
  refused(bare);
  refused(boolean);

  write("three.json", R"({"tokens": ["x", "y", "z"], "inputs": [[1, 0], [0, 1], [1, 1]]})");
  refused({"explain", "two.json", "--keys", "three.json", "--causal"});
  refused({"explain", "two.json", "--causal=left"});
  const auto first_row = [&](const std::string& causal) {
    return run({"explain", "two.json", "--keys", "three.json", "--causal=" + causal, "--json"})
        .json()
        .at("heads")
        .at(0)
        .at("weights")
        .at(0);
  };
  EXPECT_EQ(first_row("top-left").at(1), 0.0);
  EXPECT_GT(first_row("bottom-right").at(1), 0.0);
  EXPECT_EQ(first_row("bottom-right").at(2), 0.0);
  EXPECT_EQ(run({"explain", "two.json", "--causal"}).exit_code, 0);  // as many keys as queries
}

}  // namespace
}  // namespace saccade::test
