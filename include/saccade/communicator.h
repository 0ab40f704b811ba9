// How the ranks of a distributed call exchange messages: an interface to existing libraries (MPI, gloo, ...).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#pragma GCC visibility push(default)
namespace saccade::distributed {

/// A rank could not be reached, or did not answer in time. The communicator is unusable afterward.
class CommunicationError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A fixed group of ranks, numbered from 0, that call the functions of distributed.h together and in the same
/// order. Derived classes implement the transport: saccade::mpi has one for MPI (mpi.h), and local_communicators()
/// connect the threads of one process.
///
/// Messages from one rank to another arrive in the order in which they were sent, and are received in that order:
/// the n-th receive(from) on rank `to` gets the n-th send(to) of rank `from`, of the same size. The thread that
/// calls a function of distributed.h makes all calls.
class Communicator {
 public:
  using Request = std::int64_t;

  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;  ///< the number of ranks

  /// Starts to send `bytes` bytes of `data` to rank `to`, and returns at once. The memory must stay valid until
  /// the request is finished. Ranks do not send to themselves. bytes is at least 1 and at most most_bytes().
  /// Throws CommunicationError.
  virtual Request send(int to, const void* data, std::size_t bytes) = 0;
  /// See send(): receives `bytes` bytes from rank `from` into `data`.
  virtual Request receive(int from, void* data, std::size_t bytes) = 0;

  /// Whether a request is finished; it then no longer exists. Lets all other requests make progress too. Throws
  /// CommunicationError if the other rank is gone.
  virtual bool is_finished(Request request) = 0;

  /// Lets requests make progress, for libraries that only do so inside their functions. Called at most about 5 ms
  /// apart while kernels compute.
  virtual void make_progress() {}

  /// Every rank contributes `bytes` bytes, `own`, and `all` receives those of all ranks in order. Throws
  /// CommunicationError after `until`. The default implementation sends to and receives from every other rank.
  virtual void all_gather(const void* own, void* all, std::size_t bytes,
                          std::chrono::steady_clock::time_point until);

  /// The largest message, the same on every rank: larger ones are split.
  virtual std::size_t most_bytes() const { return std::size_t{64} << 20; }

  /// How long a call waits for another rank before it throws CommunicationError; 300 s unless set.
  std::chrono::nanoseconds timeout() const { return timeout_; }
  /// Sets this time. Throws std::invalid_argument for a `timeout` that is not positive.
  void set_timeout(std::chrono::nanoseconds timeout);

  /// Why this communicator is unusable; empty: it is usable. Every later call throws CommunicationError with this
  /// text.
  const std::string& failure() const { return failure_; }

  /// For the functions of distributed.h: marks the communicator as unusable; failure() is then `why`, unless
  /// another failure came before. Keeps `memory`, which unfinished requests may still read or write, until the
  /// program ends.
  void fail(const std::string& why, std::vector<std::shared_ptr<void>> memory);

 protected:
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

 private:
  std::chrono::nanoseconds timeout_ = std::chrono::seconds(300);
  std::string failure_;
  std::vector<std::shared_ptr<void>> unused_;  // programs that were linked with 0.2 make and destroy it
};

/// Communicators of `ranks` threads in one process, one for each, in the order of their ranks: for tests, and to
/// try a division of work without MPI. Throws std::invalid_argument unless ranks is positive.
std::vector<std::unique_ptr<Communicator>> local_communicators(int ranks);

/// Waits until the requests of a communicator are finished; throws CommunicationError at the time `until`.
void wait(Communicator& communicator, const std::vector<Communicator::Request>& requests,
          std::chrono::steady_clock::time_point until);

}  // namespace saccade::distributed
#pragma GCC visibility pop
