// The command as a whole, and its subcommands info, heatmap and run in the absence of errors.
#include <gmock/gmock.h>
#ifdef __linux__
#include <sched.h>
#endif
#ifndef _WIN32
#include <sys/wait.h>
#endif

#include <algorithm>
#include <cmath>
#include <limits>

#include "saccade/attention.h"
#include "saccade/random.h"
#include "saccade/runtime.h"
#include "support/cli_support.h"

namespace saccade::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class CliTest : public CommandTest {
 protected:
  /// Random q, k and v as files, and as tensors for the library's own call.
  void write_tensors(const Shape& q_shape, const Shape& kv_shape) {
    TorchGenerator random(1);
    q_ = random.randn(q_shape);
    k_ = random.randn(kv_shape);
    v_ = random.randn(kv_shape);
    save_npy(path("q.npy"), q_);
    save_npy(path("k.npy"), k_);
    save_npy(path("v.npy"), v_);
  }

  Outcome run_attention(std::vector<std::string> more, const Surroundings& surroundings = {}) {
    std::vector<std::string> arguments{"run", "--q", "q.npy", "--k", "k.npy", "--v", "v.npy", "-o", "o.npy"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments, surroundings);
  }

  void expect_same_bits(const std::string& file, const Tensor& wanted) {
    const Tensor found = load_npy(path(file));
    ASSERT_EQ(found.shape(), wanted.shape());
    EXPECT_TRUE(std::ranges::equal(found.values<float>(), wanted.values<float>())) << file;
  }

  Tensor q_, k_, v_;
};

TEST_F(CliTest, HelpEverywhereWithExamples) {
  EXPECT_THAT(run({"--help"}).out, HasSubstr("Start with:"));
  for (const char* command : {"tour", "explain", "run", "heatmap", "info"}) {
    const Outcome help = run({command, "--help"});
    EXPECT_EQ(help.exit_code, 0) << command;
    EXPECT_THAT(help.out, HasSubstr("Examples:\n  saccade")) << command;
    EXPECT_EQ(help.err, "") << command;
  }
}

TEST_F(CliTest, Version) {
  const Outcome outcome = run({"--version"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out, "saccade " + std::string(version()) + "\n");
}

TEST_F(CliTest, InfoTellsWhatTheLibraryTells) {
  const json info = run({"info", "--json"}).json();
  EXPECT_EQ(info.at("version"), version());
  EXPECT_EQ(info.at("cpu"), cpu_name());
  EXPECT_EQ(info.at("built_isas").size(), built_isas().size());
  EXPECT_EQ(info.at("available_isas").size(), available_isas().size());
  EXPECT_EQ(info.at("active_isa"), name_of(active_isa()));
  EXPECT_EQ(info.at("emulated"), is_emulated(active_isa()));
  EXPECT_EQ(info.at("multiplies_f16"), multiplies_f16(active_isa()));
  EXPECT_NE(info.at("compiler"), "");
  EXPECT_THAT(run({"info"}).out, HasSubstr(std::string(version())));
}

TEST_F(CliTest, InfoFollowsTheEnvironment) {
  for (const Isa isa : available_isas()) {
    const std::string name(name_of(isa));
    EXPECT_EQ(run({"info", "--json"}, {.environment = {{"SACCADE_ISA", name}}}).json().at("active_isa"), name);
  }
  EXPECT_EQ(run({"info", "--json"}, {.environment = {{"OMP_NUM_THREADS", "1"}}}).json().at("threads"), 1);
}

#ifdef __linux__
TEST_F(CliTest, InfoCountsTheProcessorsThatItMayUse) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  int first = 0;
  while (!CPU_ISSET(first, &allowed)) ++first;
  const Outcome outcome =
      run_program("taskset", {"--cpu-list", std::to_string(first), SACCADE_COMMAND, "info", "--json"});
  EXPECT_EQ(outcome.json().at("threads"), 1) << outcome.err;
}
#endif

TEST_F(CliTest, InfoSaysThatAnInstructionSetIsNotToBeHad) {
  const Outcome outcome = run({"info", "--json"}, {.environment = {{"SACCADE_ISA", "mmx"}}});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_TRUE(outcome.json().at("active_isa").is_null());
  EXPECT_THAT(outcome.err, StartsWith("saccade info: SACCADE_ISA"));
  EXPECT_THAT(outcome.err, HasSubstr("mmx"));
}

#ifndef _WIN32
TEST_F(CliTest, AFullDiskIsNoSuccess) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "this system has no /dev/full";
  const std::string line = std::string(SACCADE_COMMAND) + " info >/dev/full 2>/dev/null";
  const int status = std::system(line.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 2);
}
#endif

