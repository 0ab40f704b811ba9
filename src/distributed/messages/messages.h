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

/// Requests that are waited for together, and their memory. If they are never finished, for an exception came, the
/// communicator keeps it.
class Batch {
 public:
  explicit Batch(Communicator& communicator) : communicator_(communicator) {}
  ~Batch() { communicator_.keep(std::move(owners)); }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  std::vector<Communicator::Request> requests;
  Communicator::Owners owners;  ///< none: all are finished

 private:
  Communicator& communicator_;
};

class Messages {
 public:
  /// `function`: for errors. Throws CommunicationError if the communicator has failed before.
  Messages(Communicator& communicator, std::string_view function);

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

  /// Calls f, which exchanges messages; if it throws, other ranks may wait for some that never come, so the
  /// communicator is marked as failed.
  template <class F>
  void guard(const F& f) {
    try {
      f();
    } catch (const CommunicationError& error) {
      communicator_.fail(error.what());
      throw CommunicationError("[" + std::string(function_) + "] rank " + std::to_string(rank()) + ", " +
                               error.what());
    } catch (...) {
      communicator_.fail("an exception left a call before its last message");
      throw;
    }
  }

  Communicator& communicator() { return communicator_; }

 private:
  Communicator& communicator_;
  std::string_view function_;
};

}  // namespace saccade::distributed
