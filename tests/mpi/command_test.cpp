// saccade run --distributed and saccade check --distributed under mpirun: the bytes of one process, errors that
// every process shares, and processes that die.
#include <gmock/gmock.h>
#include <saccade/random.h>

#include <chrono>

#include "support/cli_support.h"
#include "support/fault_count.h"

namespace saccade::test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class MpiCommandTest : public CommandTest {
 protected:
  Tensor draw(const std::string& name, const Shape& shape, DType dtype = DType::f32) {
    Tensor tensor = Tensor::copy_of(random_.randn(shape), dtype);
    save_npy(path(name), tensor);
    return tensor;
  }

  void draw_problem() {
    draw("q.npy", {2, 4, 301, 16});
    draw("k.npy", {2, 2, 517, 16});
    draw("v.npy", {2, 2, 517, 24});
  }

  Outcome run_ranks(int ranks, const std::string& program, std::vector<std::string> arguments) {
    std::istringstream words(SACCADE_MPIRUN);
    std::vector<std::string> all;
    for (std::string word; words >> word;) all.push_back(word);
    all.insert(all.end(), {std::to_string(ranks), program});
    all.insert(all.end(), arguments.begin(), arguments.end());
    return run_program("timeout", [&] {
      std::vector<std::string> limited{"60"};
      limited.insert(limited.end(), all.begin(), all.end());
      return limited;
    }());
  }

