// Faults of a machine while the command runs (fault_library.cpp).
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "saccade/io.h"
#include "support/cli_support.h"
#include "support/tensors.h"

namespace saccade::test {

/// Most of the time would go into flushing files to a disk, where memory can be used instead, and into starting
/// threads.
inline const bool is_fast = [] {
  set_variable("OMP_NUM_THREADS", "1");
  const bool has_memory = std::filesystem::exists("/dev/shm");
  if (has_memory) set_variable("TMPDIR", "/dev/shm");
  return has_memory;
}();

/// Files by name, with their contents.
using Files = std::map<std::string, std::string>;

/// A run of the command that reads files in the folder "in" and writes files in the folder "out".
struct Job {
  std::string name;
  std::vector<std::string> arguments;
  std::vector<std::string> outputs;  ///< in "out": what an earlier run has left there
  std::size_t stride = 1;            ///< of the faults that are tried
};

/// What goes wrong.
struct Fault {
  std::string call;  ///< FAULT_CALL of fault_library.cpp, and so on
  std::size_t number = 0;
  std::string error;
  std::string folder{};  ///< "in" or "out"
};

/// A test with the files that jobs read.
class CommandFaults : public CommandTest {
 protected:
  CommandFaults() {
    namespace fs = std::filesystem;
    fs::create_directories(path("in"));
    for (const char* const name : {"q", "k", "v"})
      save_npy(path(std::string("in/") + name + ".npy"), random_tensor({1, 2, 30, 16}, 1));
    Tensor weights = random_tensor({6, 6}, 2);
    for (float& weight : weights.values<float>()) weight = weight * weight;
    save_npy(path("in/w.npy"), weights);
    write("in/labels.txt", "Your\njourney\nstarts\nwith\none\nstep\n");
    write("in/tokens.csv", "token,a,b\nYour,0.43,0.15\njourney,0.55,0.87\n");
    std::string text;
    for (int i = 0; i < 300; ++i) text += "Keys and values " + std::to_string(i) + ".\n";
    write("in/text.txt", text);
    fs::copy(fs::path(SACCADE_SOURCE_DIR) / "tests/data/models/text-encoder", path("in/encoder"),
             fs::copy_options::recursive);
    fs::copy(fs::path(SACCADE_SOURCE_DIR) / "tests/data/models/text-decoder", path("in/decoder"));
  }
  ~CommandFaults() override { std::filesystem::remove_all(reports_); }

  /// Every subcommand that writes files.
  static std::vector<Job> jobs() {
    return {{"run",
             {"run", "--q", "in/q.npy", "--k", "in/k.npy", "--v", "in/v.npy", "-o", "out/o.npy", "--lse",
              "out/lse.npy", "--weights", "out/w.npy"},
             {"o.npy", "lse.npy", "w.npy"}},
            {"heatmap", {"heatmap", "in/w.npy", "--labels-file", "in/labels.txt", "-o", "out/w.svg"}, {"w.svg"}},
            {"inspect",
             {"inspect", "--q", "in/q.npy", "--k", "in/k.npy", "--top-k", "3", "-o", "out/top.npz"},
             {"top.npz"}},
            {"explain", {"explain", "in/tokens.csv", "--heatmap", "out/w.svg"}, {"w.svg"}},
            {"embed", {"embed", "-m", "in/encoder", "--text", "A mask", "-o", "out/e.npy"}, {"e.npy"}},
            {"look", {"look", "-m", "in/decoder", "--text", "A mask", "-o", "out/page.html"}, {"page.html"}},
            training()};
  }

  static Job training() {
    return {"train",
            {"train", "--text", "in/text.txt", "--steps", "4", "--d-model", "16", "--context", "15", "--batch",
             "4", "--heads", "2", "--checkpoint-every", "2", "--heatmaps-at", "2", "-o", "out/run"},
            {},
            7};
  }

  /// Runs a job once more after a fault, as its user would.
  void run_again(const Job& job) {
    std::vector<std::string> arguments = job.arguments;
    if (std::filesystem::exists(path("out/run/config.json")))
      arguments = {"train", "--resume", "--checkpoint-every", "2", "--heatmaps-at", "2", "-o", "out/run"};
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  }

  /// The folder "out" as an earlier run has left it.
  void prepare(const Job& job) const {
    std::filesystem::remove_all(path("out"));
    std::filesystem::create_directories(path("out"));
    for (const std::string& name : job.outputs) write("out/" + name, "old");
  }

  /// What lies in the folder "out", without what a killed program was writing.
  Files outputs() const {
    Files found;
    for (const auto& [name, contents] : files()) {
      const std::string file = std::filesystem::path(name).filename();
      if (name.starts_with("out/") && !file.starts_with(".saccade-")) found[name] = contents;
    }
    return found;
  }

  bool has_temporary_files() const {
    for (const auto& [name, contents] : files())
      if (std::filesystem::path(name).filename().string().starts_with(".saccade-")) return true;
    return false;
  }

  /// The files that a run without faults leaves.
  Files expected_of(const Job& job) {
    prepare(job);
    const Outcome outcome = run(job.arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outputs();
  }

  /// Runs a job with a fault.
  Outcome run_with(const Fault& fault, const Job& job) {
    std::filesystem::remove(report_);
    return run(job.arguments,
               {.environment = {{"LD_PRELOAD", FAULT_LIBRARY},
                                {"FAULT_CALL", fault.call},
                                {"FAULT_NUMBER", std::to_string(fault.number)},
                                {"FAULT_ERROR", fault.error},
                                {"FAULT_FOLDER", std::filesystem::canonical(path(fault.folder)).string()},
                                {"FAULT_REPORT", report_.string()}}});
  }

  /// Whether the fault of the last run has come.
  bool has_come() const { return std::filesystem::exists(report_); }

  /// The path of the call that failed in the last run.
  std::string path_of_fault() const {
    std::ifstream report(report_);
    return {std::istreambuf_iterator<char>(report), {}};
  }

  /// The names of files that only one of the two has, or that differ.
  static std::string differences(const Files& found, const Files& expected) {
    std::string names;
    for (const auto& [name, contents] : found)
      if (!expected.contains(name) || expected.at(name) != contents) names += name + " ";
    for (const auto& [name, contents] : expected)
      if (!found.contains(name)) names += name + " is missing ";
    return names;
  }

  /// Each file is the old or the new one, or is missing in both. A training run also replaces files by others of
  /// its own, which are complete.
  static void expect_old_or_new(const Files& found, const Files& before, const Files& after) {
    for (const auto& [name, contents] : found) {
      const bool is_old = before.contains(name) && before.at(name) == contents;
      const bool is_new = after.contains(name) && after.at(name) == contents;
      EXPECT_TRUE(is_old || is_new || (name.starts_with("out/run/") && is_complete(name, contents)))
          << name << " has " << contents.size() << " bytes of neither file";
    }
    for (const auto& [name, contents] : before) EXPECT_TRUE(found.contains(name)) << name << " is gone";
  }

 private:
  /// Whether the file of a training run is whole.
  static bool is_complete(const std::string& name, const std::string& contents) {
    if (!name.ends_with(".safetensors")) return contents.ends_with(name.ends_with(".svg") ? "</svg>\n" : "\n");
    try {
      return !parse_safetensors(std::as_bytes(std::span(contents))).tensors.empty();
    } catch (const std::runtime_error&) {
      return false;
    }
  }

  const std::filesystem::path reports_ = new_temporary_folder(), report_ = reports_ / "report";
};

}  // namespace saccade::test
