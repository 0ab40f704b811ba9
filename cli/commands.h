// The subcommands of `saccade`: one function each, defined in the file of the same name.
#pragma once

#include <functional>

#include "command_line.h"

namespace saccade::cli {

/// What the process exits with. Everything that is thrown means kBadUsage.
enum ExitCode : int {
  kGood = 0,
  kCheckFailed = 1,  ///< the command ran, and a comparison it was asked to make did not hold
  kBadUsage = 2,     ///< the arguments or the input were refused; nothing was written
};

/// The work of the subcommand that was given, done after all of the command line was understood.
using Action = std::function<ExitCode()>;

// Each adds its subcommand to `app`; parsing that subcommand sets `action`.
void add_bench(Command app, Action& action);
void add_check(Command app, Action& action);
void add_explain(Command app, Action& action);
void add_explain_model(Command app, Action& action);
void add_generate(Command app, Action& action);
void add_heatmap(Command app, Action& action);
void add_info(Command app, Action& action);
void add_inspect(Command app, Action& action);
void add_run(Command app, Action& action);
void add_tour(Command app, Action& action);
void add_train(Command app, Action& action);

}  // namespace saccade::cli
