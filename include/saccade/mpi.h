// Distributed attention over MPI: a communicator for the functions of distributed.h. CMake target saccade::mpi.
#pragma once

#include <mpi.h>

#include <memory>

#include "saccade/communicator.h"

#pragma GCC visibility push(default)
namespace saccade::mpi {

/// The ranks of an MPI communicator. It duplicates that communicator, to keep its messages apart from all others,
/// and needs MPI to be initialized; all ranks construct one together. Between MPI_Init and MPI_Finalize only the
/// thread that calls the functions of distributed.h calls MPI: MPI_THREAD_FUNNELED suffices.
///
/// Make one and keep it: duplicating is a collective operation. Destroy it on all ranks before MPI_Finalize. If a
/// process is killed, mpirun ends the others; if one hangs, the others throw CommunicationError after timeout().
///
/// Throws CommunicationError with MPI's text for errors that MPI reports, and if MPI is not initialized.
class Communicator : public distributed::Communicator {
 public:
  explicit Communicator(MPI_Comm communicator);
  ~Communicator() override;

  int rank() const override;
  int size() const override;
  Request send(int to, const void* data, std::size_t bytes) override;
  Request receive(int from, void* data, std::size_t bytes) override;
  bool is_finished(Request request) override;
  void make_progress() override;
  std::size_t most_bytes() const override;
  void all_gather(const void* own, void* all, std::size_t bytes,
                  std::chrono::steady_clock::time_point until) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace saccade::mpi
#pragma GCC visibility pop
