// The options of `saccade train`, and their storage in a run's folder.
#pragma once

#include <saccade/training.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/common/command_line.h"
#include "cli/common/common.h"
#include "cli/output/json.h"

namespace saccade::cli {

/// A run: its task, its model and its training.
struct RunOptions {
  std::string task;                ///< "induction" or "text"
  std::vector<std::string> files;  ///< of a text, absolute paths
  std::int64_t vocab_size = 128;   ///< of induction
  GPTModelOptions model{.context_length = 64, .d_model = 64, .num_layers = 2, .num_heads = 2};
  TrainingOptions training{.steps = 2000, .batch_size = 48, .lr = 0.003};

  /// Reads the text if there is one. Throws std::runtime_error for a file that cannot be read.
  std::shared_ptr<const TrainingTask> make_task() const;
};

/// The options given on the command line. Each is optional: without it, a resumed run keeps its value, and a new
/// run uses the default.
class RunOptionArguments {
 public:
  void add_to(Command app);

  /// A new run.
  RunOptions fresh() const;
  /// Throws std::invalid_argument if an argument differs from the run to resume.
  void require_same(const RunOptions& run, const std::string& folder) const;

 private:
  std::optional<std::string> task_;
  std::vector<std::string> files_;
  std::vector<std::optional<std::int64_t>> integers_;
  std::vector<std::optional<double>> numbers_;
  std::optional<std::string> optimizer_;
};

/// The run's options as JSON, with the names of the command line.
Json to_json(const RunOptions& run);

/// Reads them from a file. Throws std::runtime_error, naming the file, if something is missing or wrong.
RunOptions load_run_options(const std::string& path);

}  // namespace saccade::cli
