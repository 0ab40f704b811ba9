// What a training run is made of: the options of `saccade train`, and how a run's folder keeps them.
#pragma once

#include <saccade/training.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../command_line.h"
#include "../common.h"
#include "../json.h"

namespace saccade::cli {

/// A run: its task, its model and how it is trained.
struct RunOptions {
  std::string task;                ///< "induction" or "text"
  std::vector<std::string> files;  ///< of a text, absolute
  std::int64_t vocab_size = 128;   ///< of induction
  GPTModelOptions model{.context_length = 64, .d_model = 64, .num_layers = 2, .num_heads = 2};
  TrainingOptions training{.steps = 2000, .batch_size = 48, .lr = 0.003};

  /// Reads the text where there is one. Throws std::runtime_error for a file that cannot be read.
  std::shared_ptr<const TrainingTask> make_task() const;
};

/// The options as they are given on the command line. Each is optional: what is not given is the run's own when it
/// is resumed, else the default.
class RunArguments {
 public:
  void add_to(Command app);

  /// A new run.
  RunOptions fresh() const;
  /// Throws std::invalid_argument where an argument says something else than the run that is to be resumed.
  void require_same(const RunOptions& run, const std::string& folder) const;

 private:
  std::optional<std::string> task_;
  std::vector<std::string> files_;
  std::vector<std::optional<std::int64_t>> integers_;
  std::vector<std::optional<double>> numbers_;
  std::optional<std::string> optimizer_;
};

/// The run's options as JSON, with the names that they have on the command line.
Json to_json(const RunOptions& run);

/// Reads them again. Throws std::runtime_error that names the file where something is missing or wrong.
RunOptions load_run_options(const std::string& path);

}  // namespace saccade::cli
