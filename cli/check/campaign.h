// saccade check --campaign: random problems of every kind, with records, over many runs and machines.
#pragma once

#include "check.h"

namespace saccade::cli {

/// Computes problems whose seeds no record of the folder has, until there are enough or the command is
/// interrupted, and writes a record.
ExitCode run_campaign(const CheckArguments& arguments);

/// Prints what all records of the folder found.
ExitCode summarize_campaign(const CheckArguments& arguments);

}  // namespace saccade::cli
