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

/// Requests that are waited for together, and their memory.
struct Batch {
  std::vector<Communicator::Request> requests;
  std::vector<std::shared_ptr<void>> memory;
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

  /// Calls f; if it throws CommunicationError, marks the communicator as failed, keeping the memory of `open`.
  template <class F>
  void guard(const std::vector<std::array<Batch*, 4>>& open, const F& f) {
    try {
      f();
    } catch (const CommunicationError& error) {
      fail(error.what(), open);
    }
  }

 private:
  [[noreturn]] void fail(const std::string& why, const std::vector<std::array<Batch*, 4>>& open);

  Communicator& communicator_;
  std::string_view function_;
};

}  // namespace saccade::distributed
