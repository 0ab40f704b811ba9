// The arguments of `saccade run`.
#pragma once

#include <cstdint>
#include <optional>

#include "cli/commands.h"
#include "cli/common/call.h"
#include "cli/common/ranks.h"

namespace saccade::cli {

struct RunArguments {
  CallArguments call;
  NamedPath out{"--output", {}}, lse{"--lse", {}}, weights{"--weights", {}}, scores{"--scores", {}};
  RankArguments ranks;
  std::string sharding = "balanced", method = "automatic";  // of a distributed run
  std::optional<std::int64_t> head_groups{};                // of method grid
  bool decode = false;
  bool check = false;
  bool json = false;
};

/// saccade run --distributed, on each rank.
ExitCode run_distributed(const RunArguments& arguments);

}  // namespace saccade::cli
