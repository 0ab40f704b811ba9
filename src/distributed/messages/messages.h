// The messages of one distributed call: rows of matrices, packed and split to the sizes that communicators take,
// with the memory that they need until they have arrived.
#pragma once

#include <memory>
#include <vector>

#include "saccade/communicator.h"
#include "saccade/tensor.h"

namespace saccade::distributed {

/// Uninitialized memory that a message may refer to.
using Buffer = std::shared_ptr<std::byte>;
Buffer make_buffer(std::size_t bytes);

/// Received numbers, in memory of their own.
struct Parcel {
  Parcel(DType dtype, const Shape& shape);
  Buffer memory;
  MutableTensorView numbers;
};

/// Keeps what unfinished requests may still read or write: transports outlive the call, and even the communicator.
void keep_until_exit(std::vector<std::shared_ptr<void>> memory) noexcept;

/// Requests that are waited for together, and their memory. If an exception comes before they are finished, the
/// memory is kept until the program ends.
struct Batch {
  Batch() = default;
  ~Batch() {
    if (!memory.empty()) keep_until_exit(std::move(memory));
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  std::vector<Communicator::Request> requests;
  std::vector<std::shared_ptr<void>> memory;  ///< empty: all requests are finished
};

/// The messages of a call on one rank: the first thing that a call makes. If an exception leaves the call of more
/// than one rank, the others may wait for messages that never come, or a later call could take some of this one,
/// so the communicator is marked as failed, unless all ranks agree on the exception.
class Messages {
 public:
  /// `function`: for errors. Throws CommunicationError if the communicator has failed before.
  Messages(Communicator& communicator, std::string_view function);
  ~Messages();
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  int rank() const { return communicator_.rank(); }
  int size() const { return communicator_.size(); }

  /// Sends a copy of the rows of a matrix [rows, dim], whose last dimension is contiguous.
  void send(Batch& batch, int to, const TensorView& rows);
  void receive(Batch& batch, int from, const Parcel& parcel) {
    receive(batch, from, parcel.numbers, parcel.memory);
  }
  /// Receives rows into the contiguous matrix `rows`, which is part of `memory`.
  void receive(Batch& batch, int from, const MutableTensorView& rows, const Buffer& memory);

  /// Waits for the messages of a batch, and forgets them. `what`: for the error, "keys of kv head 2".
  void wait(Batch& batch, const std::string& what);

  /// Gathers the bytes of all ranks in order.
  std::vector<std::byte> all_gather(std::span<const std::byte> own, const std::string& what);

  void make_progress() { communicator_.make_progress(); }

  /// Calls f, which exchanges messages; says in a CommunicationError where it came from.
  template <class F>
  void guard(const F& f) {
    try {
      f();
    } catch (const CommunicationError& error) {
      fail(error.what());
    }
  }

  /// Calls f, which throws on all ranks or on none.
  template <class F>
  void in_agreement(const F& f) {
    end();
    f();
    is_open_ = size() > 1;
  }
  /// What comes now needs no other rank.
  void end() { is_open_ = false; }

 private:
  [[noreturn]] void fail(const std::string& why);

  Communicator& communicator_;
  std::string_view function_;
  bool is_open_;
};

}  // namespace saccade::distributed
