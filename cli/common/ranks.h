// The processes that mpirun started, as the ranks of one command.
#pragma once

#include <saccade/communicator.h>

#include <functional>
#include <optional>
#include <string_view>

#include "cli/commands.h"
#include "command_line.h"

namespace saccade::cli {

/// --distributed and --timeout.
struct RankArguments {
  bool distributed = false;
  std::optional<double> timeout;  // seconds

  void add_options(Command command);
};

/// The ranks of a command.
struct Ranks {
  distributed::Communicator& communicator;
  int threads = 1;  ///< of a call on this rank, so that the ranks of a machine share its cores

  int rank() const { return communicator.rank(); }
  int size() const { return communicator.size(); }
};

/// Initializes MPI, calls f, which does the same on every rank, and finalizes MPI. If f throws on all ranks,
/// rank 0 prints the error in the name of `command`. If ranks cannot reach each other, all processes are ended.
///
/// Throws std::runtime_error if this command was built without MPI, or mpirun belongs to another MPI.
ExitCode with_ranks(std::string_view command, const RankArguments& arguments,
                    const std::function<ExitCode(Ranks&)>& f);

/// Calls f on this rank. If it throws on any rank, throws std::runtime_error with that text on all of them.
void agree(Ranks& ranks, const std::function<void()>& f);

}  // namespace saccade::cli
