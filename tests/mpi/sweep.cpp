// Distributed attention over MPI on random problems: "mpirun -n 3 mpi_sweep CASES SEED". Exits with 1 if a number
// differs from that of one process.
#include <saccade/mpi.h>

#include <cstdio>
#include <cstdlib>
#include <exception>

#include "cases/divided_case.h"

int main(int argc, char** argv) {
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  const long cases = argc > 1 ? std::atol(argv[1]) : 100, seed = argc > 2 ? std::atol(argv[2]) : 1;
  long failures = 0;
  {
    saccade::mpi::Communicator communicator(MPI_COMM_WORLD);
    communicator.set_timeout(std::chrono::seconds(60));
    for (long i = 0; i < cases; ++i) {
      std::string problem;
      std::vector<std::string> lines;
      try {
        lines = saccade::cases::compare_divided(communicator, static_cast<std::uint64_t>(seed + i), problem);
      } catch (const std::exception& error) {
        lines = {error.what()};
      }
      for (const std::string& line : lines)
        std::printf("seed %ld: %s (%s)\n", seed + i, line.c_str(), problem.c_str());
      failures += !lines.empty();
    }
    long all = 0;
    MPI_Allreduce(&failures, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    failures = all;
    if (communicator.rank() == 0)
      std::printf("%ld problems on %d ranks: %ld differ\n", cases, communicator.size(), failures);
  }
  MPI_Finalize();
  return failures == 0 ? 0 : 1;
}