  /// `saccade run --distributed MORE` for the drawn problem.
  Outcome run_divided(int ranks, std::vector<std::string> more) {
    std::vector<std::string> arguments{"run", "--distributed", "--q", "q.npy", "--k", "k.npy", "--v", "v.npy"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_ranks(ranks, SACCADE_COMMAND, arguments);
  }

  /// The same in one process and in several: the same files.
  void expect_same_files(int ranks, std::vector<std::string> options,
                         const std::vector<std::string>& divided = {}) {
    std::vector<std::string> alone{"run",   "--q", "q.npy",   "--k",   "k.npy",      "--v",
                                   "v.npy", "-o",  "one.npy", "--lse", "one_lse.npy"};
    alone.insert(alone.end(), options.begin(), options.end());
    const Outcome one = run(alone);
    ASSERT_EQ(one.exit_code, 0) << one.err;
    options.insert(options.end(), {"-o", "all.npy", "--lse", "all_lse.npy"});
    options.insert(options.end(), divided.begin(), divided.end());
    const Outcome all = run_divided(ranks, options);
    ASSERT_EQ(all.exit_code, 0) << all.err;
    EXPECT_TRUE(read("one.npy") == read("all.npy"));
    EXPECT_TRUE(read("one_lse.npy") == read("all_lse.npy"));
  }

  TorchGenerator random_{3};
};

TEST_F(MpiCommandTest, WritesTheFileOfOneProcess) {
  draw_problem();
  expect_same_files(3, {"--causal", "bottom-right"});
  expect_same_files(4, {"--window", "40,3"}, {"--sharding", "zigzag"});
  expect_same_files(2, {"--alibi", "--dtype", "bf16"}, {"--sharding", "striped", "--method", "heads"});
  expect_same_files(4, {"--causal", "top-left"}, {"--method", "grid", "--head-groups", "2"});
  expect_same_files(5, {}, {"--sharding", "contiguous", "--method", "stream"});
}

TEST_F(MpiCommandTest, TakesLayoutsPackedBatchesAndSafetensors) {
  const Tensor q = draw("q.npy", {2, 40, 4, 8}), k = draw("k.npy", {2, 61, 2, 8}),
               v = draw("v.npy", {2, 61, 2, 8});
  expect_same_files(3, {"--layout", "bshd"});
  save_safetensors(path("t.safetensors"), {.tensors = {{"q", Tensor::copy_of(q, DType::bf16)},
                                                       {"k", Tensor::copy_of(k, DType::bf16)},
                                                       {"v", Tensor::copy_of(v, DType::bf16)}}});
  for (const int ranks : {1, 3}) {
    const Outcome outcome =
        run_ranks(ranks, SACCADE_COMMAND,
                  {"run", "--distributed", "--q", "t.safetensors:q", "--k", "t.safetensors:k", "--v",
                   "t.safetensors:v", "--layout", "bshd", "-o", "o" + std::to_string(ranks) + ".npy"});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  }
  EXPECT_TRUE(read("o1.npy") == read("o3.npy"));

  draw("q.npy", {70, 4, 8}), draw("k.npy", {70, 2, 8}), draw("v.npy", {70, 2, 8});
  Tensor documents(DType::i64, {4});
  std::ranges::copy(std::vector<std::int64_t>{0, 13, 13, 70}, documents.values<std::int64_t>().begin());
  save_npy(path("documents.npy"), documents);
  expect_same_files(
      3, {"--cu-seqlens-q", "documents.npy", "--cu-seqlens-k", "documents.npy", "--causal", "top-left"});
}

TEST_F(MpiCommandTest, DecodesOverADividedCache) {
  draw("q.npy", {4, 2, 16}), draw("k.npy", {2, 9000, 16}), draw("v.npy", {2, 9000, 16});
  expect_same_files(3, {"--decode", "--causal", "bottom-right"});
}

TEST_F(MpiCommandTest, SaysWhatItComputed) {
  draw_problem();
  const Outcome outcome = run_divided(3, {"-o", "o.npy", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("3 ranks of 1 thread"));
  EXPECT_EQ(outcome.json().at("ranks"), 3);
  EXPECT_EQ(outcome.json().at("shape"), (std::vector{2, 4, 301, 24}));
  EXPECT_EQ(outcome.err.find("saccade run"), outcome.err.rfind("saccade run")) << "only rank 0 speaks";
}

TEST_F(MpiCommandTest, RefusesWhatItCannotDoAndLeavesNothing) {
  draw_problem();
  draw("short.npy", {2, 2, 516, 24});
  const auto before = files();
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{"-o", "o.npy", "--mask", "nix.npy"}, "nix.npy: cannot be opened"},
      {{"-o", "/dev/full"}, "/dev/full: cannot be written: No space left on device"},
      {{"-o", "nix/o.npy"}, "--output: there is no folder nix"},
      {{"-o", "q.npy"}, "--q and --output name the same file"},
      {{"-o", "o.npy", "--v", "short.npy"}, "516"},
      {{"-o", "o.npy", "--k", "-"}, "--k: with --distributed every process reads the file"},
      {{"-o", "o.npy", "--weights", "w.npy"}, "--weights cannot be combined with --distributed"},
      {{"-o", "o.npy", "--method", "heads"}, "method heads needs a kv head for each of the 3 ranks"},
      {{"-o", "o.npy", "--method", "grid"}, "--head-groups belongs to --method grid"},
      {{"-o", "o.npy", "--timeout", "-1"}, "--timeout: expected more than 0"},
  };
  for (const auto& [more, message] : cases) {
    SCOPED_TRACE(message);
    std::vector<std::string> arguments{"run", "--distributed", "--q", "q.npy"};
    for (const char* name : {"k", "v"})
      if (std::ranges::find(more, std::string("--") + name) == more.end())
        arguments.insert(arguments.end(), {std::string("--") + name, std::string(name) + ".npy"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run_ranks(3, SACCADE_COMMAND, arguments);
    EXPECT_NE(outcome.exit_code, 0);
    EXPECT_THAT(outcome.err, HasSubstr(message));
    EXPECT_TRUE(files() == before);
  }
}

TEST_F(MpiCommandTest, ChecksRandomProblems) {
  const Outcome outcome = run_ranks(3, SACCADE_COMMAND, {"check", "--distributed", "--cases", "3", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.json().at("cases"), 3);
  EXPECT_EQ(outcome.json().at("ranks"), 3);
  EXPECT_EQ(outcome.json().at("failed"), 0);
}

TEST_F(MpiCommandTest, NamesTheRankAndTheArgumentOnEveryRank) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"options", "softcap must be the same on every rank, but rank 1"},
      {"shape", "rank 1"},
      {"dtype", "rank 1"},
      {"division", "division"}};
  for (const auto& [what, word] : cases) {
    SCOPED_TRACE(what);
    const Outcome outcome = run_ranks(3, SACCADE_MPI_FAULTS, {what});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    std::istringstream lines(outcome.out);
    std::vector<std::string> messages;
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LT(std::stod(line.substr(line.find(':') + 1)), 1.0) << line;
      messages.push_back(line.substr(line.find(" s: ")));
      EXPECT_THAT(messages.back(), HasSubstr(word));
      EXPECT_EQ(messages.back(), messages.front());
    }
    EXPECT_EQ(messages.size(), 3U) << outcome.out;
  }
}

// At the first message of a rank, the second, the fourth and so on. mpirun ends the others when one is killed,
// before they may say anything; when one has stopped, those that need it wait for 2 s, and the first of them ends
// the program.
TEST_F(MpiCommandTest, DoesNotHangWhenARankStopsOrDies) {
  for (const std::string what : {"stopped", "killed"}) {
    int faults = 0;
    for (int message = 1;; message *= 2, ++faults) {
      SCOPED_TRACE(what + " at message " + std::to_string(message));
      const auto start = std::chrono::steady_clock::now();
      const Outcome outcome = run_ranks(3, SACCADE_MPI_FAULTS, {what, std::to_string(message)});
      EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
      if (outcome.exit_code == 0) break;  // the call had fewer messages
      EXPECT_THAT(outcome.out, Not(HasSubstr("rank 1: ")));
      if (what == "stopped") {
        EXPECT_THAT(outcome.out, ContainsRegex(": 2\\.[0-9]+ s: .*no answer within 2"));
      }
    }
    EXPECT_GE(faults, 3);
    count_faults(static_cast<std::size_t>(faults));
  }
}

}  // namespace
}  // namespace saccade::test
