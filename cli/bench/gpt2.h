// One layer's attention of GPT-2 small, for `script/demo`.
#pragma once

#include "cli/commands.h"
#include "report.h"

namespace saccade::cli::bench {

/// Times the layer, compares every number with the reference and prints both.
ExitCode bench_gpt2(const Conditions& conditions, bool as_json);

}  // namespace saccade::cli::bench
