// A transport of distributed calls to which a fault comes at one of its messages.
#pragma once

#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <utility>

#include "saccade/distributed.h"

namespace saccade::cases {

/// Sends, receives and exchanges with all ranks are counted.
class FailingCommunicator final : public distributed::Communicator {
 public:
  /// What happens at a message of so many bytes; returns how many of them are missing. If it throws, so does every
  /// later call.
  using Fault = std::function<std::size_t(std::size_t bytes)>;

  /// `at`: the message to which the fault comes, counted from 1; 0: none.
  FailingCommunicator(Communicator& inner, int at, Fault fault)
      : inner_(inner), at_(at), fault_(std::move(fault)) {
    set_timeout(inner.timeout());
  }

  int messages() const { return messages_; }

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  Request send(int to, const void* data, std::size_t bytes) override {
    return inner_.send(to, data, bytes - missing(bytes));
  }
  Request receive(int from, void* data, std::size_t bytes) override {
    return inner_.receive(from, data, bytes - missing(bytes));
  }
  bool is_finished(Request request) override {
    if (error_) std::rethrow_exception(error_);
    return inner_.is_finished(request);
  }
  void all_gather(const void* own, void* all, std::size_t bytes,
                  std::chrono::steady_clock::time_point until) override {
    inner_.all_gather(own, all, bytes - missing(bytes), until);
  }

 private:
  std::size_t missing(std::size_t bytes) {
    if (error_) std::rethrow_exception(error_);
    if (++messages_ != at_) return 0;
    try {
      return fault_(bytes);
    } catch (...) {
      error_ = std::current_exception();
      throw;
    }
  }

  Communicator& inner_;
  int at_, messages_ = 0;
  Fault fault_;
  std::exception_ptr error_;
};

}  // namespace saccade::cases
