// The arguments of `saccade check`.
#pragma once

#include <saccade/runtime.h>

#include <optional>
#include <string>
#include <vector>

#include "cases/simplification.h"
#include "cli/commands.h"
#include "cli/common/ranks.h"
#include "problems.h"

namespace saccade::cli {

struct CheckArguments {
  std::optional<std::int64_t> cases, seed, threads;
  std::vector<std::string> isas;
  std::optional<std::string> shapes;
  std::string backend;             // "": the processor's kernels, on each instruction set
  std::vector<std::string> kinds;  // empty: as the other options say
  cases::Simplification simpler;
  std::optional<std::string> campaign;  // the folder of its records
  std::string revision;                 // what its record says of the source
  RankArguments ranks;
  bool backward = false;
  bool summary = false;
  bool json = false;

  std::int64_t number_of_cases() const { return cases.value_or(1000); }
  std::uint64_t first_seed() const { return static_cast<std::uint64_t>(seed.value_or(1)); }
};

/// The kinds of random problems to check.
std::vector<ProblemKind> kinds_of(const CheckArguments& arguments);

/// The instruction sets to check.
std::vector<Isa> isas_of(const CheckArguments& arguments);

/// saccade check --distributed, on each rank.
ExitCode check_distributed(const CheckArguments& arguments);

}  // namespace saccade::cli