TEST_F(CliTest, HeatmapInTheTerminal) {
  save_npy(path("w.npy"), Tensor::of<float>({{0.75f, 0.25f}, {0.5f, 0.5f}}));
  const Outcome outcome = run({"heatmap", "w.npy", "--labels", "你好,sun", "--title", "Two words"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* part : {"你好", "sun", "0.75", "Two words"}) EXPECT_THAT(outcome.out, HasSubstr(part));
  EXPECT_EQ(outcome.out.find('\x1b'), std::string::npos);
}

TEST_F(CliTest, HeatmapAsAFile) {
  Tensor heads(DType::f64, {1, 2, 3, 4});  // a batch of one, two heads
  std::ranges::fill(heads.values<double>(), 0.25);
  save_npy(path("w.npy"), heads);
  EXPECT_EQ(run({"heatmap", "w.npy", "--labels", "a,b,c", "--key-labels", "w,x,y,z", "-o", "w.svg"}).exit_code, 0);
  EXPECT_THAT(read("w.svg"), HasSubstr("head 1"));
#ifdef SACCADE_HAS_PNG
  EXPECT_EQ(run({"heatmap", "w.npy", "--style", "lines", "-o", "w.png"}).exit_code, 0);
  EXPECT_THAT(read("w.png"), StartsWith("\x89PNG"));
#endif

  const Outcome printed = run({"heatmap", "-", "--labels", "a,b,c", "--key-labels", "w,x,y,z", "-o", "-"},
                              {.standard_input = read("w.npy")});
  EXPECT_EQ(printed.out, read("w.svg"));
}

TEST_F(CliTest, RunIsTheLibrarysAttention) {
  write_tensors({2, 4, 5, 8}, {2, 2, 9, 8});
  Tensor lse(DType::f32, {2, 4, 5});
  Tensor weights(DType::f32, {2, 4, 5, 9});
  const Tensor wanted = attention(q_, k_, v_,
                                  {.scale = 0.5,
                                   .softcap = 3.0,
                                   .causal = Causal::bottom_right,
                                   .window_left = 4,
                                   .lse = lse,
                                   .weights = weights});
  const Outcome outcome =
      run_attention({"--scale", "0.5", "--softcap", "3", "--causal", "bottom-right", "--window", "4,-1", "--lse",
                     "lse.npy", "--weights", "w.npy", "--threads", "2"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("GFLOP/s"));
  expect_same_bits("o.npy", wanted);
  expect_same_bits("lse.npy", lse);
  expect_same_bits("w.npy", weights);
}

TEST_F(CliTest, RunTakesMasksLengthsOffsetsAndTheOtherLayout) {
  write_tensors({2, 5, 4, 8}, {2, 9, 4, 8});
  Tensor mask(DType::boolean, {5, 9});
  for (std::size_t i = 0; i < 45; ++i) mask.values<bool>()[i] = i % 3 != 0;
  const Tensor lengths = Tensor::of<std::int64_t>({7, 4});
  save_npy(path("mask.npy"), mask);
  save_npy(path("lengths.npy"), Tensor::copy_of(lengths, DType::u8));
  const Outcome outcome = run_attention({"--mask", "mask.npy", "--kv-lengths", "lengths.npy", "--query-offset",
                                         "-1", "--causal", "top-left", "--layout", "bshd"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  expect_same_bits("o.npy", attention(q_, k_, v_,
                                      {.causal = Causal::top_left,
                                       .query_offset = -1,
                                       .mask = mask,
                                       .kv_lengths = lengths,
                                       .layout = Layout::bshd}));
}

TEST_F(CliTest, RunReadsEveryRankAndStandardInput) {
  write_tensors({5, 8}, {9, 8});
  const Outcome outcome =
      run({"run", "--q", "-", "--k", "k.npy", "--v", "v.npy", "-o", "o.npy"}, {.standard_input = read("q.npy")});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  expect_same_bits("o.npy", attention(q_, k_, v_));
  write_tensors({3, 5, 8}, {1, 9, 8});
  EXPECT_EQ(run_attention({}).exit_code, 0);
  expect_same_bits("o.npy", attention(q_, k_, v_));
}

TEST_F(CliTest, RunReportsAsJson) {
  write_tensors({2, 5, 8}, {2, 9, 8});
  const json report = run_attention({"--json", "--check", "--threads", "3"}).json();
  EXPECT_EQ(report.at("shape"), json({2, 5, 8}));
  EXPECT_GT(report.at("seconds").get<double>(), 0);
  EXPECT_GT(report.at("gflops").get<double>(), 0);
  EXPECT_EQ(report.at("isa"), name_of(active_isa()));
  EXPECT_EQ(report.at("threads"), 3);
  ASSERT_EQ(report.at("checks").size(), 2u);
  for (const json& check : report.at("checks")) EXPECT_EQ(check.at("holds"), true);
}

TEST_F(CliTest, AFailedCheckExitsWithOne) {
  write_tensors({5, 8}, {9, 8});
  // Scores beyond the range of f32: the reference has them in f64, so no f32 code can agree with it.
  for (Tensor* tensor : {&q_, &k_}) {
    for (float& number : tensor->values<float>()) number = std::copysign(1e30f, number);
  }
  save_npy(path("q.npy"), q_);
  save_npy(path("k.npy"), k_);
  const Outcome outcome = run_attention({"--check"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("check of o fails"));
}

TEST_F(CliTest, OutputsReplaceOldFiles) {
  write_tensors({5, 8}, {9, 8});
  write("o.npy", "old");
  EXPECT_EQ(run_attention({}).exit_code, 0);
  expect_same_bits("o.npy", attention(q_, k_, v_));
  EXPECT_EQ(files().size(), 4u);  // no temporary file is left
}

}  // namespace
}  // namespace saccade::test
