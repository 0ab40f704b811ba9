// What happens to a call when a rank fails: "mpirun -n 3 mpi_faults WHAT [MESSAGE]". Rank 1 does WHAT instead of
// what the others do, or stops or is killed at its MESSAGE-th message; each rank prints the exception that it then
// catches, and how long that took.
#include <saccade/mpi.h>

#include <saccade/distributed.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "cases/failing_communicator.h"

namespace {

using saccade::Tensor;
using saccade::distributed::ParallelConfig;
using saccade::distributed::Sharding;

constexpr std::int64_t kRows = 4096;

/// What happens to rank 1 at a message.
saccade::cases::FailingCommunicator::Fault happens(const std::string& what) {
  return [=](std::size_t) -> std::size_t {
    if (what == "killed") std::raise(SIGKILL);
    if (what == "stopped") std::this_thread::sleep_for(std::chrono::hours(1));
    return 0;
  };
}

/// A call, whose rank 1 behaves as `what` says.
void call(saccade::distributed::Communicator& communicator, const std::string& what) {
  const int rank = communicator.rank();
  const Sharding sharding = Sharding::contiguous(kRows, communicator.size());
  Tensor tensor(saccade::DType::f32, {2, sharding.rows(rank), 64}), o = tensor;
  saccade::AttentionOptions options{.causal = saccade::Causal::top_left};
  ParallelConfig division{.rows = sharding};
  if (rank == 1) {
    if (what == "options") options.softcap = 30.0F;
    if (what == "shape") tensor = Tensor(saccade::DType::f32, {2, 7, 64});
    if (what == "dtype") tensor = Tensor(saccade::DType::f64, {2, sharding.rows(rank), 64});
    if (what == "division") division.chunk *= 2;
  }
  saccade::distributed::attention(communicator, tensor, tensor, tensor, o, division, options);
}

}  // namespace

int main(int argc, char** argv) {
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  {
    saccade::mpi::Communicator world(MPI_COMM_WORLD);
    world.set_timeout(std::chrono::seconds(2));
    const std::string what = argc > 1 ? argv[1] : "";
    const int message = world.rank() == 1 && argc > 2 ? std::atoi(argv[2]) : 0;
    saccade::cases::FailingCommunicator communicator(world, message, happens(what));
    const auto start = std::chrono::steady_clock::now();
    std::string text = "nothing was thrown";
    bool is_lost = false;
    try {
      call(communicator, what);
    } catch (const saccade::distributed::CommunicationError& error) {
      is_lost = true;
      text = error.what();
    } catch (const std::invalid_argument& error) {
      text = error.what();
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::printf("rank %d: %.3f s: %s\n", communicator.rank(), seconds, text.c_str());
    std::fflush(stdout);
    if (is_lost) MPI_Abort(MPI_COMM_WORLD, 3);
  }
  MPI_Finalize();
}
