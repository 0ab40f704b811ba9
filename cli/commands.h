// The subcommands of `saccade`: one function each, defined in NAME.cpp or NAME/NAME.cpp.
#pragma once

#include <functional>

#include "cli/common/command_line.h"

namespace saccade::cli {

/// The exit status of the process. Every exception means kBadUsage.
enum ExitCode : int {
  kGood = 0,
  kCheckFailed = 1,  ///< the command ran, and a requested comparison failed
  kBadUsage = 2,     ///< the arguments or the input were refused; nothing was written
};

/// The work of the given subcommand, run after the whole command line is parsed.
using Action = std::function<ExitCode()>;

// Each adds its subcommand to `app`; parsing that subcommand sets `action`.
void add_bench(Command app, Action& action);
void add_check(Command app, Action& action);
/// `command_line`: the command line to complete.
void add_completion(const CommandLine& command_line, Action& action);
void add_embed(Command app, Action& action);
void add_explain(Command app, Action& action);
void add_generate(Command app, Action& action);
void add_heatmap(Command app, Action& action);
void add_info(Command app, Action& action);
void add_inspect(Command app, Action& action);
void add_look(Command app, Action& action);
void add_run(Command app, Action& action);
void add_tour(Command app, Action& action);
void add_train(Command app, Action& action);

}  // namespace saccade::cli
