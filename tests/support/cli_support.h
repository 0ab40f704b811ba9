// Runs the command as a user does, in a separate folder, and keeps its output.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "saccade/io.h"
#include "saccade/tensor.h"
#include "support/system.h"

namespace saccade::test {

/// The outcome of one run of the command.
struct Outcome {
  int exit_code = -1;  ///< -1: it did not exit normally
  std::string out, err;

  nlohmann::json json() const { return nlohmann::json::parse(out); }
};

/// The input of a run other than its arguments.
struct Surroundings {
  std::map<std::string, std::string> environment{};
  std::string standard_input{};
};

/// A test with a temporary folder, in which the command runs.
class CommandTest : public ::testing::Test {
 protected:
  CommandTest() {
    std::filesystem::create_directory(folder_);
    std::filesystem::create_directory(said_);
  }
  ~CommandTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  void write(const std::string& name, std::string_view contents) const {
    std::ofstream(path(name), std::ios::binary) << contents;
  }

  std::string read(const std::string& name) const { return contents_of(path(name)); }

  /// Runs `saccade ARGUMENTS` in the folder.
  Outcome run(const std::vector<std::string>& arguments, const Surroundings& surroundings = {}) {
    return run_program(SACCADE_COMMAND, arguments, surroundings);
  }

  Outcome run_program(const std::string& program, const std::vector<std::string>& arguments,
                      const Surroundings& surroundings = {}) {
    std::ofstream(said_ / "in", std::ios::binary) << surroundings.standard_input;
    const int code = exit_code_of(
        {program, arguments, surroundings.environment, folder_, said_ / "in", said_ / "out", said_ / "err"});
    return {code, contents_of(said_ / "out"), contents_of(said_ / "err")};
  }

#ifndef _WIN32
  /// The same with a terminal as standard output.
  Outcome run_on_terminal(const std::vector<std::string>& arguments) {
    std::ofstream(said_ / "in", std::ios::binary);
    const PseudoTerminal terminal;
    const int code =
        exit_code_of({SACCADE_COMMAND, arguments, {}, folder_, said_ / "in", terminal.path(), said_ / "err"});
    return {code, terminal.text(), contents_of(said_ / "err")};
  }
#endif

  /// Every file of the folder with its contents.
  std::map<std::string, std::string> files() const {
    std::map<std::string, std::string> found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_)) {
      const std::string name = std::filesystem::relative(entry.path(), folder_).generic_string();
      found[name] = entry.is_directory() ? "a folder" : contents_of(entry.path());
    }
    return found;
  }

 private:
  static std::string contents_of(const std::filesystem::path& file) {
    std::ostringstream contents;
    contents << std::ifstream(file, std::ios::binary).rdbuf();
    return contents.str();
  }

  const std::filesystem::path root_ = new_temporary_folder();
  const std::filesystem::path folder_ = root_ / "folder";  // where the command runs
  const std::filesystem::path said_ = root_ / "said";      // its input and output
};

/// All numbers of nested arrays, in order.
inline std::vector<double> flat(const nlohmann::json& numbers) {
  if (!numbers.is_array()) return {numbers.get<double>()};
  std::vector<double> all;
  for (const nlohmann::json& part : numbers) {
    const std::vector<double> more = flat(part);
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

}  // namespace saccade::test
