#include "ranks.h"

#include <fmt/format.h>
#include <saccade/runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "common.h"
#ifdef SACCADE_HAS_MPI
#include <saccade/mpi.h>
#include <unistd.h>
#endif

namespace saccade::cli {

void RankArguments::add_options(Command command) {
  command.add_flag("--distributed", distributed,
                   "Compute together with the other processes that mpirun started, each of which takes a part");
  add_number(command, "--timeout", timeout,
             "With --distributed: how long to wait for another process; without, 300 s")
      .type_name("SECONDS");
}

void agree(Ranks& ranks, const std::function<void()>& f) {
  struct Status {
    bool failed = false;
    char text[999] = {};
  } own;
  try {
    f();
  } catch (const std::exception& error) {
    own.failed = true;
    message_line(error.what()).copy(own.text, sizeof own.text - 1);
  }
  std::vector<Status> all(static_cast<std::size_t>(ranks.size()));
  const auto until = std::chrono::steady_clock::now() + ranks.communicator.timeout();
  ranks.communicator.all_gather(&own, all.data(), sizeof own, until);
  const auto failed = std::ranges::find(all, true, &Status::failed);
  if (failed == all.end()) return;
  const auto is_same = [&](const Status& status) { return std::strcmp(status.text, failed->text) == 0; };
  if (std::ranges::all_of(all, is_same)) throw std::runtime_error(failed->text);
  throw std::runtime_error(fmt::format("rank {}: {}", failed - all.begin(), failed->text));
}

#ifdef SACCADE_HAS_MPI

namespace {

/// Initializes MPI, and finalizes it at the end.
class Mpi {
 public:
  Mpi() {
    int level = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  ~Mpi() { MPI_Finalize(); }
  Mpi(const Mpi&) = delete;
  Mpi& operator=(const Mpi&) = delete;

  /// The mpirun of another MPI starts unconnected processes, each of which would do all of the work.
  void require_known_size() const {
    for (const char* const variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
      const char* const value = std::getenv(variable);
      const std::optional<std::int64_t> started = value == nullptr ? std::nullopt : parse_integer(value);
      if (started && *started > size_)
        refuse(
            "--distributed: mpirun started {} processes, but {} is all that MPI knows of: mpirun and this command "
            "belong to different MPIs",
            *started, size_);
    }
  }

  /// The threads of a rank, unless the user sets their number.
  static int threads() {
    if (std::getenv("OMP_NUM_THREADS") != nullptr) return num_threads();
    MPI_Comm machine = MPI_COMM_NULL;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
    int ranks = 1;
    MPI_Comm_size(machine, &ranks);
    MPI_Comm_free(&machine);
    const int cores = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
    return std::clamp(cores / ranks, 1, num_threads());
  }

 private:
  int size_ = 1;
};

}  // namespace

ExitCode with_ranks(std::string_view command, const RankArguments& arguments,
                    const std::function<ExitCode(Ranks&)>& f) {
  const double timeout = arguments.timeout.value_or(300.0);
  if (timeout <= 0.0 || timeout > 1e9)
    refuse("--timeout: expected more than 0 and at most 1e9 seconds, got {}", timeout);
  const Mpi mpi;
  mpi.require_known_size();
  mpi::Communicator communicator(MPI_COMM_WORLD);
  communicator.set_timeout(std::chrono::nanoseconds(static_cast<std::int64_t>(timeout * 1e9)));
  Ranks ranks{communicator, Mpi::threads()};
  try {
    return f(ranks);
  } catch (const std::exception& error) {
    // Here, not in main(): once one process has failed, mpirun ends those that still run.
    const bool others_wait = !communicator.failure().empty();
    if (others_wait)
      note(command, fmt::format("rank {}: {}", ranks.rank(), message_line(error.what())));
    else if (ranks.rank() == 0)
      note(command, message_line(error.what()));
    if (others_wait) MPI_Abort(MPI_COMM_WORLD, kBadUsage);  // MPI_Finalize would wait for ranks that do not answer
  }
  return kBadUsage;
}

#else

ExitCode with_ranks(std::string_view /*command*/, const RankArguments& /*arguments*/,
                    const std::function<ExitCode(Ranks&)>& /*f*/) {
  refuse("--distributed: this command was built without MPI (script/bootstrap --mpi installs it for a build)");
}

#endif

}  // namespace saccade::cli
